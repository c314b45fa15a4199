"""What the rows of a sweep are compared with: the baselines of their arms, and the fastest."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from sweep.analysis.measurement import Measurement, pool_known
from sweep.analysis.uncertainty import Grid, pool
from sweep.model.canonical import identity
from sweep.model.plan import Configuration, Role
from sweep.model.record import TrialRecord
from sweep.model.states import TrialState

Place: TypeAlias = tuple[str, str, int]
"""Node, workload, concurrency: where rows may be compared."""

DEFAULT_VARIANT = "default"


@dataclass(frozen=True)
class Baseline:
    """What the trials without speculation of one arm measured at one place, in plan order."""

    parts: tuple[tuple[Role, Measurement], ...]

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """The measurements of all its launches."""
        return tuple(measurement for _, measurement in self.parts)

    @property
    def output(self) -> Grid | None:
        """Output tokens and window time, the launches pooled."""
        return pool_known(measurement.output for measurement in self.measurements)

    @property
    def decode(self) -> Grid | None:
        """Tokens and time after each first output chunk, the launches pooled."""
        return pool_known(measurement.decode for measurement in self.measurements)

    def output_of(self, role: Role) -> Grid | None:
        """The output grid of the launches with this role."""
        return pool_known(measurement.output for own, measurement in self.parts if own is role)


@dataclass(frozen=True)
class References:
    """What the trials of a sweep are compared with, by place."""

    baselines: Mapping[tuple[str, Place], Baseline]
    """By arm and place."""
    default_arm: str | None
    outputs: Mapping[Place, Mapping[tuple[str, str], Grid]]
    """Output grids by place, then by arm and configuration, the launches of each pooled."""
    fastest_outputs: Mapping[Place, Grid]
    """The output grid with the highest rate, by place."""
    unprofiled: Mapping[Place, Mapping[tuple[str, str], Grid]]
    """Like `outputs`, of the servers without the probe."""
    default_outputs: Mapping[Place, Mapping[str, Grid]]
    """Output grids of the variant "default" by place, then by identity of the configuration."""

    def baseline(self, trial: TrialRecord) -> Baseline | None:
        """The baseline of the trial's own arm; None: there is none that ended ok."""
        return self.baselines.get((trial.launch.arm, place(trial)))

    def default_baseline(self, trial: TrialRecord) -> Baseline | None:
        """The baseline of the default arm at the trial's place; None: there is none."""
        if self.default_arm is None:
            return None
        return self.baselines.get((self.default_arm, place(trial)))

    def output(self, trial: TrialRecord) -> Grid | None:
        """The output grid of the trial's configuration; None: it has no rate."""
        return self.outputs.get(place(trial), {}).get(_own(trial))

    def default_variant(self, trial: TrialRecord) -> Grid | None:
        """The output grid of the same configuration in the variant "default"; None: there is none,
        or the trial is of that variant itself."""
        configuration = trial.trial.configuration
        if configuration.variant == DEFAULT_VARIANT:
            return None
        return self.default_outputs.get(place(trial), {}).get(_in_default(configuration))

    def without_probe(self, trial: TrialRecord) -> Grid | None:
        """The output grid of the trial's configuration without the probe; None: there is none."""
        return self.unprofiled.get(place(trial), {}).get(_own(trial))

    def fastest(self, trial: TrialRecord) -> Grid | None:
        """The output grid with the highest rate at the trial's place; None: there is no rate."""
        return self.fastest_outputs.get(place(trial))


def place(trial: TrialRecord) -> Place:
    """Return where a trial may be compared: its node, workload and concurrency."""
    return trial.launch.node, trial.trial.workload.name, trial.trial.concurrency


def find_references(measured: Iterable[tuple[TrialRecord, Measurement | None]]) -> References:
    """Return what trials are compared with; only trials that ended ok count.

    What was measured without the probe is compared with the same configuration with it alone.
    The default arm is that of the first baseline in the plan whose variant is "default".
    """
    baselines: dict[tuple[str, Place], list[tuple[Role, Measurement]]] = defaultdict(list)
    outputs: dict[Place, dict[tuple[str, str], list[Grid]]] = defaultdict(dict)
    unprofiled: dict[Place, dict[tuple[str, str], Grid]] = defaultdict(dict)
    defaults: dict[Place, dict[str, list[Grid]]] = defaultdict(dict)
    default_arm: str | None = None
    for trial, measurement in measured:
        is_baseline = trial.trial.configuration.is_baseline
        if (
            is_baseline
            and default_arm is None
            and trial.trial.configuration.variant == DEFAULT_VARIANT
        ):
            default_arm = trial.launch.arm
        if measurement is None or trial.state is not TrialState.OK:
            continue
        if trial.launch.role is Role.UNPROFILED:
            if measurement.output is not None:
                unprofiled[place(trial)][_own(trial)] = measurement.output
            continue
        if is_baseline:
            baselines[trial.launch.arm, place(trial)].append((trial.launch.role, measurement))
        # What confirms a scan runs another server: it is compared with the scan, and not ranked.
        if measurement.output is not None and trial.launch.role is not Role.CONFIRM:
            outputs[place(trial)].setdefault(_own(trial), []).append(measurement.output)
            if trial.trial.configuration.variant == DEFAULT_VARIANT:
                name = _in_default(trial.trial.configuration)
                defaults[place(trial)].setdefault(name, []).append(measurement.output)
    pooled = {
        where: {key: pool(grids) for key, grids in items.items()}
        for where, items in outputs.items()
    }
    return References(
        baselines={key: Baseline(tuple(parts)) for key, parts in baselines.items()},
        default_arm=default_arm,
        outputs=pooled,
        fastest_outputs={
            where: max(items.values(), key=lambda grid: grid.rate or 0.0)
            for where, items in pooled.items()
        },
        unprofiled=unprofiled,
        default_outputs={
            where: {name: pool(grids) for name, grids in items.items()}
            for where, items in defaults.items()
        },
    )


def _own(trial: TrialRecord) -> tuple[str, str]:
    return trial.launch.arm, trial.trial.configuration_id


def _in_default(configuration: Configuration) -> str:
    return identity(replace(configuration, variant=DEFAULT_VARIANT))
