"""Signs and milestones against recorded logs of the server, and lines of its other versions."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from sweep.agent.wire import Outcome, ServerIdent
from sweep.engines.sglang import SGLang, log

PAYLOADS = Path(__file__).parent / "payloads"


def seen(text: str) -> list[str]:
    """Names of the signs that the agent would report for a log."""
    lines = text.splitlines()
    patterns = [sign.pattern for sign in log.SIGNS]
    return [p.name for p in patterns if any(re.search(p.regex, line) for line in lines)]


def exited(text: str, **fields: Any) -> Outcome:
    """What the agent records of a server that ended while loading, with this log."""
    values: dict[str, Any] = {
        "end": "server_exit", "phase": "load", "detail": None,
        "server": ServerIdent(1, 2, 3, -9), "patterns": seen(text),
        "log_tail": text.splitlines()[-40:], "clean": True, "left": [], "phases_s": {}, "files": {},
    }  # fmt: skip
    return Outcome(**(values | fields))


@pytest.mark.parametrize(
    ("name", "failure_class", "words"),
    [
        ("unknown-flag", "bad_args", "unrecognized arguments: --speculative-foo"),
        ("bad-choice", "bad_args", "argument --kv-cache-dtype: invalid choice: 'fp7'"),
        ("unknown-algorithm", "bad_args", "Unknown speculative algorithm name: EAGEL"),
        ("missing-model", "missing_file", "'/nowhere/model'"),
        ("missing-draft", "missing_file", "'/nowhere/draft'"),
        ("wrong-draft", "bad_args", "not made for this target"),
        ("other-layers", "bad_args", "not made for this target"),
        ("other-layers", "bad_args", "weight (torch.Size([192, 576])) into parameter"),
        ("port-in-use", "port_in_use", "another process has the port"),
        ("no-memory", "oom", "Raise --mem-fraction-static above 0.004"),
    ],
)
def test_recorded_failures(name: str, failure_class: str, words: str) -> None:
    """Every failure that was provoked on the real server gets its class and the log's own words."""
    text = (PAYLOADS / f"failure-{name}.log").read_text()
    failure = SGLang().classify_launch(exited(text))
    assert failure is not None
    assert failure.failure_class == failure_class
    assert words in failure.message


OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"


@pytest.mark.parametrize(
    ("line", "failure_class"),
    [
        (OOM, "oom"),
        ("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.", "oom"),
        ("Exception: Capture cuda graph failed: CUDA error", "graph_capture"),
        ("RuntimeError: Failed to build JIT module sgl_kernel_jit_ngram_corpus", "not_compiled"),
        ("RuntimeError: Ninja is required to load C++ extensions", "not_compiled"),
        ("torch.distributed.DistBackendError: NCCL error in: x.cpp:1, unhandled", "nccl_hang"),
        ("[rank3] Watchdog caught collective operation timeout: WorkNCCL(", "nccl_hang"),
        ("RuntimeError: selected index k out of range", "bad_args"),
        ("ValueError: trtllm_mha backend only supports topk = 1 for speculative", "bad_args"),
        ("RuntimeError: mat1 and mat2 shapes cannot be multiplied (1x512 and 768x256)", "bad_args"),
        ("server: error: ambiguous option: --cuda-graph-max-bs could match", "bad_args"),
        ("CUDA error: an illegal memory access was encountered", "server_died"),
        ("OSError: /m does not appear to have a file named config.json.", "missing_file"),
    ],
)
def test_lines_of_failures_on_gpus(line: str, failure_class: str) -> None:
    """As they stand in the sources; none of them was provoked here."""
    text = f"[2026-11-29 12:00:00 TP3] Scheduler hit an exception: Traceback\n{line}\n"
    failure = SGLang().classify_launch(exited(text))
    assert failure is not None
    assert failure.failure_class == failure_class


