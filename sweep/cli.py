"""Verbs: parse, call the application, print, exit code. Nothing else.

What a verb does not need is not imported: `--help` answers at once.
"""

from __future__ import annotations

import dataclasses
import io
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sweep import __version__
from sweep.model.errors import InterruptedSweep, SpecError, SweepError, UsageError

if TYPE_CHECKING:
    from sweep.app import Prepared

_CONFIRM_LAUNCHES = 20
_CONFIRM_HOURS = 12.0

_results = click.option(
    "--results",
    metavar="DIR",
    help="Where sweeps are kept (default: $SWEEP_RESULTS, else ./results).",
)
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
_sets = click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a value of the file."
)
_yes = click.option("--yes", is_flag=True, help="Do not ask before a large sweep.")
_detach = click.option("--detach", is_flag=True, help="Run in the background and return.")
_keep_going = click.option(
    "--keep-going", is_flag=True, help="Go on when the baseline or several launches fail."
)
_sweep = click.argument("sweep", required=False)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="sweep")
@click.option("--debug", is_flag=True, help="Show a traceback with every error.")
@click.pass_context
def cli(context: click.Context, *, debug: bool) -> None:
    """Find the fastest speculative-decoding settings of a real LLM server, and why."""
    context.obj = debug


def _directory(results: str | None) -> Path:
    from sweep import views  # noqa: PLC0415

    return views.results_directory(results, os.environ)


def _print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, default=str))


@cli.command()
@click.argument("file", type=click.Path(path_type=Path))
@_sets
@_json
def plan(file: Path, overrides: tuple[str, ...], *, as_json: bool) -> None:
    """Show what a sweep of FILE would launch, and what not and why."""
    _show_plan(file, overrides, as_json=as_json)


def _show_plan(file: Path, overrides: tuple[str, ...], *, as_json: bool) -> None:
    from sweep import app  # noqa: PLC0415
    from sweep.report import terminal_plan  # noqa: PLC0415

    loaded = app.load(file, overrides)
    planned = app.plan(loaded.experiment, os.environ)
    summary = app.plan_summary(loaded.experiment, planned)
    if as_json:
        _print_json(dataclasses.asdict(summary))
    else:
        terminal_plan.show(summary)


@cli.command()
@click.argument("file", type=click.Path(path_type=Path))
@_results
@_sets
@_json
@click.pass_context
def check(
    context: click.Context,
    file: Path,
    results: str | None,
    overrides: tuple[str, ...],
    *,
    as_json: bool,
) -> None:
    """Look at all that a sweep of FILE would stand on; exit code 3 when it could not start."""
    from sweep import app, checking  # noqa: PLC0415
    from sweep.report import terminal_check  # noqa: PLC0415

    checked = checking.check(app.load(file, overrides), os.environ, _directory(results))
    if as_json:
        _print_json(dataclasses.asdict(checked))
    else:
        terminal_check.show(checked.groups, checked.seconds)
    context.exit(checked.exit_code)


@cli.command()
@click.argument("file", type=click.Path(path_type=Path))
@_results
@_sets
@_yes
@_detach
@_keep_going
@click.option("--new", is_flag=True, help="Start afresh, even when the name has a sweep.")
@click.option("--dry-run", is_flag=True, help="Only show the plan.")
@click.pass_context
def submit(
    context: click.Context,
    file: Path,
    results: str | None,
    overrides: tuple[str, ...],
    *,
    yes: bool,
    detach: bool,
    keep_going: bool,
    new: bool,
    dry_run: bool,
) -> None:
    """Run the sweep of FILE: plan, check, launch, measure, report."""
    from sweep import app  # noqa: PLC0415

    if dry_run:
        _show_plan(file, overrides, as_json=False)
        return
    loaded = app.load(file, overrides)
    planned = app.plan(loaded.experiment, os.environ)
    summary = app.plan_summary(loaded.experiment, planned)
    app.require_launches(planned.plan)
    for text in summary.warnings:
        click.echo(f"warning: {text}", err=True)
    _confirm(summary.launches, summary.estimate.seconds / 3600, yes=yes)
    prepared = app.prepare(loaded, planned, _directory(results), new=new)
    if prepared.earlier:
        change = prepared.change
        click.echo(
            f"continuing {prepared.directory.name}: {change.kept} trials kept, {change.new} new, "
            f"{change.dropped} dropped (start afresh with --new)"
        )
    context.exit(_drive(prepared, detach=detach, keep_going=keep_going))


