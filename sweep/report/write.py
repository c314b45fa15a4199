"""The files that a sweep ends with: report.html, summary.csv and the plots."""

from __future__ import annotations

from pathlib import Path

from sweep.agent.journal import write_whole
from sweep.analysis.measurement import Count
from sweep.analysis.timeline import attempt_lines
from sweep.analysis.verdict import Verdict, verdict
from sweep.model.record import SweepRecord
from sweep.plots.accept_length import accept_length
from sweep.plots.acceptance import acceptance
from sweep.plots.concurrency import concurrency
from sweep.plots.heat_map import heat_map
from sweep.plots.phases import phases
from sweep.plots.predicted import predicted
from sweep.plots.style import mark_simulated, render
from sweep.plots.throughput import throughput
from sweep.plots.timeline import timeline
from sweep.plots.variants import variants
from sweep.plots.verify_cost import verify_cost
from sweep.report.export import to_csv
from sweep.report.page import Plot, page
from sweep.report.table import read_frame

REPORT_FILE = "report.html"
SUMMARY_FILE = "summary.csv"
PLOTS_DIR = "plots"


def write_report(record: SweepRecord, directory: Path, count: Count) -> Verdict:
    """Write all files of the report below `directory` and return the verdict.

    Every file appears whole or not at all; files of an earlier report are replaced. `count` is
    the engine's reading of a request's raw counts. Raises OSError when a file cannot be written.
    """
    frame = read_frame(record, count)
    judged = verdict(frame, record.experiment)
    figures = {
        "throughput": (throughput(frame, judged), ""),
        "accept_length": (accept_length(frame, judged), ""),
        "acceptance": (acceptance(frame, judged), ""),
        "phases": (phases(frame, judged), ""),
        "variants": (variants(frame, judged), ""),
        "heat_map": (heat_map(frame, judged), ""),
        "concurrency": (concurrency(frame, judged), ""),
        "verify_cost": (verify_cost(frame, judged), ""),
        "predicted": (predicted(frame, judged), ""),
        "timeline": (timeline(attempt_lines(record)), "narrow"),
    }
    plots_dir = directory / PLOTS_DIR
    plots_dir.mkdir(parents=True, exist_ok=True)
    plots = []
    for name, (figure, shape) in figures.items():
        if figure is None:
            continue
        if record.experiment.engine.kind == "simulator":
            mark_simulated(figure)
        drawn = render(figure, name)
        _write(plots_dir / f"{name}.svg", drawn.svg.encode())
        _write(plots_dir / f"{name}.png", drawn.png)
        plots.append(Plot(figure.get_suptitle(), drawn.svg, shape))
    _write(directory / SUMMARY_FILE, to_csv(frame).encode(errors="replace"))
    _write(directory / REPORT_FILE, page(record, frame, judged, plots).encode(errors="replace"))
    return judged


def _write(path: Path, data: bytes) -> None:
    write_whole(str(path), data, mode=0o644)
