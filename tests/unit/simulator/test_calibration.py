"""The packaged calibration against the figures that it stands for."""

from __future__ import annotations

import pytest

from sweep.simulator.calibration import Effect, Speculation, parse, read_table
from sweep.simulator.main import load_calibration

REFERENCE = load_calibration("reference")
TOKENS, PROMPT = 1000, 37


def chain(steps: int) -> Speculation:
    """A chain of draft steps."""
    return Speculation(steps, 1, steps + 1)


def output_tok_s(speculation: Speculation | None, **environment: str) -> float:
    """Expected throughput of one request of 1,000 tokens, its prompt included [tok/s]."""
    active = tuple(effect for effect in REFERENCE.effects if effect.applies(environment, {}))
    cycle_s = REFERENCE.phases(speculation, 1, active).total_ms / 1000
    length = 1.0 if speculation is None else REFERENCE.accept_length(speculation)
    return TOKENS / (REFERENCE.prefill_s(PROMPT) + (TOKENS - 1) / length * cycle_s)


def test_throughputs_of_the_reference_follow_from_phases_and_acceptance() -> None:
    """Baseline, 5 steps, 10 steps, and 2 steps with cheaper verification, within half a percent."""
    assert output_tok_s(None) == pytest.approx(88.8, rel=0.005)
    assert output_tok_s(chain(5)) == pytest.approx(71.0, rel=0.005)
    assert output_tok_s(chain(10)) == pytest.approx(60.0, rel=0.005)
    assert output_tok_s(chain(2), NCCL_PROTO="LL") == pytest.approx(94.0, rel=0.005)


def test_verification_is_nearly_all_of_a_cycle() -> None:
    """95 to 96 % of it, as measured, wherever the reference has a figure."""
    effects = REFERENCE.effects
    for speculation, active in ((chain(5), ()), (chain(10), ()), (chain(2), effects)):
        phases = REFERENCE.phases(speculation, 1, active)
        assert 0.95 <= phases.verify_ms / phases.total_ms <= 0.96
    assert REFERENCE.phases(chain(5), 1).total_ms == pytest.approx(29.9, abs=0.01)
    assert REFERENCE.phases(chain(5), 1).draft_ms == pytest.approx(0.87)
    ratio = (
        REFERENCE.phases(chain(2), 1, effects).verify_ms / REFERENCE.phases(chain(2), 1).verify_ms
    )
    assert ratio == pytest.approx(0.73)


def test_two_steps_with_the_tuned_set_win() -> None:
    """No other chain, with either set, and no tree of the reference experiment, is faster."""
    rates = {
        (steps, value): output_tok_s(chain(steps), NCCL_PROTO=value)
        for steps in range(1, 11)
        for value in ("", "LL")
    }
    assert max(rates, key=lambda key: rates[key]) == (2, "LL")
    trees = [Speculation(n, 2, min(64, 3 + (n - 1) * 4)) for n in range(1, 11)]
    best = rates[2, "LL"]
    assert all(output_tok_s(tree, NCCL_PROTO="LL") < 0.98 * best for tree in trees)


def test_tables_are_interpolated_and_go_on() -> None:
    """Between entries a line, below the first its value, above the last the last line."""
    table = {"2": 10.0, "4": 20.0, "8": 24.0}
    read = [read_table(table, tokens) for tokens in (1, 2, 3, 6, 8, 12)]
    assert read == [10.0, 10.0, 15.0, 22.0, 24.0, 28.0]
    assert read_table({"1": 7.0}, 99) == 7.0


def test_acceptance_by_position() -> None:
    """Conditional acceptances multiply; the last given holds for all deeper positions."""
    assert REFERENCE.conditional(chain(4)) == pytest.approx([0.67, 0.5542, 0.1848, 0.1848])
    first, second = 0.67, 0.67 * 0.5542
    assert REFERENCE.accept_length(chain(2)) == pytest.approx(1 + first + second)
    # A second branch on each level finds 30 % of what the first one misses.
    tree = REFERENCE.conditional(Speculation(2, 2, 7))
    assert tree == pytest.approx([1 - 0.33 * 0.7, 1 - 0.4458 * 0.7])
    assert REFERENCE.conditional(Speculation(5, 1, 1)) == []


def test_more_requests_make_each_cycle_dearer() -> None:
    """By the calibration's share for each further one."""
    assert REFERENCE.phases(None, 5).total_ms == pytest.approx(REFERENCE.step_ms * 1.2)
    alone, eight = (REFERENCE.phases(chain(5), n).verify_ms for n in (1, 8))
    assert eight / alone == pytest.approx(1.56)


def test_effects_need_their_exact_value() -> None:
    """Of a variable or of an argument."""
    variable = Effect("LL", variable="NCCL_PROTO")
    assert variable.applies({"NCCL_PROTO": "LL"}, {})
    assert not variable.applies({"NCCL_PROTO": "LL128"}, {"NCCL_PROTO": "LL"})
    assert Effect("decode", argument="mode").applies({}, {"mode": "decode"})


@pytest.mark.parametrize("text", ["[]", "{}", '{"format": 2}', "no"])
def test_another_file_is_refused(text: str) -> None:
    """A file that is no calibration of this format is an error, not a server of zeros."""
    with pytest.raises(ValueError, match=r"calibration|Expecting"):
        parse(text)