@cli.command()
@click.argument("file", type=click.Path(path_type=Path))
@_results
@_sets
@_detach
@_keep_going
@click.pass_context
def rehearse(
    context: click.Context,
    file: Path,
    results: str | None,
    overrides: tuple[str, ...],
    *,
    detach: bool,
    keep_going: bool,
) -> None:
    """Run the whole of FILE on its real nodes against a simulated server, loads shortened.

    Finds what would break before GPU hours are spent: SSH, claims, paths, the engine's Python and
    setup, arguments that cannot work, disks, and everything from plan to plots. Its figures are
    those of the simulated reference node.
    """
    from sweep import app  # noqa: PLC0415
    from sweep.report.terminal_plan import expected  # noqa: PLC0415

    loaded = app.rehearse(app.load(file, overrides))
    planned = app.plan(loaded.experiment, os.environ)
    app.require_launches(planned.plan)
    summary = app.plan_summary(loaded.experiment, planned)
    click.echo(f"rehearsing, simulated: {summary.headline}, {expected(summary.estimate)}")
    prepared = app.prepare(loaded, planned, _directory(results), new=True)
    code = _drive(prepared, detach=detach, keep_going=keep_going)
    if code == 0 and not detach:
        click.echo("the rehearsal ran every launch and trial")
    context.exit(code)


def _confirm(launches: int, hours: float, *, yes: bool) -> None:
    if yes or (launches <= _CONFIRM_LAUNCHES and hours <= _CONFIRM_HOURS):
        return
    what = f"{launches} launches, about {hours:.1f} h"
    if not sys.stdin.isatty():
        raise UsageError(f"a large sweep: {what}", hint="confirm it with --yes")
    if not click.confirm(f"{what}: start?"):
        raise UsageError("not started")


@cli.command()
@_sweep
@_results
@_detach
@_keep_going
@click.pass_context
def resume(
    context: click.Context,
    sweep: str | None,
    results: str | None,
    *,
    detach: bool,
    keep_going: bool,
) -> None:
    """Go on with a sweep: attach to what still runs, then run what is missing."""
    from sweep import app  # noqa: PLC0415

    prepared = app.prepare_resume(_directory(results), sweep, os.environ)
    click.echo(f"resuming {prepared.directory.name}: {prepared.to_run} launches to go")
    context.exit(_drive(prepared, detach=detach, keep_going=keep_going))


def _drive(prepared: Prepared, *, detach: bool, keep_going: bool) -> int:
    from sweep import following, views  # noqa: PLC0415
    from sweep.report import terminal  # noqa: PLC0415

    directory = prepared.directory
    if prepared.to_run == 0:
        prepared.lock.release()
        click.echo("nothing to run: every trial is complete")
        terminal.show_result(*views.result(directory), views.written_report(directory))
        return 0
    for text in prepared.warnings:
        click.echo(f"warning: {text}", err=True)
    return following.drive(prepared, dict(os.environ), detach=detach, keep=keep_going)


def _raise_interrupt(number: int, _frame: object) -> None:
    raise InterruptedSweep(signal.Signals(number).name)


@cli.command()
@_sweep
@_results
@_json
@click.option("--watch", is_flag=True, help="Follow until the driver has ended.")
def status(sweep: str | None, results: str | None, *, as_json: bool, watch: bool) -> None:
    """Show the state of a sweep's launches and trials."""
    from sweep import views  # noqa: PLC0415
    from sweep.report import live  # noqa: PLC0415

    found = views.find(_directory(results), sweep)
    progress = views.progress(found.directory)
    if as_json:
        _print_json(views.summary_json(progress))
        return
    if not watch:
        live.show_once(progress)
        return
    signal.signal(signal.SIGINT, _raise_interrupt)
    with live.view() as view:
        views.watch(found.directory, view.show)


@cli.command("list")
@_results
@_json
def list_sweeps(results: str | None, *, as_json: bool) -> None:
    """List the sweeps there are, oldest first."""
    from sweep import views  # noqa: PLC0415
    from sweep.report import live  # noqa: PLC0415

    rows = views.list_sweeps(_directory(results))
    if as_json:
        _print_json(rows)
    else:
        live.show_list(rows)


@cli.command()
@_sweep
@_results
@click.option("--no-open", is_flag=True, help="Only print the path of the report.")
def view(sweep: str | None, results: str | None, *, no_open: bool) -> None:
    """Open the report of a sweep."""
    from sweep import views  # noqa: PLC0415

    path = views.report(views.find(_directory(results), sweep).directory)
    click.echo(str(path))
    if not no_open and views.has_desktop(sys.platform, os.environ):
        click.launch(path.as_uri())


