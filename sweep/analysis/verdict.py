"""What the table says: who leads at each place, how sure that is, and what to beware of.

A configuration leads when its objective is largest among rows that ended ok on one node, at one
workload and concurrency. Another one cannot be told apart from it when the 95 % interval of the
ratio of their throughputs, prompts paired, reaches 1; for other metrics, and when constraints
exclude the fastest, when their own intervals overlap. No winner is named: launches differ, and
every configuration was measured in one launch. Launches that confirm a scan are not ranked: they
stand beside what the scan says of the same configuration.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from sweep.analysis.cautions import find_warnings
from sweep.analysis.confirmation import confirmed
from sweep.analysis.frame import POOLED
from sweep.analysis.ranking import ended_ok, objective_place, rankable
from sweep.analysis.wording import bounds, counted, known, listed, number, ratio
from sweep.model.experiment import Constraint, Experiment, Objective
from sweep.model.plan import Role

PLACE = ["node", "workload", "concurrency"]


@dataclass(frozen=True)
class Standing:
    """A configuration at a place; `value` is the objective's metric, None bounds are unknown."""

    trial_id: str
    label: str
    is_baseline: bool
    value: float
    speedup: float | None
    speedup_lo: float | None
    speedup_hi: float | None


@dataclass(frozen=True)
class PlaceVerdict:
    """Who leads on one node at one workload and concurrency.

    `tied` are those that cannot be told apart from `leading`; `leading` None: nothing could be
    ranked, and `finding` says why in a few words.
    """

    node: str
    workload: str
    concurrency: int
    is_objective: bool
    leading: Standing | None
    tied: tuple[Standing, ...]
    finding: str
    sentence: str

    @property
    def is_clear(self) -> bool:
        """Whether the leading configuration is apart from every other one."""
        return self.leading is not None and not self.tied


@dataclass(frozen=True)
class Verdict:
    """Two sentences, the standing at each place (the objective's first), and warnings."""

    summary: str
    places: tuple[PlaceVerdict, ...]
    warnings: tuple[str, ...]


def verdict(frame: pd.DataFrame, experiment: Experiment) -> Verdict:
    """Judge the table of an experiment; works with any rows, even none."""
    together = launches_together(frame)
    ranking = ranking_rows(together)
    ranked = [_judge(rows, together, experiment) for _, rows in ranking.groupby(PLACE, sort=False)]
    places = tuple(sorted(ranked, key=lambda place: not place.is_objective))
    summary = _summary(places, frame)
    if experiment.engine.kind == "simulator":
        summary = f"SIMULATED, so nothing here says anything of real hardware. {summary}"
    return Verdict(summary, places, find_warnings(frame))


def ranking_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that are compared with one another: what was measured without the probe is
    compared with the same configuration with it alone, and what confirms a scan with the scan."""
    return frame[~frame["role"].isin([Role.UNPROFILED.value, Role.CONFIRM.value])]


def launches_together(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the table with what all launches of a configuration measured in each of their rows."""
    joined = frame.copy()
    for trial_id, cells in frame.attrs.get(POOLED, {}).items():
        for name, value in cells.items():
            at = joined["trial_id"] == trial_id
            joined.loc[at, name] = pd.NA if value is None else value
    return joined


@dataclass(frozen=True)
class _Place:
    node: str
    workload: str
    concurrency: int

    def __str__(self) -> str:
        return f"{self.workload} at concurrency {self.concurrency}"


def _judge(rows: pd.DataFrame, every: pd.DataFrame, experiment: Experiment) -> PlaceVerdict:
    first_row: Any = rows.iloc[0]
    place = _Place(
        str(first_row["node"]), str(first_row["workload"]), int(first_row["concurrency"])
    )
    objective = experiment.objective
    fit = rankable(rows, objective.metric, objective.constraints)
    leading, tied = _rank(fit, objective.metric)
    finding, sentence = _unranked(place, rows, fit, objective)
    if finding:
        leading, tied = None, ()
    elif leading is not None:
        finding = _finding(leading, tied)
        sentence = _sentence(place, rows, fit, leading, tied, metric=objective.metric)
        sentence += confirmed(every, leading.trial_id, objective.metric)
    return PlaceVerdict(
        node=place.node,
        workload=place.workload,
        concurrency=place.concurrency,
        is_objective=(place.workload, place.concurrency) == objective_place(experiment),
        leading=leading,
        tied=tied,
        finding=finding,
        sentence=sentence,
    )


def _unranked(
    place: _Place, rows: pd.DataFrame, fit: pd.DataFrame, objective: Objective
) -> tuple[str, str]:
    """Why nothing can be ranked, in a few words and as a sentence; both empty: it can be."""
    ok = ended_ok(rows)
    if ok.empty:
        states = rows["state"].value_counts(sort=False).items()
        text = f"nothing to rank ({listed([f'{n} {state}' for state, n in states])})"
        return "nothing to rank", f"{place}: {text}."
    if fit.empty:
        limits = listed([_limit(item) for item in objective.constraints])
        has_value = not rankable(rows, objective.metric, ()).empty
        text = f"none meets {limits}" if has_value else f"none has a value of {objective.metric}"
        return text, f"{place}: {counted(len(ok), 'trial')} ended ok and {text}."
    if bool(ok["is_baseline"].all()):
        names = list(dict.fromkeys(ok["configuration"]))
        only = "only the baseline ended ok" if len(names) == 1 else "only baselines ended ok"
        rows_of = fit.drop_duplicates(["arm", "configuration_id"]).to_dict("records")
        measured = listed(
            [_measured(_standing(row, objective.metric), objective.metric) for row in rows_of]
        )
        return only, (f"{place}: {only}, with {measured}; nothing could be compared.")
    return "", ""


