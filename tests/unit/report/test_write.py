"""Tests of the report's files: complete, self-contained, safe against hostile text."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from fakes.records import BASELINE, RecordBuilder, TrialPlan, count, experiment, steps, workload
from fakes.tables import chain, table
from fakes.timed import timed_sweep

from sweep.analysis.frame import make_frame
from sweep.analysis.verdict import verdict
from sweep.model.plan import Role, ServerCommand
from sweep.model.states import Failure
from sweep.report.chunks import read_gaps
from sweep.report.export import to_csv, to_json
from sweep.report.page import PHASE_COLUMNS, page
from sweep.report.telemetry import read_clocks
from sweep.report.text import visible
from sweep.report.write import write_report

HOSTILE = "<script>alert(1)</script>\"'& \x1b[31mred\x1b[0m \x00\x07 {{ 7*7 }} $\\frac{ \u202egnp"
SECRETS = ("s3cret-key", "hf_abcdef")


class Page(HTMLParser):
    """Collects the elements of a page and what they would load."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.loads: list[str] = []
        self.handlers: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        self.tags.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "xlink:href") and value and not value.startswith("#"):
                self.loads.append(value)
            if name.startswith("on"):
                self.handlers.append(name)


def hostile_builder() -> RecordBuilder:
    """A sweep whose labels, prompts, arguments, logs and messages are attacks."""
    code = workload(f"code {HOSTILE}", prompts=3)
    prompts = tuple(dataclasses.replace(prompt, text=HOSTILE) for prompt in code.prompts)
    code = dataclasses.replace(code, prompts=prompts)
    command = ServerCommand(
        ("serve", "--api-key", SECRETS[0], "--x", HOSTILE),
        2,
        {"HF_TOKEN": SECRETS[1], "A": HOSTILE},
    )
    builder = RecordBuilder(experiment(code, name=HOSTILE))
    builder.launch(BASELINE, TrialPlan(code), role=Role.BASELINE_FIRST, command=command)
    builder.launch(steps(2, variant=HOSTILE), TrialPlan(code), command=command)
    builder.failed_launch(
        steps(3, args={'x"': HOSTILE}),
        code,
        failure=Failure("oom", f"{HOSTILE} {SECRETS[0]}"),
        log_tail=[f"api_key={SECRETS[0]} {SECRETS[1]}", HOSTILE, "</pre></details></html>"],
        command=command,
    )
    builder.skip(steps(9), HOSTILE)
    return builder


def plain_builder() -> RecordBuilder:
    """A small sweep with a clear lead."""
    code = workload()
    builder = RecordBuilder(experiment(code))
    builder.launch(BASELINE, TrialPlan(code), role=Role.BASELINE_FIRST)
    builder.launch(
        steps(2), TrialPlan(code, time_s=lambda w, _: 0.5 + 0.001 * w, cycles=40, accepted=60)
    )
    return builder


