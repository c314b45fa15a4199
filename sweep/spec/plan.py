"""Planning: which servers are launched, in which order, and what each of them measures."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from sweep.model.canonical import identity as identity_of
from sweep.model.experiment import Experiment, Scalar, Workload
from sweep.model.plan import (
    Configuration,
    Plan,
    PlannedLaunch,
    PlannedTrial,
    Role,
    ServerCommand,
    SetupLayer,
    SkippedConfiguration,
)
from sweep.ports import Engine, EngineFacts, Judged
from sweep.spec.lanes import ArmSize, assign, describe
from sweep.spec.scans import Group, groups

_PORT = "PORT"
"""Stands for the port in identities: each attempt has another one."""


def make_plan(
    experiment: Experiment,
    engine: Engine,
    nodes: Mapping[str, KnownNode] | None = None,
) -> Plan:
    """Return the plan of an experiment: a pure function of what is given.

    `nodes` is what is known of each node by its name; a node's name and identity are part of the
    id of every launch on it. Launches come node by node and arm by arm in the order of the axes:
    first baseline, the arm's configurations, last baseline; right after the configuration that is
    compared without the probe comes that launch. A node that does not run the default
    arm runs its baseline too, before and after everything else.
    """
    planner = _Planner(experiment, engine, nodes or {})
    for asked in _asked(experiment):
        planner.add(asked)
    return planner.plan()


def configuration_id(configuration: Configuration, experiment: Experiment) -> str:
    """Return the identity of a configuration on its engine, its variant's content included."""
    variant = experiment.variant(configuration.variant)
    return identity_of(configuration, experiment.engine, variant)


def launch_id(server: ServerCommand, role: Role, node: str, known: Mapping[str, Any]) -> str:
    """Return the identity of a launch: how its server is started, where, on what, and why."""
    return identity_of(_blanked(server), node, known, role.value)


def trial_id(
    of_launch: str, configuration: Configuration, workload: Workload, concurrency: int
) -> str:
    """Return the identity of a trial; the workload's other concurrencies do not count."""
    return identity_of(of_launch, configuration, replace(workload, concurrency=()), concurrency)


@dataclass(frozen=True)
class KnownNode:
    """What a node said before planning."""

    identity: Mapping[str, Any] = field(default_factory=dict)
    """What distinguishes its engine, model files and GPUs from others of the same names: versions,
    sizes, times, UUIDs."""
    engine: EngineFacts | None = None
    """For the engine's rules; None: it was not asked."""
    setup: SetupLayer = field(default_factory=SetupLayer)


@dataclass
class _Arm:
    """Everything but speculation: the configurations that one baseline speaks for."""

    name: str
    baseline: Configuration
    baseline_server: ServerCommand
    variants: set[str] = field(default_factory=set)
    """Variants whose configurations it holds, those that were merged into others too."""
    hosted: dict[str, list[Configuration]] = field(default_factory=dict)
    """Identity of a server's command → the configurations that it serves, in axis order."""


