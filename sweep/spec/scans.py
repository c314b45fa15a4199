"""Which configurations share a launch that holds several step counts, and what confirms it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sweep.model.canonical import identity as identity_of
from sweep.model.plan import Configuration, PlannedLaunch, Role

Obstacle = Callable[[Configuration], str | None]


@dataclass(frozen=True)
class Group:
    """Configurations of one launch; `is_scan`: they differ in their steps, and share a server
    that holds all of them. `obstacle`: why they do not, though they differ in nothing else."""

    configurations: tuple[Configuration, ...]
    is_scan: bool = False
    obstacle: str | None = None


def groups(hosted: Mapping[str, Sequence[Configuration]], obstacle: Obstacle) -> Iterator[Group]:
    """Yield the launches of an arm in order: `hosted` are the configurations of each server."""
    chains: dict[str, list[Configuration]] = {}
    for configurations in hosted.values():
        chains.setdefault(_chain(configurations), []).extend(configurations)
    for configurations in chains.values():
        if len(configurations) == 1 or configurations[0].num_steps is None:
            yield from (Group((each,)) for each in configurations)
            continue
        reason = next(filter(None, map(obstacle, configurations)), None)
        if reason is None:
            yield Group(tuple(configurations), is_scan=True)
        else:
            yield from (Group((each,), obstacle=reason) for each in configurations)


def _chain(configurations: Sequence[Configuration]) -> str:
    """Return what the configurations of one scan have in common; those that share a plain server
    already stay with it."""
    first = replace(configurations[0], num_steps=None, num_draft_tokens=None)
    return identity_of(first, configurations if len(configurations) > 1 else None)


def confirmation(scan: PlannedLaunch, configuration_id: str) -> PlannedLaunch:
    """Return the launch that measures one configuration of a scan on a server of its own."""
    name = identity_of(scan.launch_id, configuration_id, Role.CONFIRM.value)
    return PlannedLaunch(
        launch_id=name,
        role=Role.CONFIRM,
        arm=scan.arm,
        node=scan.node,
        server=scan.alone[configuration_id],
        trials=tuple(
            replace(trial, trial_id=identity_of(name, trial.trial_id), pinned=False)
            for trial in scan.trials
            if trial.configuration_id == configuration_id
        ),
        confirms=scan.launch_id,
    )


def with_confirmations(launches: Sequence[PlannedLaunch]) -> list[PlannedLaunch]:
    """Return launches with those that will confirm their scans, as far as they are not there: of
    the first configuration, for the fastest is not known."""
    confirmed = {launch.confirms for launch in launches}
    return [
        *launches,
        *(
            confirmation(launch, next(iter(launch.alone)))
            for launch in launches
            if launch.alone and launch.launch_id not in confirmed
        ),
    ]
