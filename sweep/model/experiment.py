"""The experiment: the file after validation, every shorthand expanded.

`spec/load.py` makes these values; nothing else does. Mappings are plain dicts that nobody
changes. Seconds and bytes are in the names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Scalar: TypeAlias = str | int | float | bool
"""A value of an engine argument; True is a bare flag, False leaves the flag out."""


_THIS_MACHINE = "local"


@dataclass(frozen=True)
class NodeSpec:
    """A machine to launch on; `host` None is this machine."""

    host: str | None = None
    gpus: tuple[int | str, ...] | None = None
    """Indices or UUIDs; None: all that the node has, and none is a node without GPUs."""
    on_busy: Literal["fail", "wait"] = "fail"
    workdir: str | None = None
    """Launch directories go below it, on the node; None: the agent's default."""

    @property
    def name(self) -> str:
        """The name in tables and messages."""
        return self.host or _THIS_MACHINE

    @classmethod
    def named(cls, name: str) -> NodeSpec:
        """Return what is known of a node when only its name is left: how to reach it."""
        return cls(None if name == _THIS_MACHINE else name)


@dataclass(frozen=True)
class EngineSpec:
    """The server that is relaunched, before any configuration is applied."""

    kind: str
    model: str
    command: tuple[str, ...] | None = None
    """Start of the argv, when not the engine's own default."""
    python: str | None = None
    draft_model: str | None = None
    algorithm: str | None = None
    args: Mapping[str, Scalar] = field(default_factory=dict)
    env: Mapping[str, str | None] = field(default_factory=dict)
    """None makes sure that the variable is unset."""
    setup: tuple[str, ...] = ()
    """Shell lines of the user's: what they change of a node's environment is laid under `env`."""
    rehearses: str | None = None
    """The kind of engine that the simulator stands in for: its rules hold, nothing of it runs."""


@dataclass(frozen=True)
class Drafting:
    """Another way to speculate than the engine's, with axes of its own."""

    algorithm: str
    num_steps: tuple[int, ...] = ()
    topk: tuple[int, ...] = (1,)
    num_draft_tokens: tuple[int, ...] | Literal["auto"] = "auto"


@dataclass(frozen=True)
class Variant:
    """A named bundle laid over the engine; the one named "default" is empty unless given."""

    name: str
    env: Mapping[str, str | None] = field(default_factory=dict)
    args: Mapping[str, Scalar] = field(default_factory=dict)
    draft_model: str | None = None
    python: str | None = None
    drafting: Drafting | None = None
    """None: the engine's algorithm, and the axes of the sweep."""


_OF_THE_LOGIN = ("PATH", "HOME")


@dataclass(frozen=True)
class Axes:
    """What is varied. Empty axis: the engine's default, not swept."""

    num_steps: tuple[int, ...] = ()
    topk: tuple[int, ...] = (1,)
    num_draft_tokens: tuple[int, ...] | Literal["auto"] = "auto"
    args: Mapping[str, tuple[Scalar, ...]] = field(default_factory=dict)
    """Engine arguments that are swept: name without dashes in front → values."""
    variants: tuple[Variant, ...] = (Variant("default"),)
    together: tuple[tuple[str, ...], ...] = ()
    """Names of variants whose launches stay on one node, list by list."""
    scan: bool = False
    """Whether one launch may host all step counts of a chain, where the engine can."""

    @property
    def variables(self) -> frozenset[str]:
        """Environment variables that some variant sets or unsets.

        A server has one only if the file gives it: what the node's login exports would otherwise
        make variants alike that are to be compared. Search paths and homes are left to the login,
        because programs need theirs.
        """
        names = {name for variant in self.variants for name in variant.env}
        return frozenset(name for name in names if not name.endswith(_OF_THE_LOGIN))


@dataclass(frozen=True)
class Prompt:
    """One prompt: plain text, or chat messages as (role, content)."""

    prompt_id: str
    text: str | None = None
    messages: tuple[tuple[str, str], ...] | None = None
    token_ids: tuple[int, ...] | None = None
    """As the engine's own tokenizer and chat template render it; None: sent as it is written."""