@cli.command()
@_sweep
@_results
@click.option(
    "--launch",
    metavar="LAUNCH",
    help="Which launch, by the number or name that status shows, or by id (default: the latest).",
)
@click.option("--follow", "-f", is_flag=True, help="Go on printing while it grows.")
def logs(sweep: str | None, results: str | None, launch: str | None, *, follow: bool) -> None:
    """Print the server's log of a launch."""
    from sweep import views  # noqa: PLC0415

    found = views.find(_directory(results), sweep)
    for chunk in views.server_log(found.directory, launch, os.environ, follow=follow):
        sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()


@cli.command()
@_sweep
@_results
@click.pass_context
def cancel(context: click.Context, sweep: str | None, results: str | None) -> None:
    """Stop a sweep: its servers are stopped, its nodes proven clean, what was measured is kept."""
    from sweep import app, leftovers, views  # noqa: PLC0415
    from sweep.report import live  # noqa: PLC0415

    found = views.find(_directory(results), sweep)
    pid = leftovers.cancel(found.directory, os.environ)
    if pid is not None:
        with live.view() as shown:
            app.follow(found.directory, pid, shown.show)
    progress = views.progress(found.directory)
    click.echo(f"{found.sweep_id}: driver {progress.driver}")
    if progress.now and progress.note:
        click.echo(f"note: {progress.note}", err=True)
    context.exit(0 if not progress.now else 1)


@cli.command()
@_sweep
@_results
def clean(sweep: str | None, results: str | None) -> None:
    """Remove what a sweep left on its nodes; its results stay."""
    from sweep import leftovers, views  # noqa: PLC0415

    found = views.find(_directory(results), sweep)
    cleaned = leftovers.clean(found.directory, os.environ)
    for launch in cleaned.stopped:
        click.echo(f"stopped {launch}, and removed what it left there")
    for path in cleaned.removed:
        click.echo(f"removed {path}")
    if cleaned.problems:
        raise SweepError(
            "; ".join(cleaned.problems), hint="run `sweep clean` again once it answers"
        )
    if not cleaned.stopped and not cleaned.removed:
        click.echo(f"{found.sweep_id} left nothing")


@cli.command()
@_sweep
@_results
@click.option("--format", "kind", type=click.Choice(["csv", "json"]), default="csv")
def export(sweep: str | None, results: str | None, kind: str) -> None:
    """Print the table of a sweep: one row per trial, missing values empty."""
    from sweep import views  # noqa: PLC0415

    click.echo(views.export(views.find(_directory(results), sweep).directory, kind), nl=False)


@cli.command()
def schema() -> None:
    """Print the JSON Schema of the experiment file, for editors."""
    from sweep.spec.schema import json_schema  # noqa: PLC0415

    _print_json(json_schema())


def _show_error(error: SweepError) -> None:
    click.echo(f"error: {error.message}", err=True)
    if isinstance(error, SpecError):
        for problem in error.problems:
            where = f"{error.source}:{problem.line}:{problem.column}: " if problem.line else ""
            click.echo(f"  {where}{problem.message}", err=True)
            if problem.hint:
                click.echo(f"      {problem.hint}", err=True)
    if error.hint:
        click.echo(f"  {error.hint}", err=True)


def main() -> None:
    """Run a verb; every error becomes a message and an exit code."""
    debug = "--debug" in sys.argv
    signal.signal(signal.SIGTERM, _raise_interrupt)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A table must not fail at its end because the terminal knows fewer characters.
            stream.reconfigure(errors="replace")
    sys.exit(_exit_code(lambda: cli.main(standalone_mode=False), debug=debug))


def _exit_code(verb: Callable[[], Any], *, debug: bool) -> int:
    try:
        code = verb()
    except (click.exceptions.Abort, InterruptedSweep):
        return InterruptedSweep.exit_code
    except click.ClickException as error:
        error.show()
        return UsageError.exit_code
    except SweepError as error:
        if debug:
            traceback.print_exc()
        _show_error(error)
        return error.exit_code
    except OSError as error:
        if debug:
            traceback.print_exc()
        click.echo(f"error: {error}", err=True)
        _give_up_stdout()
        return SweepError.exit_code
    except Exception as error:  # noqa: BLE001 - people get a sentence, not a traceback
        if debug:
            traceback.print_exc()
        click.echo(f"error: internal error: {type(error).__name__}: {error}", err=True)
        click.echo("  run again with `sweep --debug …` and report it", err=True)
        return SweepError.exit_code
    return code if isinstance(code, int) else 0


def _give_up_stdout() -> None:
    """What is left in the buffer of a standard output that cannot be written goes nowhere: at
    exit, Python would try again and complain in its own words."""
    try:
        sys.stdout.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