class _Planner:
    """Collects configurations into arms and servers, then lays them out as launches."""

    def __init__(
        self,
        experiment: Experiment,
        engine: Engine,
        nodes: Mapping[str, KnownNode],
    ) -> None:
        self._experiment = experiment
        self._engine = engine
        self._nodes = {node.name: nodes.get(node.name, KnownNode()) for node in experiment.nodes}
        self._arms: dict[str, _Arm] = {}
        self._servers: dict[str, ServerCommand] = {}
        self._seen: dict[str, Configuration] = {}
        self._skipped: dict[str, SkippedConfiguration] = {}
        self._notes: dict[str, None] = {}
        self._asked = self._excluded = self._merged = 0
        self._unmatched = dict(enumerate(experiment.exclude))

    def add(self, asked: Configuration) -> None:
        """Take one configuration: exclude it, skip it, merge it, or give it a server."""
        self._asked += 1
        judged = self._judge(asked)
        target = self._judge(Configuration(None, variant=asked.variant, args=asked.args))
        if self._is_excluded(asked, judged.configuration):
            self._excluded += 1
        elif reason := judged.reason or target.reason:
            name = configuration_id(judged.configuration, self._experiment)
            self._skipped[name] = SkippedConfiguration(name, judged.configuration, reason)
        else:
            if judged.note is not None:
                self._notes[judged.note] = None
            self._host(judged.configuration, target.configuration)

    def _judge(self, asked: Configuration) -> Judged:
        """Apply the rules of every node's engine: what cannot run alike on all is not planned,
        because which node it would run on must not decide what is compared."""
        first: tuple[str, Judged] | None = None
        for name, known in self._nodes.items():
            judged = self._engine.judge(asked, self._experiment, known.engine)
            if judged.reason is not None:
                return judged
            first = first or (name, judged)
            if judged.configuration != first[1].configuration:
                reason = f"the engines of {first[0]} and {name} would run it differently"
                return replace(judged, reason=reason)
        assert first is not None
        return first[1]

    def _is_excluded(self, asked: Configuration, judged: Configuration) -> bool:
        hits = [
            position
            for position, entry in enumerate(self._experiment.exclude)
            if all(
                any(
                    _same(value, _value(asked, key)) or _same(value, _value(judged, key))
                    for value in values
                )
                for key, values in entry.items()
            )
        ]
        for position in hits:
            self._unmatched.pop(position, None)
        return bool(hits)

    def _host(self, configuration: Configuration, baseline: Configuration) -> None:
        """Give a configuration a server, in the arm whose baseline server is `baseline`'s."""
        command, key = self._command(configuration), self._command(baseline)
        # What differs by its variant's name alone would be measured twice on one server.
        same = identity_of(replace(configuration, variant=""), command)
        twin = self._seen.setdefault(same, configuration)
        if twin is not configuration:
            self._merged += 1
            if key in self._arms:
                self._arms[key].variants.add(configuration.variant)
            if twin.variant != configuration.variant:
                names = f'variant "{configuration.variant}" starts the servers of "{twin.variant}"'
                self._notes[f"{names} and is measured once, as that"] = None
            return
        arm = self._arms.setdefault(key, _Arm(_arm_name(baseline), baseline, self._servers[key]))
        arm.variants.add(configuration.variant)
        if not (configuration.is_baseline and self._experiment.baseline):
            arm.hosted.setdefault(command, []).append(configuration)

    def _command(self, configuration: Configuration) -> str:
        """Return the identity of a configuration's server command, which is kept."""
        server = self._server(configuration, self._experiment)
        command = identity_of(_blanked(server))
        self._servers.setdefault(command, server)
        return command

    def _server(self, configuration: Configuration, experiment: Experiment) -> ServerCommand:
        server = self._engine.server(configuration, experiment)
        return replace(server, path_first=_path_first(configuration, experiment, server))

    def plan(self) -> Plan:
        """Return what was collected as a plan."""
        unmatched = [
            f"exclude {_shown(entry)} matches no configuration"
            for entry in self._unmatched.values()
        ]
        launches, placed = self._placed()
        return Plan(
            launches=tuple(launches),
            skipped=tuple(self._skipped.values()),
            excluded=self._excluded,
            merged=self._merged,
            asked=self._asked,
            notes=(*self._notes, *unmatched, *placed, *self._unset()),
        )

    def _unset(self) -> list[str]:
        names = ", ".join(sorted(self._experiment.axes.variables))
        return [f"variants that do not set {names} have it unset"] if names else []

    def _placed(self) -> tuple[list[PlannedLaunch], list[str]]:
        """Return all launches, node by node, and what to tell of where they are."""
        arms, nodes = list(self._arms.values()), [node.name for node in self._experiment.nodes]
        # The references of the table: the first baseline of the variant named so is the default.
        default = next((arm for arm in arms if arm.baseline.variant == "default"), None)
        grouped = {id(arm): self._groups(arm) for arm in arms}
        framed = 2 if self._experiment.baseline else 0
        compared = self._compared([group for arm in arms for group in grouped[id(arm)]])
        sizes = [
            ArmSize(
                arm.variants,
                len(grouped[id(arm)]) + framed + any(x is compared for x in grouped[id(arm)]),
                is_default=arm is default,
            )
            for arm in arms
        ]
        places = assign(
            arms=sizes, nodes=nodes, together=self._experiment.axes.together, extra=framed
        )
        launches: list[PlannedLaunch] = []
        for node in nodes:
            own = [arm for arm, where in zip(arms, places, strict=True) if where == node]
            here = [
                launch
                for arm in own
                for launch in self._launches(arm, grouped[id(arm)], node, compared)
            ]
            if framed and here and default is not None and default not in own:
                first, last = self._baselines(default, node)
                here = [first, *here, last]
            launches += here
        names = [arm.name for arm in arms]
        shown = default.name if framed and default is not None else None
        return launches, describe(list(zip(names, places, strict=True)), nodes, shown)

    def _groups(self, arm: _Arm) -> list[Group]:
        """Return the configurations of an arm, launch by launch, and note what is shared."""
        if not self._experiment.axes.scan:
            return [Group(tuple(each)) for each in arm.hosted.values()]
        found = list(groups(arm.hosted, self._obstacle))
        for group in found:
            if group.is_scan:
                count = len(group.configurations)
                self._notes[
                    f"{count} step counts, 1 launch: its requests choose the steps; the fastest is "
                    "launched again alone (role confirm), which comes on top"
                ] = None
            elif group.obstacle is not None:
                self._notes[f"a launch per step count: {group.obstacle}"] = None
        return found

    def _obstacle(self, configuration: Configuration) -> str | None:
        """Why a configuration needs a server of its own on some node."""
        scan = self._engine.scan
        if scan is None:
            return f"a server of {self._engine.kind} holds one"
        reasons = (
            scan.obstacle(configuration, self._experiment, known.engine)
            for known in self._nodes.values()
        )
        return next(filter(None, reasons), None)

    def _launches(
        self, arm: _Arm, grouped: Sequence[Group], node: str, compared: Group | None
    ) -> list[PlannedLaunch]:
        mains = []
        for group in grouped:
            hosted = group.configurations
            if group.is_scan:
                mains.append(self._scan(arm, node, hosted))
            else:
                mains.append(self._launch(arm, Role.MAIN, node, self._plain(hosted[0]), hosted))
                mains += [self._unprofiled(arm, node, hosted)] if group is compared else []
        if not self._experiment.baseline:
            return mains
        first, last = self._baselines(arm, node)
        return [first, *mains, last]

    def _compared(self, grouped: Sequence[Group]) -> Group | None:
        """Return the launch that is repeated without the probe: the first with speculation that is
        no scan. None: there is none, or nobody asked."""
        profile = self._experiment.profile
        if profile is None or not profile.compare:
            return None
        found = (g for g in grouped if not (g.is_scan or g.configurations[0].is_baseline))
        compared = next(found, None)
        if compared is None:
            self._notes[
                "profile.compare: no launch with speculation holds one configuration alone, and "
                "none is measured without the probe"
            ] = None
        return compared

    def _unprofiled(self, arm: _Arm, node: str, hosted: Sequence[Configuration]) -> PlannedLaunch:
        """Return the launch without the probe beside the one of these configurations."""
        server = self._server(hosted[0], replace(self._experiment, profile=None))
        return self._launch(arm, Role.UNPROFILED, node, server, hosted[:1])

    def _plain(self, configuration: Configuration) -> ServerCommand:
        return self._servers[self._command(configuration)]

    def _scan(self, arm: _Arm, node: str, configurations: Sequence[Configuration]) -> PlannedLaunch:
        scan = self._engine.scan
        assert scan is not None
        first = self._plain(configurations[0])
        server = scan.server(configurations, self._experiment)
        server = replace(server, path_first=first.path_first)
        launch = self._launch(arm, Role.SCAN, node, server, configurations)
        layer = self._nodes[node].setup
        return replace(
            launch,
            trials=tuple(replace(trial, pinned=True) for trial in launch.trials),
            alone={
                configuration_id(each, self._experiment): laid_over(self._plain(each), layer)
                for each in configurations
            },
        )

    def _baselines(self, arm: _Arm, node: str) -> list[PlannedLaunch]:
        return [
            self._launch(arm, role, node, arm.baseline_server, [arm.baseline])
            for role in (Role.BASELINE_FIRST, Role.BASELINE_LAST)
        ]

    def _launch(
        self,
        arm: _Arm,
        role: Role,
        node: str,
        server: ServerCommand,
        configurations: Iterable[Configuration],
    ) -> PlannedLaunch:
        server = laid_over(server, self._nodes[node].setup)
        name = launch_id(server, role, node, self._nodes[node].identity)
        trials = tuple(
            PlannedTrial(
                trial_id=trial_id(name, configuration, workload, concurrency),
                configuration_id=configuration_id(configuration, self._experiment),
                configuration=configuration,
                workload=workload,
                concurrency=concurrency,
            )
            for configuration in configurations
            for workload in self._experiment.workloads
            for concurrency in workload.concurrency
        )
        return PlannedLaunch(name, role, arm.name, node, server, trials)


