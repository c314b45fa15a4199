"""Results of the simulated server say so wherever they are shown."""

from __future__ import annotations

from pathlib import Path

from fakes.records import BASELINE, RecordBuilder, TrialPlan, count, experiment, steps, workload

from sweep.model.experiment import EngineSpec
from sweep.model.plan import Role
from sweep.report.write import write_report


def test_verdict_page_table_and_every_plot_say_simulated(tmp_path: Path) -> None:
    """And those of a real server do not."""
    code = workload()
    for kind in ("simulator", "llama.cpp"):
        builder = RecordBuilder(experiment(code, engine=EngineSpec(kind, "model")))
        builder.launch(BASELINE, TrialPlan(code), role=Role.BASELINE_FIRST)
        builder.launch(steps(2), TrialPlan(code))
        directory = tmp_path / kind
        judged = write_report(builder.record(), directory, count)
        simulated = kind == "simulator"
        assert judged.summary.startswith("SIMULATED") is simulated
        page = (directory / "report.html").read_text()
        assert page.count("<!-- SIMULATED -->") == 3 * simulated
        assert ("simulated" in (directory / "summary.csv").read_text()) is simulated
        for name in ("throughput", "accept_length", "timeline"):
            plot = (directory / "plots" / f"{name}.svg").read_text()
            assert ("SIMULATED" in plot) is simulated