def page_of(builder: RecordBuilder, driver_note: str | None = None) -> str:
    """The report of what a builder collected, without its figures."""
    record = builder.record(driver_note)
    frame = make_frame(record, count)
    return page(record, frame, verdict(frame, record.experiment), [])


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a hostile sweep, written once."""
    directory = tmp_path_factory.mktemp("hostile")
    write_report(hostile_builder().record(driver_note=HOSTILE), directory, count)
    return directory


def test_all_files_are_written_and_none_is_partial(hostile: Path) -> None:
    """The report, the table and every plot in both formats."""
    names = {str(path.relative_to(hostile)) for path in hostile.rglob("*") if path.is_file()}
    plots = {
        f"plots/{name}.{kind}"
        for name in ("throughput", "accept_length", "timeline")
        for kind in ("png", "svg")
    }
    assert names == {"report.html", "summary.csv", *plots}


def test_the_verdict_comes_first(tmp_path: Path) -> None:
    """The verdict is returned and stands before every figure; writing again replaces."""
    found = write_report(plain_builder().record(), tmp_path, count)
    first = (tmp_path / "report.html").read_bytes()
    assert found.places[0].is_clear
    html = first.decode()
    assert found.summary in html
    assert html.index(found.summary) < html.index("<svg")
    write_report(plain_builder().record(), tmp_path, count)
    assert (tmp_path / "report.html").read_bytes() == first


def test_figures_of_grids_variants_and_concurrency_are_in_the_report(tmp_path: Path) -> None:
    """Where there is something to show; the page holds each drawing."""
    code = workload(prompts=2, concurrency=(1, 4))
    builder = RecordBuilder(experiment(code))
    places = [TrialPlan(code, number) for number in code.concurrency]
    for variant in ("default", "ring"):
        base = dataclasses.replace(BASELINE, variant=variant)
        builder.launch(base, *places, arm=variant)
        for number, topk in ((1, 1), (1, 2), (2, 1), (2, 2)):
            own = steps(number, topk=topk, variant=variant)
            builder.launch(own, *places, arm=variant)
    write_report(builder.record(), tmp_path, count)
    html = (tmp_path / "report.html").read_text()
    for name in ("variants", "heat_map", "concurrency"):
        assert (tmp_path / "plots" / f"{name}.png").exists(), name
        assert f'id="{name}"' in html, name


def test_the_page_loads_nothing(hostile: Path) -> None:
    """One self-contained file: no address is fetched, and one script, ours, runs."""
    found = Page()
    found.feed((hostile / "report.html").read_text())
    assert found.loads == ["data:,"]
    assert found.tags.count("script") == 1
    assert found.tags.count("svg") == 3
    assert found.handlers == []


def test_hostile_text_and_secrets_do_not_get_through(hostile: Path) -> None:
    """Markup is escaped, terminal escapes are gone, secrets are redacted everywhere."""
    html = (hostile / "report.html").read_text()
    table = (hostile / "summary.csv").read_text()
    assert "&lt;script&gt;alert(1)" in html
    assert "<script>alert" not in html
    for text in (html, table):
        for bad in ("\x1b", "\x00", "\x07", "\u202e", *SECRETS):
            assert bad not in text, repr(bad)
    assert "{{ 7*7 }}" in html
    assert "[redacted]" in html


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain äöü ✕", "plain äöü ✕"),
        ("a\tb\nc", "a\tb\nc"),
        ("50%\r100%\r\n", "50%\n100%\n"),
        ("\x1b[1;31mred\x1b[0m \x1b]0;title\x07end", "red end"),
        ("\x00\x7f\x9b1m", "␀␡�1m"),
        ("\ud800", "�"),
    ],
)
def test_visible(text: str, shown: str) -> None:
    """Escapes go, other control characters are shown, ordinary text stays."""
    assert visible(text) == shown


def test_failures_are_told_with_their_log() -> None:
    """A failed launch shows class, message, log tail and command."""
    code = workload()
    builder = RecordBuilder(experiment(code))
    builder.failed_launch(
        steps(8),
        code,
        failure=Failure("oom", "CUDA out of memory"),
        log_tail=["loading", "torch.OutOfMemoryError"],
        command=ServerCommand(("llama-server", "--draft", "8"), 1),
    )
    html = page_of(builder, driver_note="the baseline failed")
    for text in (
        "oom: CUDA out of memory",
        "torch.OutOfMemoryError",
        "--draft\n8",
        "The sweep ended early: the baseline failed",
        "1 trial failed with oom: 8 steps",
    ):
        assert text in html, text


def test_an_empty_sweep_has_a_report() -> None:
    """Nothing planned is said, with every column's definition."""
    html = page_of(RecordBuilder(experiment()))
    assert "The plan is empty." in html
    assert "accept length" in html.lower()


def test_chunk_files_give_the_latency_between_outputs(tmp_path: Path) -> None:
    """Gaps are read from fetched files; a torn last line is left out."""
    launch = tmp_path / "launch"
    launch.mkdir()
    lines = [json.dumps({"v": 1, "n": n, "chunk_s": [0.1, 0.12, 0.16], "text": ""}) for n in (0, 1)]
    (launch / "chunks.jsonl").write_text("\n".join([*lines, '{"v":1,"n":2,"chu']))
    code = workload()
    builder = RecordBuilder(experiment(code))
    builder.launch(steps(1), TrialPlan(code), directory=str(launch))
    builder.launch(steps(2), TrialPlan(code), directory=str(tmp_path / "gone"))
    frame = make_frame(builder.record(), count, read_gaps(builder.record()))
    assert frame["itl_s_p50"][0] == pytest.approx(0.03)
    assert frame["itl_s_p99"][0] == pytest.approx(0.04)
    assert frame["itl_s_p50"].isna().tolist() == [False, True]