def _asked(experiment: Experiment) -> Iterator[Configuration]:
    """Yield every combination of the axes: variants change slowest, draft tokens fastest."""
    for variant, args in product(experiment.axes.variants, _swept(experiment.axes.args)):
        algorithm, axes = experiment.speculation(variant)
        if algorithm is None and not axes.num_steps:
            yield Configuration(None, variant=variant.name, args=args)
            continue
        drafts = (None,) if axes.num_draft_tokens == "auto" else axes.num_draft_tokens
        for steps, topk, draft in product(axes.num_steps or (None,), axes.topk, drafts):
            yield Configuration(algorithm, steps, topk, draft, variant.name, args)


def _swept(args: Mapping[str, Sequence[Scalar]]) -> Iterator[dict[str, Scalar]]:
    for values in product(*args.values()):
        yield dict(zip(args, values, strict=True))


def _blanked(server: ServerCommand) -> ServerCommand:
    """Return a server's command without what differs between equal servers."""
    argv = list(server.argv)
    argv[server.port_at] = _PORT
    return replace(server, argv=tuple(argv), unset=tuple(sorted(server.unset)), settings={})


def laid_over(server: ServerCommand, layer: SetupLayer) -> ServerCommand:
    """Return a server's command with what a node's setup changes under what the file says."""
    if layer == SetupLayer():
        return server
    env = {name: value for name, value in layer.env.items() if name not in server.unset}
    unset = [name for name in layer.unset if name not in server.env]
    names_path = "PATH" in server.env or "PATH" in server.unset
    places = () if names_path else (*server.path_first, *layer.path_first)
    return replace(
        server,
        env=dict(sorted({**env, **server.env}.items())),
        unset=tuple(dict.fromkeys([*server.unset, *unset])),
        path_first=tuple(dict.fromkeys(places)),
    )