FEW_WINDOWS = 3
"""Below so many, the interval of a trial is weak or missing."""


@dataclass(frozen=True)
class Repeats:
    """How many windows: at least `min`, until the interval is narrow, at most `max`."""

    min: int = 4
    max: int = 12
    relative_ci: float = 0.01
    """Half-width of the 95 % interval of window throughput ÷ its mean; a fraction."""


@dataclass(frozen=True)
class Workload:
    """Prompts, output rule, sampling and the concurrencies they are sent at."""

    name: str
    prompts: tuple[Prompt, ...]
    max_tokens: int = 256
    ignore_eos: bool = False
    temperature: float = 0.0
    concurrency: tuple[int, ...] = (1,)
    repeats: Repeats = Repeats()
    api: Literal["native", "completions", "chat"] = "native"


@dataclass(frozen=True)
class Constraint:
    """A limit that a winner must keep: `metric` is a column of the table."""

    metric: str
    at_most: float | None = None
    at_least: float | None = None


@dataclass(frozen=True)
class Objective:
    """What wins: the largest `metric` at one workload and concurrency (None: the first)."""

    metric: str = "output_tok_s"
    workload: str | None = None
    concurrency: int | None = None
    constraints: tuple[Constraint, ...] = ()


@dataclass(frozen=True)
class Timeouts:
    """Deadlines on the node [s]."""

    load_s: float = 1800.0
    stall_s: float = 600.0
    request_s: float = 300.0
    claim_s: float = 600.0


@dataclass(frozen=True)
class Profile:
    """Phase timings of every cycle, taken by the probe inside the engine."""

    every_cycles: int = 100
    """The probe also prints a summary into the server's log after so many cycles."""
    compare: bool = False
    """Also measure the plan's first configuration with speculation without the probe. Steps grow
    along the axis, so that it usually has the shortest cycle, where a probe weighs most."""
    trace: bool = False
    """Let the server's own profiler trace each configuration, when all is measured."""


@dataclass(frozen=True)
class Budget:
    """Limits of a whole sweep; None is no limit."""

    launches: int | None = None
    hours: float | None = None


@dataclass(frozen=True)
class Experiment:
    """One validated experiment file."""

    name: str
    engine: EngineSpec
    workloads: tuple[Workload, ...]
    nodes: tuple[NodeSpec, ...] = (NodeSpec(),)
    baseline: bool = True
    axes: Axes = Axes()
    exclude: tuple[Mapping[str, tuple[Scalar, ...]], ...] = ()
    """Each mapping excludes the configurations that match all its keys by any value (axis names,
    `variant`, or argument names)."""
    objective: Objective = Objective()
    timeouts: Timeouts = Timeouts()
    budget: Budget = Budget()
    profile: Profile | None = None
    """None: no probe is put into the engine."""
    strategy: Literal["grid"] = "grid"
    keep: bool = False
    """Keep launch directories on the node after they were fetched."""

    def speculation(self, variant: Variant) -> tuple[str | None, Axes | Drafting]:
        """Return how a variant speculates and what is varied of that: its own, or the sweep's."""
        if variant.drafting is not None:
            return variant.drafting.algorithm, variant.drafting
        return self.engine.algorithm, self.axes

    def variant(self, name: str) -> Variant:
        """Return the variant of that name."""
        return next(variant for variant in self.axes.variants if variant.name == name)

    @property
    def drafters(self) -> Mapping[str, str | None]:
        """Every draft model with the algorithm that it drafts for; None: the engine's default."""
        found: dict[str, str | None] = {}
        if self.engine.draft_model is not None:
            found[self.engine.draft_model] = self.engine.algorithm
        for variant in self.axes.variants:
            if variant.draft_model is not None:
                own = variant.drafting and variant.drafting.algorithm
                found.setdefault(variant.draft_model, own or self.engine.algorithm)
        return found