def test_an_unknown_end_is_told_in_the_servers_words() -> None:
    """The last error of a traceback, whatever it is."""
    failure = SGLang().classify_launch(exited("Traceback\nRuntimeError: no kernel image\nbye\n"))
    assert failure is not None
    assert failure.failure_class == "unknown"
    assert failure.message.endswith("its log: RuntimeError: no kernel image")


def test_a_bad_value_while_serving_is_no_bad_argument() -> None:
    """The server took its arguments; it died of something else."""
    text = "[2026-11-29 12:00:00] Scheduler hit an exception\nValueError: negative dimension\n"
    failure = SGLang().classify_launch(exited(text, phase="measure"))
    assert failure is not None
    assert failure.failure_class == "server_died"


@pytest.mark.parametrize("name", ["eagle3", "baseline"])
def test_a_good_launch_may_log_tracebacks(name: str) -> None:
    """0.5.23 prints one for its own housekeeping before it listens."""
    text = (PAYLOADS / f"load-{name}.log").read_text()
    assert "Traceback" in text
    assert seen(text) == []
    done = exited(f"{text}{OOM}", end="done")
    assert "out_of_memory" in done.patterns
    assert SGLang().classify_launch(done) is None


@pytest.mark.parametrize(("name", "weights"), [("eagle3", 2), ("baseline", 1)])
def test_milestones_in_their_order(name: str, weights: int) -> None:
    """Of a load on a CPU, which has no graphs; the drafter is loaded after the target."""
    lines = (PAYLOADS / f"load-{name}.log").read_text().splitlines()
    first = {
        pattern.name: number
        for pattern in log.MILESTONES
        for number, line in reversed(list(enumerate(lines)))
        if re.search(pattern.regex, line)
    }
    assert sorted(first, key=lambda milestone: first[milestone]) == [
        "arguments", "distributed", "weights", "shards", "weights_loaded", "cache", "ready",
    ]  # fmt: skip
    assert sum("Load weight end" in line for line in lines) == weights


@pytest.mark.parametrize(
    ("line", "milestone"),
    [
        ("[TP0] Init torch distributed ends. mem usage=0.71 GB", "distributed"),
        ("Loading safetensors checkpoint shards:  12% Completed | 1/8", "shards"),
        ("Capture cuda graph begin. This can take up to several minutes.", "graphs"),
        ("Capture draft decode CUDA graph begin. backend=full, bs=[1, 2, 4, 8]", "graphs"),
        ("Capture target verify CUDA graph end. Time elapsed: 9.1 s.", "graphs_captured"),
        ("[2026-01-01 00:00:00 DP0 TP0] Decode batch [80], cuda graph: False, ", "without_graph"),
    ],
)
def test_milestones_of_gpus_and_other_versions(line: str, milestone: str) -> None:
    """Their words changed between versions."""
    found = [p.name for p in log.MILESTONES if re.search(p.regex, line)]
    assert found == [milestone]


@pytest.mark.parametrize("line", (PAYLOADS / "decode-lines.log").read_text().splitlines())
def test_batches_without_a_graph_in_every_shape(line: str) -> None:
    """Those alone; what else a line holds differs by version, and nothing hangs on it."""
    pattern = next(p for p in log.MILESTONES if p.name == "without_graph")
    assert not re.search(pattern.regex, line)
    without = line.replace("cuda graph: True", "cuda graph: False")
    assert without != line
    assert re.search(pattern.regex, without)


def test_a_cpu_has_no_graphs_to_miss() -> None:
    """Its decode lines say `cpu graph: False`, which is no finding."""
    text = (PAYLOADS / "load-eagle3.log").read_text()
    assert "cpu graph: False" in text
    pattern = next(p for p in log.MILESTONES if p.name == "without_graph")
    assert re.search(pattern.regex, text) is None


def test_names_of_patterns_are_unique() -> None:
    """The agent tells milestones from reasons to fail by name."""
    names = [p.name for p in log.MILESTONES] + [sign.name for sign in log.SIGNS]
    assert len(set(names)) == len(names)
