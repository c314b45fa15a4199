"""The shape of an experiment file: every key, its type, its default and what it is for.

The models stand for the file as written; `spec.load` makes an Experiment of them. Their JSON
Schema (`json_schema`) serves editors, and the descriptions below are what people see there.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

from sweep.model.experiment import Objective, Profile, Repeats, Timeouts, Workload
from sweep.spec.fields import (
    Arguments,
    AxisValues,
    Choice,
    Counts,
    CountsOrAuto,
    Environment,
    Gpus,
    NonEmpty,
    OptionalText,
    Section,
    SweptArguments,
    enum,
    one_of,
)
from sweep.spec.prompt_sets import PROMPT_SETS
from sweep.spec.scalars import (
    Boolean,
    Duration,
    Name,
    Number,
    OrNone,
    Positive,
    Text,
    VariableName,
    refuse,
)

OBJECTIVE_METRICS = ("output_tok_s", "decode_tok_s", "speedup", "speedup_vs_default")
"""Columns of the table of which more is better everywhere."""
CONSTRAINT_METRICS = (
    *OBJECTIVE_METRICS,
    "ttft_s_p50",
    "tpot_s_p50",
    "itl_s_p50",
    "itl_s_p99",
    "accept_length",
    "acceptance_rate",
    "same_as_baseline_share",
    "load_s",
)


_PROMPT = WithJsonSchema(
    {
        "anyOf": [
            {"type": "string"},
            {
                "type": "object",
                "properties": {
                    "id": {"type": "string"},
                    "prompt": {"type": "string"},
                    "messages": {"type": "array", "minItems": 1},
                },
                "additionalProperties": False,
            },
        ]
    }
)


class NodeSection(Section):
    """Where to launch: this machine, or one behind SSH."""

    host: OptionalText = Field(
        None, description="An alias of ~/.ssh/config or user@host:port; left out: this machine."
    )
    gpus: Gpus = Field(None, description="Indices or UUIDs; left out: all that there are.")
    on_busy: Annotated[Literal["fail", "wait"], Choice] = Field(
        "fail", description="What to do when someone else uses the node."
    )
    workdir: OptionalText = Field(
        None, description="Launch directories go below it, on the node; must not be shared."
    )


class EngineSection(Section):
    """The server that is relaunched for each configuration."""

    kind: Annotated[Literal["sglang", "llama.cpp", "simulator"], Choice] = Field(
        description="The kind of server."
    )
    model: Text = Field(
        description="Target model. A path with ./ or ../ in front counts from this file."
    )
    command: Annotated[tuple[Text, ...] | None, NonEmpty, OrNone] = Field(
        None, description="Start of the command line, when not the engine's own."
    )
    python: OptionalText = Field(None, description="Python that the engine is installed in.")
    draft_model: OptionalText = Field(None, description="Draft model (drafter).")
    algorithm: OptionalText = Field(
        None, description="How to speculate, as the engine names it; left out: not at all."
    )
    args: Arguments = Field(
        {},
        description="Any argument of the server, without the dashes in front; true is a bare "
        "flag, false leaves it out. Dashes and underscores are equal.",
    )
    env: Environment = Field(
        {}, description="Environment variables: text as written; ~ makes sure it is unset."
    )
    setup: Annotated[tuple[Text, ...], NonEmpty] = Field(
        (),
        description="Lines for bash, such as an environment to activate: run once on each node, in "
        "the home directory, and what they change is the server's environment, under env.",
        json_schema_extra={"minItems": 1},
    )


class VariantSection(Section):
    """A named bundle laid over the engine, to be compared with the others."""

    env: Environment = Field({}, description="Environment variables; ~ for unset.")
    unset: tuple[VariableName, ...] = Field((), description="Variables that must not be set.")
    args: Arguments = Field({}, description="Arguments, laid over those of the engine.")
    draft_model: OptionalText = Field(
        None,
        description="Draft model; left out: the engine's, unless the algorithm is another one.",
    )
    python: OptionalText = Field(None, description="Python instead of the engine's.")
    algorithm: OptionalText = Field(
        None,
        description="How to speculate instead of engine.algorithm: then num_steps, topk and "
        "num_draft_tokens of the sweep do not hold, and stand here.",
    )
    num_steps: Counts = Field((), description="Draft steps of this variant's algorithm.")
    topk: Counts = Field((1,), description="Branches a step of this variant's algorithm.")
    num_draft_tokens: CountsOrAuto = Field(
        None, description="Tokens verified a cycle by this variant's algorithm."
    )

    @model_validator(mode="after")
    def _own_axes(self) -> VariantSection:
        own_axes = {"num_steps", "topk", "num_draft_tokens"} & self.model_fields_set
        if self.algorithm is None and own_axes:
            refuse(
                "num_steps, topk and num_draft_tokens of a variant are those of its own algorithm",
                "give the variant's algorithm, or write them under sweep",
            )
        return self


class SweepSection(Section):
    """What is varied: every combination is a configuration, unless excluded."""

    num_steps: Counts = Field(
        (), description="Draft steps a cycle: a number, a list, or {from, to, step}."
    )
    topk: Counts = Field((1,), description="Branches a step; 1 is a chain.")
    num_draft_tokens: CountsOrAuto = Field(
        None, description="Tokens verified a cycle; auto: the engine's own rule."
    )
    args: SweptArguments = Field({}, description="Engine arguments to vary: name, then values.")
    nccl: dict[Name, Environment] = Field(
        {}, description="Variants that consist of environment variables only, by name."
    )
    variants: dict[Name, VariantSection] = Field(
        {}, description="Variants by name; one named default is there in any case."
    )
    scan: Boolean = Field(
        False,
        description="Let one launch host all step counts of a chain where the engine can, and "
        "launch the fastest again alone; needs profile.",
    )
    together: Annotated[tuple[Annotated[tuple[Name, ...], NonEmpty], ...], NonEmpty] = Field(
        (),
        description="Lists of variants whose launches share a node, to be ranked against each "
        "other; matters with several nodes only.",
        json_schema_extra={"minItems": 1},
    )


class Message(Section):
    """One message of a chat."""

    role: Annotated[Literal["system", "user", "assistant"], Choice] = Field(
        description="Who speaks."
    )
    content: Text = Field(description="What is said.")


class PromptEntry(Section):
    """One prompt: a text, or the messages of a chat."""

    id: OptionalText = Field(None, description="Its name in the records; left out: its number.")
    prompt: OptionalText = Field(None, description="The text.")
    messages: Annotated[tuple[Message, ...] | None, NonEmpty, OrNone] = Field(
        None, description="The chat, up to the answer."
    )

    @model_validator(mode="after")
    def _one_of_both(self) -> PromptEntry:
        if (self.prompt is None) == (self.messages is None):
            refuse("must have exactly one of `prompt` and `messages`")
        return self


def _prompt(value: Any) -> Any:
    return {"prompt": value} if isinstance(value, str) else value


class RepeatsSection(Section):
    """How often a workload is sent to each configuration: once a window."""

    min: Positive = Field(Repeats.min, description="Windows at least; an interval needs two.")
    max: Positive = Field(Repeats.max, description="Windows at most.")
    relative_ci: Annotated[Number, Field(gt=0, lt=1)] = Field(
        Repeats.relative_ci,
        description="Enough when half the 95 % interval ÷ the mean is at most this.",
    )

    @model_validator(mode="after")
    def _in_order(self) -> RepeatsSection:
        if self.min > self.max:
            refuse(f"min {self.min} is above max {self.max}")
        if self.min < 2:  # noqa: PLR2004 - an interval needs two values
            refuse("one window has no interval of confidence", "write min: 2 or more")
        return self


class WorkloadSection(Section):
    """Prompts, how they are sent, and at which concurrencies."""

    name: Name = Field(description="Its name in tables.")
    prompt_set: Annotated[Annotated[str, one_of(PROMPT_SETS), enum(PROMPT_SETS)] | None, OrNone] = (
        Field(None, description="A set of prompts that comes with sweep.")
    )
    prompts_file: OptionalText = Field(
        None, description="File beside this one: .jsonl (prompt or messages a line), or text lines."
    )
    prompts: Annotated[
        tuple[Annotated[PromptEntry, BeforeValidator(_prompt), _PROMPT], ...] | None,
        NonEmpty,
        OrNone,
    ] = Field(None, description="The prompts themselves.")
    messages: Annotated[tuple[Message, ...] | None, NonEmpty, OrNone] = Field(
        None, description="One chat, as the only prompt."
    )
    max_tokens: Positive = Field(Workload.max_tokens, description="Tokens of an answer at most.")
    ignore_eos: Boolean = Field(
        Workload.ignore_eos, description="Go on to max_tokens whatever the model says."
    )
    temperature: Annotated[Number, Field(ge=0, le=2)] = Field(
        Workload.temperature, description="0 is greedy, and comparable between configurations."
    )
    concurrency: Counts = Field((1,), description="Requests in flight; each is a trial.")
    repeats: RepeatsSection = Field(RepeatsSection(), description="How many windows.")
    api: Annotated[Literal["native", "completions", "chat"], Choice] = Field(
        Workload.api, description="The server's own API, or OpenAI's completions or chat."
    )


class AtSection(Section):
    """The trial of each configuration that is looked at."""

    workload: Annotated[Name | None, OrNone] = Field(None, description="Left out: the first.")
    concurrency: Annotated[Positive | None, OrNone] = Field(
        None, description="Left out: the workload's first."
    )


class ConstraintSection(Section):
    """A limit that the winner must keep."""

    metric: Annotated[str, one_of(CONSTRAINT_METRICS), enum(CONSTRAINT_METRICS)] = Field(
        description="A column."
    )
    at_most: Annotated[Number | None, OrNone] = Field(None, description="Upper limit.")
    at_least: Annotated[Number | None, OrNone] = Field(None, description="Lower limit.")

    @model_validator(mode="after")
    def _limits(self) -> ConstraintSection:
        if self.at_most is None and self.at_least is None:
            refuse("limits nothing", "give at_most or at_least")
        return self


class ObjectiveSection(Section):
    """What wins."""

    metric: Annotated[str, one_of(OBJECTIVE_METRICS), enum(OBJECTIVE_METRICS)] = Field(
        Objective.metric, description="The column to be largest."
    )
    at: AtSection = Field(AtSection(), description="Where it is looked at.")
    constraints: tuple[ConstraintSection, ...] = Field((), description="What the winner must keep.")


class TimeoutsSection(Section):
    """Deadlines, such as 90s, 30m or 2h."""

    load: Duration = Field(Timeouts.load_s, description="From start to the first token.")
    stall: Duration = Field(Timeouts.stall_s, description="Without any sign of progress.")
    request: Duration = Field(Timeouts.request_s, description="One request.")
    claim: Duration = Field(Timeouts.claim_s, description="Waiting for the node to be free.")


class ProfileSection(Section):
    """Phase timings of every cycle, taken inside the engine."""

    every_cycles: Positive = Field(
        Profile.every_cycles,
        description="A summary is printed into the server's log after so many cycles.",
    )
    compare: Boolean = Field(
        Profile.compare,
        description="Also launch the first configuration with speculation without the probe, and "
        "report what the probe costs.",
    )
    trace: Boolean = Field(
        Profile.trace,
        description="When all is measured, let the server's own profiler trace a few steps of each "
        "configuration, and report what verification spends its time on.",
    )


class BudgetSection(Section):
    """Limits of the whole sweep."""

    launches: Annotated[Positive | None, OrNone] = Field(None, description="Launches at most.")
    hours: Annotated[Annotated[Number, Field(gt=0)] | None, OrNone] = Field(
        None, description="Hours at most."
    )


class ExperimentFile(Section):
    """An experiment: which settings of speculative decoding are fastest on a server."""

    name: Name = Field(description="Names the sweep and its directory.")
    node: NodeSection = Field(NodeSection(), description="Where to launch.")
    nodes: Annotated[tuple[NodeSection, ...] | None, NonEmpty, OrNone] = Field(
        None,
        description="Several machines that work at the same time, instead of node.",
        json_schema_extra={"minItems": 1},
    )
    engine: EngineSection = Field(description="The server.")
    baseline: Boolean = Field(
        True, description="Also measure without speculation, first and last of each arm."
    )
    sweep: SweepSection = Field(SweepSection(), description="What is varied.")
    exclude: tuple[dict[Text, AxisValues], ...] = Field(
        (), description="Combinations to leave out: those that match every key of an entry."
    )
    workloads: Annotated[tuple[WorkloadSection, ...], NonEmpty] = Field(
        description="What is sent to each configuration.", json_schema_extra={"minItems": 1}
    )
    objective: ObjectiveSection = Field(ObjectiveSection(), description="What wins.")
    timeouts: TimeoutsSection = Field(TimeoutsSection(), description="Deadlines on the node.")
    strategy: Annotated[Literal["grid"], Choice] = Field(
        "grid", description="Which configurations are launched: grid is all of them."
    )
    budget: BudgetSection = Field(BudgetSection(), description="Limits of the whole sweep.")
    profile: Annotated[ProfileSection | None, OrNone] = Field(
        None, description="Time the phases of every cycle inside the engine; left out: no probe."
    )
    keep: Boolean = Field(
        False, description="Keep launch directories on the node after they were fetched."
    )


class _EditorSchema(GenerateJsonSchema):
    """JSON Schema whose defaults are those that could be written into the file."""

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> dict[str, Any]:
        """Leave out a default that is not of the type that the file holds."""
        inner = self.generate_inner(schema["schema"])
        kinds = {"string": str, "integer": int, "number": float, "boolean": bool}
        wanted = kinds.get(str(inner.get("type")))
        if wanted is None or not isinstance(schema.get("default"), wanted):
            return inner
        return super().default_schema(schema)


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of the experiment file, for editors."""
    schema = ExperimentFile.model_json_schema(schema_generator=_EditorSchema)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
