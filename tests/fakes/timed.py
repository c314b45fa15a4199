"""A sweep whose engine timed its cycles: baseline, then chains between which only costs differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fakes.cycles import cycles_of
from fakes.records import BASELINE, RecordBuilder, TrialPlan, experiment, steps, workload

from sweep.analysis.cycles import CyclesOf
from sweep.model.plan import ServerCommand
from sweep.model.record import SweepRecord

PROFILED = ServerCommand(("serve", "--port", "0"), 2, {"EAGLE3_PROFILE": "1"})


def timed_sweep(
    cycles_s: Mapping[int, Mapping[str, float]],
    accepted: int = 60,
    variants: Sequence[str] = ("default",),
) -> tuple[SweepRecord, CyclesOf]:
    """A baseline at 100 tokens/s, and for each number of steps 40 cycles of the given phases [s]
    for each answer of 101 tokens, in every variant."""
    code = workload()
    builder = RecordBuilder(experiment(code))
    builder.launch(BASELINE, TrialPlan(code), command=PROFILED)
    phases_s = []
    for variant in variants:
        for number, parts in cycles_s.items():
            decode_s = 40 * sum(parts.values())
            plan = TrialPlan(code, time_s=lambda *_, s=decode_s: s, cycles=40, accepted=accepted)
            builder.launch(
                steps(number, variant=variant), plan, arm="default-arm", command=PROFILED
            )
            phases_s.append(parts)
    record = builder.record()
    keys = [(launch.launch.launch_id, 1) for launch in record.launches[1:]]
    return record, {
        key: cycles_of(record, parts)[key] for key, parts in zip(keys, phases_s, strict=True)
    }
