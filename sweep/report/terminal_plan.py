"""The plan on a terminal: what would be launched, what not and why."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence

from rich.text import Text

from sweep.model.redaction import redact_argv, redact_env
from sweep.report.live import duration
from sweep.report.plain import open_console, plain_table
from sweep.spec.describe import LaunchRow, PlanSummary
from sweep.spec.estimate import Estimate

_OWN_PATH = ":$PATH"


def show(summary: PlanSummary) -> None:
    """Print the whole plan."""
    console = open_console()
    console.print(Text(summary.headline, style="bold"))
    console.print(Text(f"{expected(summary.estimate)}: {summary.estimate.basis}"))
    several = len({row.node for row in summary.rows}) > 1
    names = ("#", *(["node"] if several else []), "launch", "role", "arm", "trials")
    table = plain_table(names, right={"#", "trials"})
    for row in summary.rows:
        role = row.role.replace("_", " ")
        node = [Text(row.node)] if several else []
        arm, trials = Text(row.arm), str(row.trials)
        table.add_row(str(row.position), *node, Text(row.label), role, arm, trials)
    console.print(table)
    for line in commands(summary.rows):
        console.print(Text(line, style="dim"), soft_wrap=True)
    for skipped in summary.skipped:
        console.print(Text(f"invalid: {skipped.label}: {skipped.reason}", style="yellow"))
    for text in summary.warnings:
        console.print(Text(f"warning: {text}", style="yellow"))
    for note in summary.notes:
        console.print(Text(f"note: {note}"))


def expected(estimate: Estimate) -> str:
    """Return how long a plan may take, for people."""
    at_least = "at least" if estimate.is_lower_bound else "about"
    return f"{at_least} {duration(estimate.seconds)}"


def commands(rows: Sequence[LaunchRow]) -> list[str]:
    """Return a line per launch: the first command whole, of the others what differs from it."""
    if not rows:
        return []
    first, lines = rows[0], [f"{rows[0].position}: {command(rows[0])}"]
    known = _parts(first)
    for row in rows[1:]:
        own = _parts(row)
        more = _joined(part for part in own if part not in known)
        less = _joined(part for part in known if part not in own)
        words = [f"as {first.position}"]
        words += [f"with {more}"] if more else []
        words += [f"without {less}"] if less else []
        lines.append(f"{row.position}: {', '.join(words)}")
    return lines


def command(row: LaunchRow) -> str:
    """Return a launch's command as a shell would take it, secrets blanked."""
    parts = _parts(row)
    return _joined([("env",), *parts] if row.unset or row.env or row.path_first else parts)


def _joined(parts: Iterable[tuple[str, ...]]) -> str:
    return " ".join(_quoted(word) for part in parts for word in part)


def _quoted(word: str) -> str:
    """Return a word for a shell, which fills in the login's own PATH."""
    head = word.removesuffix(_OWN_PATH)
    return shlex.quote(word) if head == word else shlex.quote(head) + _OWN_PATH


def _parts(row: LaunchRow) -> list[tuple[str, ...]]:
    """Return a command in the parts that can differ: each variable, the program, each flag with
    its values."""
    parts: list[tuple[str, ...]] = [("-u", name) for name in row.unset]
    parts += [(f"{name}={value}",) for name, value in redact_env(row.env).items()]
    if row.path_first:
        parts = [part for part in parts if not part[0].startswith("PATH=")]
        behind = f":{row.env['PATH']}" if row.env.get("PATH") else _OWN_PATH
        parts.append((f"PATH={':'.join(row.path_first)}{behind}",))
    program: list[list[str]] = [[]]
    for word in redact_argv(row.argv):
        if word.startswith("--"):
            program.append([])
        program[-1].append(word)
    return parts + [tuple(words) for words in program if words]
