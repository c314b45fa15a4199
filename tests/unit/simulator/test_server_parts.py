"""Arguments, faults, log lines, and what an answer counts."""

from __future__ import annotations

import pytest

from sweep.engines.sglang.log import MILESTONES
from sweep.simulator import faults, log
from sweep.simulator.calibration import Phases, Speculation
from sweep.simulator.counters import Counters
from sweep.simulator.main import load_calibration, read_arguments, speculation_of, version
from sweep.simulator.scheduler import Ask, Progress, Scheduler

PRINTED = """\
EAGLE3_PROF (100 cycles, 114 tok, no sync)
  Draft steps:        0.93 ms/cyc  (  3.4%)
  Target verify:     26.07 ms/cyc  ( 95.6%)
  Draft re-extend:    0.28 ms/cyc  (  1.0%)
  Other overhead:     0.00 ms/cyc  (  0.0%)
  TOTAL:             27.28 ms/cyc
  Accept len:      1.14
  Eff tok/s:       41.8
"""


def test_profile_block_is_printed_as_the_reference_prints_it() -> None:
    """Character by character."""
    assert log.profile_block(100, 114, Phases(0.93, 26.07, 0.28, 0.0)) == PRINTED


def test_arguments_of_any_name_are_taken() -> None:
    """Flags, values with a dash in front of a number, `=`, and underscores."""
    found = read_arguments(["--port", "1", "--trust_remote_code", "--a=b", "--delta", "-1"])
    assert found == {"port": "1", "trust-remote-code": "true", "a": "b", "delta": "-1"}


def test_a_chain_verifies_its_steps_and_the_root(capfd: pytest.CaptureFixture[str]) -> None:
    """SGLang sets draft tokens to steps + 1 for topk 1, and says so."""
    given = {"speculative-algorithm": "EAGLE3", "speculative-num-steps": "4"}
    assert speculation_of(given) == Speculation(4, 1, 5)
    assert speculation_of({**given, "speculative-num-draft-tokens": "9"}) == Speculation(4, 1, 5)
    assert "speculative_num_draft_tokens is adjusted" in capfd.readouterr().err
    assert speculation_of({}) is None


def test_faults_of_the_environment_lie_over_those_of_the_calibration() -> None:
    """An unknown name is an error, not a fault that never comes."""
    found = faults.parse({"error_every": 3, "exit_code": 7}, '{"error_every": 5}')
    assert (found.error_every, found.exit_code) == (5, 7)
    with pytest.raises(TypeError, match="eror_every"):
        faults.parse({}, '{"eror_every": 5}')
    with pytest.raises(ValueError, match="fail: one of"):
        faults.parse({"fail": "fire"}, None)


def test_a_load_says_what_the_engine_looks_for() -> None:
    """Every milestone comes, in order of time, and every failure has its step."""
    script = log.load_script(speculative=True)
    shares = [share for share, _, _ in script]
    assert shares == sorted(shares)
    assert {death.step for death in faults.FAILURES.values()} <= {step for _, step, _ in script}
    assert len(MILESTONES) == len({pattern.name for pattern in MILESTONES})


def answer(speculation: Speculation | None, tokens: int, chunk_tokens: int = 1) -> list[Progress]:
    """An answer of so many tokens with cycles a thousand times faster than the reference."""
    calibration = load_calibration("reference")
    table = {"1": 0.01}
    fast = {"draft_ms": {"fixed": 0.0, "per_step": 0.0}, "verify_ms": table, "extend_ms": 0.0}
    values = {**calibration.__dict__, **fast, "step_ms": 0.01, "other_ms": 0.0}
    counters = Counters(speculation, profile_every=None, lifetime_cycles=0)
    scheduler = Scheduler(
        type(calibration)(**values), speculation, (), counters,
        seed="1", max_running=2, chunk_tokens=chunk_tokens,
    )  # fmt: skip
    return list(scheduler.run(Ask("a prompt", tokens, 0.0)))


def test_counts_of_an_answer_agree_with_each_other() -> None:
    """Every cycle drafts all its tokens; its accepted ones and the bonus make the answer."""
    parts = answer(Speculation(3, 1, 4), 60)
    meta = parts[-1].meta
    cycles, correct = meta["spec_verify_ct"], meta["spec_num_correct_drafts"]
    assert meta["spec_num_proposed_drafts"] == 3 * cycles
    assert sum(meta["spec_correct_drafts_histogram"]) == cycles
    assert sum(k * n for k, n in enumerate(meta["spec_correct_drafts_histogram"])) == correct
    # The first token is prefill's, and the last cycle may yield more than was asked.
    assert 0 <= 1 + cycles + correct - 60 <= 3
    assert len(parts) == cycles + 1
    assert parts[0].tokens == 1
    assert parts[-1].tokens == meta["completion_tokens"] == 60
    assert parts[-1].text == "".join(part.piece for part in parts)


def test_baseline_yields_one_token_a_step_and_counts_no_speculation() -> None:
    """And its text is that of every other configuration."""
    parts = answer(None, 20)
    assert [part.tokens for part in parts] == list(range(1, 21))
    assert not [name for name in parts[-1].meta if name.startswith("spec_")]
    assert parts[-1].text == answer(Speculation(3, 1, 4), 20)[-1].text


def test_large_chunks_hold_back_tokens_but_none_is_lost() -> None:
    """Chunks are no tokens."""
    parts = answer(None, 20, chunk_tokens=6)
    assert [part.tokens for part in parts] == [1, 7, 13, 19, 20]


def test_lifetime_counters_start_where_they_are_told() -> None:
    """Accept length of the server's life is not that of a window."""
    counters = Counters(Speculation(1, 1, 2), profile_every=None, lifetime_cycles=1000)
    assert counters.accept_length == pytest.approx(3.9)
    counters.cycle(Phases(1, 1, 1, 1), 1, 10)
    assert counters.accept_length == pytest.approx(3901 / 1001)
    assert 'sglang:spec_verify_calls_total{model_name="m"} 1001.0' in counters.metrics("m")


def test_version_names_the_sources() -> None:
    """A hash: another simulator gives other results."""
    assert version() == version()
    assert len(version().split()[1]) == 12
