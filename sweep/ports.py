"""The seams: what the core asks of the outside world and of an engine. One fake each in tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from sweep.agent.wire import Answer, EngineDoc, Expected, Outcome, Request, RequestRecord
from sweep.model.errors import Problem
from sweep.model.experiment import Experiment, Prompt, Workload
from sweep.model.plan import Configuration, PlannedTrial, ServerCommand
from sweep.model.states import Failure


class Clock(Protocol):
    """Time and waiting. `monotonic_s` never jumps; `utc` is for display."""

    def monotonic_s(self) -> float:
        """Seconds of a clock that never jumps."""
        ...

    def utc(self) -> str:
        """The time of day, ISO 8601 with a Z."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


@dataclass(frozen=True)
class Completed:
    """A command that ended on a node; returncode None: unknown (the link broke)."""

    returncode: int | None
    stdout: bytes
    stderr: bytes


@dataclass(frozen=True)
class Reached:
    """How a node was reached over a network."""

    user: str
    address: str
    """host:port of the node itself."""
    through: tuple[str, ...]
    """Machines in between, by their aliases."""
    seconds: float
    """What connecting took."""
    host_key: str
    """Kind and fingerprint of the key that it showed, and that is known."""
    not_honoured: tuple[str, ...] = ()
    """Settings of the SSH config without effect."""


class Node(Protocol):
    """A machine: files and short commands. Paths are absolute texts on the node.

    Every method raises NodeError when the node cannot be reached or refuses; none waits longer
    than its timeout.
    """

    @property
    def name(self) -> str:
        """The name in tables and messages."""
        ...

    @property
    def reached(self) -> Reached | None:
        """How it was reached; None: it is this machine, or was not reached yet."""
        ...

    def home(self) -> str:
        """The directory below which sweep keeps its files when the user names none."""
        ...

    def put(self, path: str, data: bytes) -> None:
        """Write a whole file (mode 0600, parents 0700); it appears complete or not at all."""
        ...

    def read(self, path: str, offset: int = 0, limit: int | None = None) -> bytes | None:
        """Return at most `limit` bytes from `offset`; None when there is no such file."""
        ...

    def run(self, argv: Sequence[str], *, timeout_s: float) -> Completed:
        """Run a short command, without a shell and with no standard input."""
        ...

    def fetch(self, path: str, target: str) -> None:
        """Copy a file to the local path `target`, through a partial name and a rename."""
        ...

    def remove_tree(self, path: str) -> None:
        """Delete a directory; not being there is success."""
        ...

    def close(self) -> None:
        """Let go of the connection; nothing on the node changes."""
        ...


@dataclass(frozen=True)
class EngineFacts:
    """What a node said of the engine that is installed there."""

    version: str | None = None
    """First line that the engine's version command printed; None: it said nothing."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """The JSON object that the command printed after it, for the engine's own rules. For everybody:
    `token_ids`, the prompts of a workload by its name as the engine's tokenizer renders them, and
    `rendering_error`, why it could not."""
    gpu_capabilities: tuple[str, ...] = ()
    """CUDA compute capabilities of the GPUs asked for, such as "12.0"."""
    architectures: Mapping[str, str] = field(default_factory=dict)
    """Model as the file names it → its architecture, by its config."""
    gpus: int | None = None
    """How many GPUs a server is given; None: not known."""


@dataclass(frozen=True)
class Installation:
    """What of an engine lies on a node and is looked at before a sweep."""

    models: tuple[str, ...] = ()
    """As the file names them: the target first, then every drafter."""
    from_hub: bool = False
    """Whether a model that is no path is a name on the Hugging Face hub."""
    package: str | None = None
    """The distribution that holds the server; None: it is no Python package."""
    pythons: tuple[str, ...] = ()
    """Interpreters that the package must be installed in."""
    start_s: float = 0.0
    """How long a load takes beside reading the model, at least [s]."""
    load_s: float | None = None
    """How long a load takes, where no disk of the node has a say in it; None: it has [s]."""


@dataclass(frozen=True)
class Judged:
    """What an engine's rules say of one configuration.

    `configuration` is what the engine would really run; `reason` set: it cannot run, with the
    rule and its source; `note` set: it was adjusted, and how.
    """

    configuration: Configuration
    reason: str | None = None
    note: str | None = None


@dataclass(frozen=True)
class Counters:
    """Raw counts of one request, in the glossary's sense; None: the engine does not say."""

    output_tokens: int | None = None
    cycles: int | None = None
    drafted_tokens: int | None = None
    """Root excluded."""
    accepted_tokens: int | None = None
    """Bonus excluded."""
    cycles_by_accepted: tuple[int, ...] | None = None
    """Cycles that accepted exactly 0, 1, 2 … draft tokens."""
    cycles_estimated: bool = False
    """Whether `cycles` was derived from other counts because the engine does not report it."""