def test_a_gpu_that_was_held_back_flags_its_row(tmp_path: Path) -> None:
    """By the samples that were fetched; the row keeps its figures."""
    code = workload()
    builder = RecordBuilder(experiment(code))
    for count_of_steps, clock_mhz in ((1, 1980.0), (2, 1584.0)):
        launch = tmp_path / str(count_of_steps)
        launch.mkdir()
        start_s = builder.now_s
        builder.launch(steps(count_of_steps), TrialPlan(code), directory=str(launch))
        samples = [
            {"v": 1, "t_s": start_s + second, "uuid": "GPU-0", "sm_clock_mhz": clock_mhz,
             "throttle_reasons": "0x0000000000000040"}
            for second in range(60)
        ]  # fmt: skip
        lines = [*map(json.dumps, samples), '{"foreign_pids":[]}', '{"v":1,"t_s":1']
        (launch / "telemetry.jsonl").write_text("\n".join(lines))
    record = builder.record()
    frame = make_frame(record, count, clocks=read_clocks(record))
    assert frame["flags"].tolist() == ["", "throttled"]
    assert frame["output_tok_s"].notna().all()
    judged = verdict(frame, record.experiment)
    assert [text for text in judged.warnings if text.startswith("throttled: 2 steps")]


def test_csv_and_json_hold_the_same_rows() -> None:
    """Missing is empty in one and null in the other; flags are a list in JSON."""
    code = workload(prompts=1)
    builder = RecordBuilder(experiment(code))
    builder.launch(steps(1), TrialPlan(code))
    builder.failed_launch(steps(2), code, failure=Failure("oom", 'a,b\n"c"'))
    frame = make_frame(builder.record(), count)
    rows = json.loads(to_json(frame))
    lines = list(csv.DictReader(io.StringIO(to_csv(frame))))
    assert list(rows[0]) == list(lines[0]) == list(frame.columns)
    assert rows[0]["flags"] == ["one_prompt"]
    assert rows[1]["output_tok_s"] is None
    assert lines[1]["output_tok_s"] == ""
    assert lines[1]["reason"] == 'a,b\n"c"'
    assert float(lines[0]["output_tok_s"]) == rows[0]["output_tok_s"]
    assert json.loads(to_json(frame.iloc[:0])) == []


def test_phases_are_told_where_there_are_any(tmp_path: Path) -> None:
    """Findings before the figures, phases among the main columns; without cycles, neither."""
    phases_s = {"draft_s": 0.001, "verify_s": 0.019, "extend_s": 0.0005, "other_s": 0.0}
    record, cycles = timed_sweep({2: phases_s})
    frame = make_frame(record, count, None, cycles)
    html = page(record, frame, verdict(frame, record.experiment), [])
    assert "<li>Verify takes 93 % of the cycle.</li>" in html
    heading = r'<th class="number"[^>]*><button type="button">{}</button>'
    for name in PHASE_COLUMNS:
        assert re.search(heading.format(name), html), name
    plain = page_of(plain_builder())
    assert "Inside a cycle" not in plain
    assert not re.search(heading.format("verify_ms"), plain)
    write_report(record, tmp_path, count)
    assert not (tmp_path / "plots" / "phases.png").exists()


def test_predictions_over_draft_steps_have_a_table_of_their_own() -> None:
    """For each line, with what is foreign escaped; without any line, no heading."""
    record = plain_builder().record()
    shares = (0.8, 0.6, 0.3)
    rows = [
        chain(number, verify_ms=20.0 + number, shares=shares, variant="<b>ring</b>")
        for number in (1, 2, 3)
    ]
    frame = table(rows)
    html = page(record, frame, verdict(frame, record.experiment), [])
    assert "<h2>Predictions over draft steps</h2>" in html
    assert (
        "<summary><strong>&lt;b&gt;ring&lt;/b&gt;, code, concurrency 1</strong></summary>" in html
    )
    assert "<li>Cost model of &lt;b&gt;ring&lt;/b&gt; (code, concurrency 1): the optimum is" in html
    assert "Predictions over draft steps" not in page_of(plain_builder())


def test_rows_and_launches_of_several_nodes_are_told_apart(tmp_path: Path) -> None:
    """The table gains its node column at once, and every launch says where it ran; with one node
    neither is in the way."""
    code = workload()
    pages = []
    for nodes in (("gpu-a", "gpu-b"), ("gpu-a",)):
        builder = RecordBuilder(experiment(code))
        for node in nodes:
            builder.launch(BASELINE, TrialPlan(code), node=node)
        record = builder.record()
        frame = make_frame(record, count, read_gaps(record))
        pages.append(page(record, frame, verdict(frame, record.experiment), []))
    two, one = pages
    assert "<strong>gpu-b: baseline</strong>" in two
    assert "<strong>baseline</strong>" in one
    shown = '<th class="" title="node: '
    assert (shown in two, shown in one) == (True, False)