def _path_first(
    configuration: Configuration, experiment: Experiment, server: ServerCommand
) -> tuple[str, ...]:
    """Return what comes first in the PATH of a server; nothing when the file sets PATH."""
    if "PATH" in {*server.env, *server.unset}:
        return ()
    variant = experiment.variant(configuration.variant)
    return path_first(variant.python or experiment.engine.python)


def path_first(python: str | None) -> tuple[str, ...]:
    """Return the directory of an engine's Python, which comes first in PATH as in an activated
    environment; nothing when it is no whole path."""
    if python is None or not python.startswith("/"):
        return ()
    return (posixpath.dirname(python),)


def _arm_name(baseline: Configuration) -> str:
    args = [f"{name}={value}" for name, value in sorted(baseline.args.items())]
    return ", ".join([baseline.variant, *args])


def _value(configuration: Configuration, key: str) -> Scalar | None:
    """Return what a configuration has for an axis name or a swept argument."""
    if key in configuration.args:
        return configuration.args[key]
    return {
        "num_steps": configuration.num_steps,
        "topk": configuration.topk,
        "num_draft_tokens": configuration.num_draft_tokens,
        "variant": configuration.variant,
    }.get(key)


def _shown(entry: Mapping[str, Sequence[Scalar]]) -> str:
    """Return an entry of `exclude` as it may stand in the file."""
    several = {key: list(values) if len(values) > 1 else values[0] for key, values in entry.items()}
    return str(several)


def _same(one: Scalar, other: Scalar | None) -> bool:
    """Whether two values are equal; 1 and true are not."""
    return isinstance(one, bool) == isinstance(other, bool) and one == other