def _limit(constraint: Constraint) -> str:
    limits = ((constraint.at_least, "≥"), (constraint.at_most, "≤"))
    return f"{constraint.metric} " + " and ".join(
        f"{sign} {limit:g}" for limit, sign in limits if limit is not None
    )


def _finding(leading: Standing, tied: Sequence[Standing]) -> str:
    gain = ""
    if leading.speedup is not None and not leading.is_baseline:
        gain = f" at {ratio(leading.speedup)}"
    if tied:
        return f"no clear winner, {leading.label} ahead{gain}"
    return f"{leading.label} leads{gain}"


def _rank(fit: pd.DataFrame, metric: str) -> tuple[Standing | None, tuple[Standing, ...]]:
    # The first and the last baseline are one configuration, and their rows hold the same values.
    ordered = (
        fit.sort_values(metric, ascending=False, kind="stable")
        .drop_duplicates(["arm", "configuration_id"])
        .to_dict("records")
    )
    if not ordered:
        return None, ()
    if metric == "output_tok_s":
        ordered.sort(key=lambda row: -row["vs_best"])
    best, others = ordered[0], ordered[1:]
    tied = [row for row in others if not _is_above(best, row, metric)]
    return _standing(best, metric), tuple(_standing(row, metric) for row in tied)


def _is_above(best: Any, other: Any, metric: str) -> bool:
    if metric == "output_tok_s" and best["vs_best"] == 1.0:
        return known(other["vs_best_hi"]) and bool(other["vs_best_hi"] < 1.0)
    lo, hi = best.get(f"{metric}_lo"), other.get(f"{metric}_hi")
    return known(lo) and known(hi) and bool(lo > hi)


def _standing(row: Any, metric: str) -> Standing:
    def cell(name: str) -> float | None:
        return float(row[name]) if known(row[name]) else None

    return Standing(
        trial_id=str(row["trial_id"]),
        label=str(row["configuration"]),
        is_baseline=bool(row["is_baseline"]),
        value=float(row[metric]),
        speedup=cell("speedup"),
        speedup_lo=cell("speedup_lo"),
        speedup_hi=cell("speedup_hi"),
    )


def _measured(standing: Standing, metric: str) -> str:
    if metric == "output_tok_s":
        text = f"{number(standing.value)} tok/s"
    else:
        text = f"{metric} {number(standing.value)}"
    if standing.speedup is not None and not standing.is_baseline:
        interval = bounds(standing.speedup_lo, standing.speedup_hi)
        text += f", {ratio(standing.speedup)}{interval} its baseline"
    return text


def _sentence(
    place: _Place,
    rows: pd.DataFrame,
    fit: pd.DataFrame,
    leading: Standing,
    tied: Sequence[Standing],
    *,
    metric: str,
) -> str:
    measured = _measured(leading, metric)
    if tied:
        names = listed([standing.label for standing in tied])
        return (
            f"{place}: no clear winner. {leading.label} is ahead with {measured}, "
            f"but cannot be told apart from {names}."
        )
    if leading.is_baseline:
        others = fit[~fit["is_baseline"].astype(bool)]
        best = others.sort_values(metric, ascending=False).to_dict("records")[:1]
        next_best = [_standing(row, metric) for row in best]
        text = f"{place}: decoding without speculation leads with {measured}"
        for standing in next_best:
            text += f"; the best with speculation is {standing.label}"
            text += f" with {_measured(standing, metric)}"
        if not next_best:
            text += "; no configuration with speculation meets the constraints or has a value"
        return f"{text}."
    if len(ended_ok(rows).drop_duplicates(["arm", "configuration_id"])) == 1:
        return f"{place}: only {leading.label} ended ok, with {measured}."
    return f"{place}: {leading.label} leads with {measured}."


def _summary(places: Sequence[PlaceVerdict], frame: pd.DataFrame) -> str:
    if frame.empty:
        return "The plan is empty. Nothing was measured."
    asked = [place for place in places if place.is_objective] or list(places)
    several = len({place.node for place in places}) > 1
    first = " ".join(
        (f"{place.node}: " if several else "") + place.sentence for place in asked
    ) or _nothing_placed(frame)
    return f"{first} {_certainty(asked, frame)}"


def _nothing_placed(frame: pd.DataFrame) -> str:
    return f"Nothing to rank: {counted(len(frame), 'row')}, none of which belongs to a node."


def _certainty(places: Iterable[PlaceVerdict], frame: pd.DataFrame) -> str:
    asked = {(place.node, place.workload, place.concurrency) for place in places}
    at = [key in asked for key in zip(*(frame[name] for name in PLACE), strict=True)]
    at_places = ended_ok(frame[at])
    if at_places.empty:
        return "No trial of the objective ended ok; see the reasons below."
    baselines = at_places[at_places["is_baseline"].astype(bool)]
    same = ["node", "arm", "configuration_id", "workload", "concurrency"]
    twice = ["the baseline"] if bool(baselines.duplicated(same).any()) else []
    twice += ["the confirmed one"] if (at_places["role"] == Role.CONFIRM.value).any() else []
    but = f" but {listed(twice)}" if twice else ""
    text = f"Each configuration{but} was launched once, so the difference between launches is "
    text += "not known"
    workloads = {place.workload for place in places}
    flags = frame[frame["workload"].isin(workloads)]["flags"].str.split()
    if any("one_prompt" in row for row in flags):
        text += ", and with one prompt, so that between prompts neither"
    return f"{text}."
