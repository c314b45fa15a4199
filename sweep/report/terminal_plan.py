"""The plan on a terminal: what would be launched, what not and why."""

from __future__ import annotations

import shlex

from rich.console import Console
from rich.table import Table
from rich.text import Text

from sweep.model.redaction import redact_argv, redact_env
from sweep.report.live import duration
from sweep.spec.describe import LaunchRow, PlanSummary


def show(summary: PlanSummary) -> None:
    """Print the whole plan."""
    console = Console()
    console.print(Text(summary.headline, style="bold"))
    at_least = "at least " if summary.estimate.is_lower_bound else "about "
    console.print(Text(f"{at_least}{duration(summary.estimate.seconds)}: {summary.estimate.basis}"))
    table = Table(box=None, pad_edge=False)
    several = len({row.node for row in summary.rows}) > 1
    for name in ("#", *(["node"] if several else []), "launch", "role", "arm", "trials"):
        table.add_column(name, justify="right" if name in {"#", "trials"} else "left")
    for row in summary.rows:
        role = row.role.replace("_", " ")
        node = [Text(row.node)] if several else []
        arm, trials = Text(row.arm), str(row.trials)
        table.add_row(str(row.position), *node, Text(row.label), role, arm, trials)
    console.print(table)
    for row in summary.rows:
        console.print(Text(f"{row.position}: {command(row)}", style="dim"), soft_wrap=True)
    for skipped in summary.skipped:
        console.print(Text(f"invalid: {skipped.label}: {skipped.reason}", style="yellow"))
    for note in summary.notes:
        console.print(Text(f"note: {note}"))


def command(row: LaunchRow) -> str:
    """Return a launch's command as a shell would take it, secrets blanked."""
    unset = " ".join(f"-u {name}" for name in row.unset)
    environment = [f"{name}={value}" for name, value in redact_env(row.env).items()]
    prefix = ["env", *unset.split(), *environment] if unset or environment else []
    return shlex.join([*prefix, *redact_argv(row.argv)])