class StepScan(Protocol):
    """How one server holds several step counts of a chain, of which each request chooses one."""

    def obstacle(
        self, configuration: Configuration, experiment: Experiment, known: EngineFacts | None
    ) -> str | None:
        """Why a configuration needs a server of its own; None: it can share one with others that
        differ from it in their steps alone. `known` None: the node was not asked."""
        ...

    def server(
        self, configurations: Sequence[Configuration], experiment: Experiment
    ) -> ServerCommand:
        """How a server that holds all of these is started."""
        ...

    def asking(self, request: Request, num_steps: int) -> Request:
        """The same request, asking for a step count."""
        ...

    def in_force(self, num_steps: int) -> tuple[Expected, ...]:
        """What the server says of itself while that step count is in force."""
        ...


@dataclass(frozen=True)
class ServerCounters:
    """What a server counts over its whole life; None: it does not."""

    output_tokens: float | None = None
    cycles: float | None = None
    """Of requests that ended."""
    device_s: Mapping[str, float] = field(default_factory=dict)
    """Phase of a cycle → seconds on the device, by the engine's own timer; of one rank."""


class Engine(Protocol):
    """All that is known of one kind of server. Pure: values in, values out."""

    @property
    def kind(self) -> str:
        """As `engine.kind` in the file."""
        ...

    def problems(self, experiment: Experiment) -> tuple[Problem, ...]:
        """What is wrong with the experiment for this engine, before any planning."""
        ...

    def judge(
        self, configuration: Configuration, experiment: Experiment, known: EngineFacts | None
    ) -> Judged:
        """Apply the engine's own rules to one configuration; `known` is what the node said of its
        engine, None: it was not asked, and only what holds for every version is judged."""
        ...

    def server(self, configuration: Configuration, experiment: Experiment) -> ServerCommand:
        """How a server for this configuration is started."""
        ...

    @property
    def scan(self) -> StepScan | None:
        """How its servers hold several step counts; None: they do not."""
        ...

    def identity_paths(self, experiment: Experiment) -> tuple[str, ...]:
        """Files and directories on the node that make up the engine's and models' identity."""
        ...

    def installation(self, experiment: Experiment) -> Installation:
        """What is looked at on the node before a sweep."""
        ...

    def version_argv(self, experiment: Experiment) -> tuple[str, ...]:
        """A command on the node whose first line of output names the engine's version; a JSON
        object on its last line becomes `EngineFacts.details`."""
        ...

    def version_input(self, experiment: Experiment) -> Mapping[str, Any]:
        """What that command is given on standard input, as JSON."""
        ...

    def document(self, experiment: Experiment) -> EngineDoc:
        """What the agent needs to know of this engine."""
        ...

    def request(self, workload: Workload, prompt: Prompt) -> Request:
        """The generation request for a prompt of a workload."""
        ...

    def throwaway(self, workload: Workload) -> Request:
        """A short request unrelated to every prompt, sent after a flush and not counted."""
        ...

    def answer(self, workload: Workload) -> Answer:
        """Where things stand in the answers to this workload's requests."""
        ...

    def count(self, record: RequestRecord) -> Counters:
        """Read the raw counts of one answered request."""
        ...

    def server_counters(self, metrics: str) -> ServerCounters:
        """Read the server's own counters from a scrape of its metrics."""
        ...

    def classify_launch(self, outcome: Outcome) -> Failure | None:
        """Name why a launch failed; None: it did not."""
        ...

    def classify_trial(
        self, trial: PlannedTrial, records: Sequence[RequestRecord]
    ) -> Failure | None:
        """Name what is wrong with the measured records of a trial that ended; None: nothing.

        Here speaks only the engine (a draft that was not used); error shares and short outputs
        are judged for every engine alike in `engines/classify.py`.
        """
        ...
