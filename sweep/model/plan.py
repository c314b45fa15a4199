"""The plan: launches in order, each with the trials it hosts. A pure function of the experiment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from sweep.model.experiment import Scalar, Workload


class Role(StrEnum):
    """Why a launch is in the plan."""

    MAIN = "main"
    BASELINE_FIRST = "baseline_first"
    BASELINE_LAST = "baseline_last"
    UNPROFILED = "unprofiled"
    """The server of a main launch without the probe: what the probe itself costs."""
    SCAN = "scan"
    """Its server holds several step counts, and each request chooses one."""
    CONFIRM = "confirm"
    """The fastest of a scan on a server of its own; planned when the scan has ended."""


ROLE_SUFFIXES = {
    Role.BASELINE_LAST: " (again)",
    Role.UNPROFILED: " (without the probe)",
    Role.CONFIRM: " (alone)",
}
"""What tells launches of one configuration apart, for people."""


@dataclass(frozen=True)
class Configuration:
    """What is compared. Belongs to the trial, not to the launch; None: not speculating."""

    algorithm: str | None
    num_steps: int | None = None
    topk: int | None = None
    num_draft_tokens: int | None = None
    """As the engine counts it after its own rules (SGLang: the root included)."""
    variant: str = "default"
    args: Mapping[str, Scalar] = field(default_factory=dict)
    """Swept engine arguments only."""

    @property
    def is_baseline(self) -> bool:
        """Whether the target decodes without speculation."""
        return self.algorithm is None

    @property
    def label(self) -> str:
        """A short name for people, unique within a sweep together with the swept arguments."""
        if self.is_baseline:
            parts = ["baseline"]
        elif self.num_steps is None:
            parts = [f"{self.algorithm}, {self.num_draft_tokens} tokens"]
        else:
            parts = [f"{self.num_steps} step{'' if self.num_steps == 1 else 's'}"]
            if self.topk not in (None, 1):
                parts += [f"topk {self.topk}", f"{self.num_draft_tokens} tokens"]
        if self.variant != "default":
            parts.append(self.variant)
        parts += [f"{name}={value}" for name, value in sorted(self.args.items())]
        return ", ".join(parts)


@dataclass(frozen=True)
class Setting:
    """A setting that a server must report of itself: where in its answer, and which value."""

    path: tuple[str | int, ...]
    value: Scalar | None
    """None: not set."""

    def holds(self, reported: Scalar | None) -> bool:
        """Whether the server reports what was asked; servers may turn text into numbers."""
        if self.value is None or reported is None:
            return reported is self.value
        return reported == self.value or str(reported) == str(self.value)


@dataclass(frozen=True)
class ServerFile:
    """A file for a server, written on the node into the directory of its launch."""

    at: int
    """Index in the argv of the element that the agent replaces by the file's path."""
    name: str
    text: str


@dataclass(frozen=True)
class ServerCommand:
    """How a server is started: data, never shell text."""

    argv: tuple[str, ...]
    port_at: int
    """Index in `argv` of the element that the agent replaces by the port."""
    env: Mapping[str, str] = field(default_factory=dict)
    unset: tuple[str, ...] = ()
    path_first: tuple[str, ...] = ()
    """Directories put in front of PATH."""
    files: tuple[ServerFile, ...] = ()
    settings: Mapping[str, Setting] = field(default_factory=dict)
    """What it must be running with, by name: `num_steps`, `topk` and `num_draft_tokens` as the
    engine counts them, and its arguments. Empty: the engine does not tell."""


@dataclass(frozen=True)
class SetupLayer:
    """What the user's setup changes of a node's environment, under all that the file says."""

    env: Mapping[str, str] = field(default_factory=dict)
    unset: tuple[str, ...] = ()
    path_first: tuple[str, ...] = ()
    """Directories that it puts in front of PATH."""


@dataclass(frozen=True)
class PlannedTrial:
    """A configuration × a workload × one concurrency."""

    trial_id: str
    configuration_id: str
    configuration: Configuration
    workload: Workload
    concurrency: int
    pinned: bool = False
    """Whether its requests choose its step count, on a server that holds several."""


@dataclass(frozen=True)
class PlannedLaunch:
    """One server process and the trials it hosts."""

    launch_id: str
    role: Role
    arm: str
    """Everything but speculation; launches of one arm share a baseline."""
    node: str
    server: ServerCommand
    trials: tuple[PlannedTrial, ...]
    alone: Mapping[str, ServerCommand] = field(default_factory=dict)
    """Of a scan, by configuration: the server that holds nothing else, to confirm the fastest."""
    confirms: str | None = None
    """The scan whose fastest configuration this launch is of."""

    @property
    def configurations(self) -> tuple[Configuration, ...]:
        """What its server is launched for, in order."""
        return tuple(
            {trial.configuration_id: trial.configuration for trial in self.trials}.values()
        )

    @property
    def label(self) -> str:
        """A short name for people."""
        first = self.configurations[0]
        if self.role is not Role.SCAN:
            return first.label + ROLE_SUFFIXES.get(self.role, "")
        steps = [str(each.num_steps) for each in self.configurations]
        rest = first.label.partition(", ")[2]
        return ", ".join([f"{', '.join(steps)} steps in one launch", *filter(None, [rest])])


@dataclass(frozen=True)
class SkippedConfiguration:
    """A configuration that was asked for and is not launched, with the rule and the reason."""

    configuration_id: str
    configuration: Configuration
    reason: str


@dataclass(frozen=True)
class Plan:
    """What a sweep will do."""

    launches: tuple[PlannedLaunch, ...]
    skipped: tuple[SkippedConfiguration, ...] = ()
    excluded: int = 0
    """Configurations that the file's `exclude` removed."""
    merged: int = 0
    """Configurations that an engine's rules made equal to another one."""
    asked: int = 0
    """Configurations that the axes and variants span, before exclusions and rules."""
    notes: tuple[str, ...] = ()
    """Adjustments that the engine's rules made, for people."""
