"""What predictions over draft steps say, in sentences: optimum, its error, and accept lengths."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from sweep.analysis.prediction import Line, Step
from sweep.analysis.wording import counted, number, ratio

STEP = "step"


def prediction_findings(lines: Sequence[Line]) -> tuple[str, ...]:
    """Say for each place what the cost model takes for the best step count of all lines there, and
    of all lines how well long chains predict short ones. Nothing is said where a fit is refused."""
    places: dict[tuple[str, str, int], list[Line]] = {}
    for line in lines:
        if line.optimum is not None:
            places.setdefault(line.place, []).append(line)
    sentences = [optimum_sentence(max(own, key=_predicted)) for own in places.values()]
    chain = _chain_sentence(lines)
    return tuple(sentences if chain is None else [*sentences, chain])


def optimum_sentence(line: Line) -> str:
    """Say what the model takes for the best step count of a line, and how far it can be believed.

    Raises ValueError when the line has no cost model or no acceptance by position.
    """
    best = line.optimum
    if best is None or best.decode_tok_s is None:
        raise ValueError(f"nothing is predicted of {line.name}")
    where = f"{line.workload}, concurrency {line.concurrency}"
    text = (
        f"Cost model of {line.name} ({where}): the optimum is {counted(best.steps, STEP)}, "
        f"predicted {number(best.decode_tok_s)} tok/s of decoding in one stream"
    )
    if line.baseline_tok_s:
        text += f", {ratio(best.decode_tok_s / line.baseline_tok_s)} its baseline"
    text += f"; {_measured(line, best)}"
    if best.steps == line.longest:
        text += " No longer chain was measured: one may be faster."
    return text


def _predicted(line: Line) -> float:
    best = line.optimum
    return (best.decode_tok_s if best else None) or 0.0


def _measured(line: Line, best: Step) -> str:
    measured = best.measured
    if measured.decode_tok_s is not None:
        text = f"measured {number(measured.decode_tok_s)}"
        if measured.decode_error is not None:
            text += f" (predicted without its own times: off by {measured.decode_error:+z.1%})"
        return f"{text}.{_fastest(line, best)}"
    return f"it was not measured.{_errors(line)}{_fastest(line, best)}"


def _errors(line: Line) -> str:
    found = [
        (step.measured.decode_error, step.steps)
        for step in line.steps
        if step.measured.decode_error is not None
    ]
    if not found:
        return ""
    error, steps = max(found, key=lambda pair: abs(pair[0]))
    middle = median(abs(error) for error, _ in found)
    return (
        f" What was measured is predicted without its own times within {middle:.1%} in the median, "
        f"at worst off by {error:+z.1%} ({counted(steps, STEP)})."
    )


def _fastest(line: Line, best: Step) -> str:
    rates = [
        (step.measured.decode_tok_s, step.steps)
        for step in line.steps
        if step.measured.decode_tok_s is not None
    ]
    if not rates:
        return ""
    rate, steps = max(rates)
    if steps == best.steps:
        return ""
    return f" The fastest that was measured is {counted(steps, STEP)} with {number(rate)}."


def _chain_sentence(lines: Sequence[Line]) -> str | None:
    found = [
        (error, step.steps, line)
        for line in lines
        for step in line.steps
        if step.steps != line.longest and (error := step.accept_length_error) is not None
    ]
    if not found:
        return None
    error, steps, line = max(found, key=lambda item: abs(item[0]))
    middle = median(abs(error) for error, _, _ in found)
    return (
        f"The acceptance of the longest chain predicts the accept length of "
        f"{counted(len(found), 'shorter one')} (1 + p_1 + … + p_s) within {middle:.1%} in the "
        f"median, at worst off by {error:+z.1%} ({counted(steps, STEP)}, {line.name}, "
        f"{line.workload}, concurrency {line.concurrency})."
    )
