"""Formats of the files that controller and agent share. Standard library only, Python >= 3.9.

A launch directory holds
  launch.json     LaunchDoc, written by the controller before the agent starts, never changed
  agent.json      AgentIdent, written by the agent when it has detached
  events.jsonl    one event a line (see EVENTS)
  requests.jsonl  one RequestRecord a line
  chunks.jsonl    per request, the arrival time of each chunk and the text of the answer
  telemetry.jsonl one sample a line (GPUs only)
  cycles.<rank>.jsonl  times and counts of decode cycles, by the engine itself (see cycles.py)
  probe/          the probe, laid out for the server, where the launch has one
  <files>         what LaunchDoc.files names, for the server
  server.log      standard output and standard error of the server
  footprint.json  what the agent has started and found, so that a dead agent's server can be ended
  scrapes/        raw payloads, named <trial_id>.<window>.<before|after>.<name>
  traces/         what the server's own profiler wrote, in a directory by trial_id
  outcome.json    last, written once by rename

Lines end in a newline and are written whole, so a reader that stops at the last newline never
sees half a record. Times ending in `_s` inside events and records are seconds of the node's
monotonic clock, unless said to be an offset or a duration; `utc` is for display.

A change of meaning raises WIRE_VERSION; golden files in the tests hold the bytes.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any, Dict, List, Optional, Tuple

WIRE_VERSION = 3

INSPECTION_PREFIX = "preflight-"
"""Begins the name of the directory of an inspection."""
ASKED_FILE = "asked.json"
"""What an inspection is asked, in its directory."""
STOP_FILE = "stop"
"""Its appearance in the directory of an inspection ends that."""

LAUNCH_FILE = "launch.json"
IDENT_FILE = "agent.json"
EVENTS_FILE = "events.jsonl"
REQUESTS_FILE = "requests.jsonl"
CHUNKS_FILE = "chunks.jsonl"
TELEMETRY_FILE = "telemetry.jsonl"
LOG_FILE = "server.log"
SCRAPES_DIR = "scrapes"
TRACES_DIR = "traces"
PROBE_DIR = "probe"
FOOTPRINT_FILE = "footprint.json"
OUTCOME_FILE = "outcome.json"

NONCE_VARIABLE = "SWEEP_NONCE"
AGENT_VARIABLE = "SWEEP_AGENT"
"""In the environment of what the agent starts: the path of its own archive, which holds the
simulated server too."""

PHASES = (
    "claim", "clean", "start", "load", "ready",
    "pin", "warmup", "flush", "throwaway", "scrape", "measure", "trace",
    "collect", "stop", "verify", "release",
)  # fmt: skip
"""In order; `pin` to `measure` repeat for each trial and window, and `trace` for each trial that
is traced, when all trials have ended."""

EVENTS = {
    "agent": "first line: pid, start_ticks, boot_id, wire, python, host, user, clock_utc",
    "phase": "phase entered: phase, trial (or null), window (or null)",
    "claim_wait": "who holds the claim: owner",
    "busy": "someone else uses our GPUs: processes",
    "server_started": "pid, start_ticks, port",
    "port_open": "our process listens",
    "healthy": "first good answer of the health call",
    "first_token": "first generated token of the readiness request",
    "in_force": "what the server says of a trial that is pinned, before its first window and after "
    "its last: trial, values (in the order of TrialDoc.expects; null: it does not say)",
    "settings": "what the server says it runs with: values (by LaunchDoc.settings_at's names; one "
    "that it does not say is left out; null: it did not answer)",
    "milestone": "a load milestone in the log: name, line",
    "pattern": "a fatal pattern in the log: name, line",
    "server_exit": "returncode (negative: signal), phase",
    "deadline": "a deadline passed: which (load, stall, request, trial, launch), limit_s",
    "stall": "no progress for limit_s: gpu_busy (or null)",
    "flush": "the cache flush: trial, window, confirmed (bool), tries, status (null: no answer)",
    "window": "a window ended: trial, window, complete, start_s, end_s, requests_ok, "
    "requests_error, output_tokens (null: not reported by the server)",
    "trial_end": "trial, end (see TRIAL_ENDS), windows, detail",
    "trace": "the server's profiler was tried: trial, files (names in traces/<trial>, in order), "
    "problem (null: none)",
    "stopping": "someone asked: by (signal or verb)",
    "stopped": "the server is gone: how (term, kill, itself), seconds",
    "dirty": "what is left on the node: left (list of sentences)",
    "clean": "proof: nothing of ours is left",
    "error": "the agent itself failed: message, traceback",
    "outcome": "last line: end, phase, clean",
}
"""Kinds of events with their fields beside v, n, t_s (monotonic), utc, event."""

TRIAL_ENDS = (
    "complete", "errors", "stalled", "deadline", "server_exit", "stopped", "not_pinned",
)  # fmt: skip
"""complete: the repeat rule is satisfied; errors: too many requests failed; not_pinned: the server
runs with other settings than the trial's."""

OUTCOME_ENDS = (
    "done", "server_exit", "load_timeout", "not_ready", "stalled", "claim_timeout",
    "claim_failed", "deadline", "stopped", "start_failed", "error",
)  # fmt: skip
"""How a launch ended. not_ready: healthy, but no token within the load deadline. stalled: no
progress while loading. claim_failed: a lock file cannot be used. start_failed: the argv could not
be executed."""

Json = Dict[str, Any]
KeyPath = List[Any]
"""Keys and indices that lead into a JSON value."""


@dataclass(frozen=True)
class Pattern:
    """A regular expression searched in each line of the server's log."""

    name: str
    regex: str


@dataclass(frozen=True)
class HttpCall:
    """One plain HTTP request to the server; `ok` are the statuses that mean success."""

    path: str
    method: str = "GET"
    body: Optional[Json] = None
    ok: List[int] = field(default_factory=lambda: [200])
    name: str = ""


@dataclass(frozen=True)
class Answer:
    """Where things stand in a generation answer. Each entry is a list of alternative key paths:
    the first that leads to a value that is not null counts. Streaming answers are searched in
    every chunk and the last value found counts; `text_at` is joined over chunks, the first
    text that is not empty of each."""

    text_at: List[KeyPath]
    output_tokens_at: List[KeyPath]
    input_tokens_at: List[KeyPath]
    cached_tokens_at: List[KeyPath] = field(default_factory=list)
    tokens_so_far_at: List[KeyPath] = field(default_factory=list)
    """Cumulative count inside each chunk, where the engine reports it."""
    meta_at: Dict[str, KeyPath] = field(default_factory=dict)
    """Raw values copied into the record's `meta` under the given names, as they are."""
    text_cumulative: bool = False
    """Each chunk holds the whole text so far, as with SGLang's /generate; not joined then."""


@dataclass(frozen=True)
class Request:
    """One generation request: JSON body and whether the answer streams (server-sent events)."""

    path: str
    body: Json
    prompt: str
    """The prompt's id in records."""
    stream: bool = True


@dataclass(frozen=True)
class Repeats:
    """Windows stop after `min` when t_quantiles[n] * stdev / sqrt(n) / mean of the window
    throughputs is at most relative_ci, and at `max` in any case. t_quantiles[n] is Student's
    two-sided 95 % quantile for n windows, as a list indexed by n (0 and 1 are null)."""

    min: int
    max: int
    relative_ci: float
    t_quantiles: List[Optional[float]]


@dataclass(frozen=True)
class Expected:
    """A value that the server must say is in force while a trial runs, and where it says so: in
    the first answer to EngineDoc.settings."""

    at: KeyPath
    value: Any


@dataclass(frozen=True)
class TrialDoc:
    """What the agent does for one trial. A window sends `requests` once, in order, from a
    closed loop of `concurrency` streams."""

    trial_id: str
    label: str
    concurrency: int
    requests: List[Request]
    warmup: List[Request]
    throwaway: Request
    repeats: Repeats
    answer: Answer
    pin: List[HttpCall] = field(default_factory=list)
    traced: bool = False
    """Whether the server's profiler traces this trial's warm-up requests, when all trials ended."""
    max_error_share: float = 0.05
    """A window with a larger share of failed requests ends the trial with "errors"."""
    expects: List[Expected] = field(default_factory=list)
    """Asked after the warm-up and after the last window: the trial's own requests have made it so,
    or it ends with "not_pinned"."""


@dataclass(frozen=True)
class Probe:
    """Phase timings of every cycle: the agent puts the probe on the server's PYTHONPATH."""

    every_cycles: int
    """The probe prints a summary into the server's log after so many cycles."""
    allow_list: Optional[str] = None
    """The variable in which the engine lists the plugins it may load: where it is set, the probe
    is added. None: the engine has no such variable."""


@dataclass(frozen=True)
class Trace:
    """A profiler in the server that traces its next steps into a file."""

    start: HttpCall
    """Its window ends by itself after some steps."""
    directory_at: str
    """The key in that call's body for the directory that the server is to write into."""
    stop: HttpCall
    """Ends a window that did not come to its end. It is not called for one that did."""
    suffix: str
    """Of the files; the server may have packed them (.gz)."""
    limit_s: float
    """How long the server may take for a call, and to write its files."""
    most_bytes: int
    """Of all packed files of a trial; the rest is deleted."""


@dataclass(frozen=True)
class EngineDoc:
    """What the agent needs to know of the engine."""

    name: str
    health: HttpCall
    ready: Request
    ready_answer: Answer
    flush: Optional[HttpCall]
    """None: nothing to flush; requests themselves ask for a cold cache."""
    scrapes: List[HttpCall]
    milestones: List[Pattern]
    fatal: List[Pattern]
    probe: Optional[Probe] = None
    """None: the launch measures no phases."""
    settings: List[HttpCall] = field(default_factory=list)
    """Calls of which the first that is answered says what the server runs with, as JSON; versions
    of an engine name it differently. Empty: the engine does not tell."""
    trace: Optional[Trace] = None
    """None: no trial is traced."""


@dataclass(frozen=True)
class ServerFile:
    """A file that the agent writes into the launch directory before the start; its path takes the
    place of argv[at]."""

    at: int
    name: str
    text: str


@dataclass(frozen=True)
class Deadlines:
    """Seconds; `launch_s` bounds the whole attempt."""

    claim_s: float
    load_s: float
    stall_s: float
    request_s: float
    launch_s: float
    stop_s: float = 20.0
    """From SIGTERM to SIGKILL."""
    verify_s: float = 30.0


@dataclass(frozen=True)
class Owner:
    """Who claims: shown to others who find the claim held."""

    user: str
    host: str
    sweep: str


@dataclass(frozen=True)
class LaunchDoc:
    """launch.json: everything the agent needs, as data."""

    sweep_id: str
    launch_id: str
    attempt: int
    nonce: str
    label: str
    argv: List[str]
    port_at: int
    env: Dict[str, str]
    unset: List[str]
    gpus: Optional[List[Any]]
    """Indices or UUIDs; null: every GPU of the node, and none is a node without GPUs."""
    owner: Owner
    engine: EngineDoc
    trials: List[TrialDoc]
    deadlines: Deadlines
    settings_at: Dict[str, KeyPath] = field(default_factory=dict)
    """What of those settings is recorded: name → where it stands in the answer."""
    path_first: List[str] = field(default_factory=list)
    """Directories put in front of the server's PATH."""
    files: List[ServerFile] = field(default_factory=list)
    wire: int = WIRE_VERSION


@dataclass(frozen=True)
class AgentIdent:
    """agent.json: which process runs this launch. Alive when pid, start_ticks (field 22 of
    /proc/PID/stat) and boot_id all still match and the process is no zombie."""

    pid: int
    start_ticks: int
    boot_id: str
    wire: int = WIRE_VERSION


@dataclass(frozen=True)
class ServerIdent:
    """The server process that the agent started."""

    pid: int
    start_ticks: int
    port: int
    returncode: Optional[int] = None


@dataclass(frozen=True)
class FileProof:
    """Size [bytes] and SHA-256 of a finished file."""

    size: int
    sha256: str


@dataclass(frozen=True)
class Outcome:
    """outcome.json: facts only; the controller classifies."""

    end: str
    """One of OUTCOME_ENDS."""
    phase: str
    """The phase in which it ended."""
    detail: Optional[str]
    server: Optional[ServerIdent]
    patterns: List[str]
    """Names of fatal patterns seen, in order, once each."""
    log_tail: List[str]
    """Last lines of server.log (at most 40)."""
    clean: bool
    left: List[str]
    """What is left on the node when not clean."""
    phases_s: Dict[str, float]
    """Duration of each phase, summed over its visits."""
    files: Dict[str, FileProof]
    """Every other file of the directory, by relative name."""
    wire: int = WIRE_VERSION


@dataclass(frozen=True)
class RequestRecord:
    """One line of requests.jsonl. Offsets count from `sent_s`; null: did not happen or was not
    reported, never 0."""

    n: int
    trial: Optional[str]
    window: Optional[int]
    role: str
    """ready, warmup, throwaway, measure or trace."""
    prompt: str
    stream: int
    """Which of the concurrent streams sent it, from 0."""
    sent_s: float
    first_s: Optional[float]
    """Offset of the first chunk with output (text, or a token count that grew); null for an
    answer that does not stream: when its first token came is not known."""
    last_s: Optional[float]
    """Offset of the last chunk with output."""
    end_s: Optional[float]
    """Offset of the end of the answer."""
    status: Optional[int]
    error: Optional[str]
    """Class of error, null: answered. "http 500" (or another status), timeout, stopped, stalled,
    connection refused (or closed, or reset), network error, bad http, bad json, error in answer
    (of status 200), no output (answered 200 without a token)."""
    chunks: int
    """Chunks with output."""
    first_chunk_tokens: Optional[int]
    output_tokens: Optional[int]
    input_tokens: Optional[int]
    cached_tokens: Optional[int]
    text_sha256: Optional[str]
    """Of the whole text in UTF-8; null when the request failed or no text came."""
    meta: Json
    """By Answer.meta_at; `error_message` is what a server said of a failed request."""
    v: int = WIRE_VERSION


def encode(value: Any) -> str:
    """Return one of this module's values as compact JSON on one line."""
    document = asdict(value) if hasattr(value, "__dataclass_fields__") else value
    return json.dumps(document, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def _request(data: Json) -> Request:
    return Request(**data)


def _call(data: Json) -> HttpCall:
    return HttpCall(**data)


def _trial(data: Json) -> TrialDoc:
    values = dict(data)
    values["requests"] = [_request(item) for item in data["requests"]]
    values["warmup"] = [_request(item) for item in data["warmup"]]
    values["throwaway"] = _request(data["throwaway"])
    values["repeats"] = Repeats(**data["repeats"])
    values["answer"] = Answer(**data["answer"])
    values["pin"] = [_call(item) for item in data["pin"]]
    values["expects"] = [Expected(**item) for item in data["expects"]]
    return TrialDoc(**values)


def _trace(data: Json) -> Trace:
    return Trace(**{**data, "start": _call(data["start"]), "stop": _call(data["stop"])})


def _engine(data: Json) -> EngineDoc:
    values = dict(data)
    values["health"] = _call(data["health"])
    values["ready"] = _request(data["ready"])
    values["ready_answer"] = Answer(**data["ready_answer"])
    values["flush"] = _call(data["flush"]) if data["flush"] else None
    values["scrapes"] = [_call(item) for item in data["scrapes"]]
    values["milestones"] = [Pattern(**item) for item in data["milestones"]]
    values["fatal"] = [Pattern(**item) for item in data["fatal"]]
    values["probe"] = Probe(**data["probe"]) if data["probe"] else None
    values["settings"] = [_call(item) for item in data["settings"]]
    values["trace"] = _trace(data["trace"]) if data["trace"] else None
    return EngineDoc(**values)


class WireMismatch(ValueError):
    """A file speaks another version of the formats; the message names both."""


def _checked(data: Json, what: str) -> Json:
    spoken = data.get("wire")
    if spoken != WIRE_VERSION:
        raise WireMismatch(
            "%s speaks wire version %s, this program speaks %s" % (what, spoken, WIRE_VERSION)
        )
    return dict(data)


def decode_launch(text: str) -> LaunchDoc:
    """Read launch.json. Raises WireMismatch, ValueError, TypeError or KeyError."""
    values = _checked(json.loads(text), LAUNCH_FILE)
    values["owner"] = Owner(**values["owner"])
    values["engine"] = _engine(values["engine"])
    values["trials"] = [_trial(item) for item in values["trials"]]
    values["deadlines"] = Deadlines(**values["deadlines"])
    values["files"] = [ServerFile(**item) for item in values["files"]]
    return LaunchDoc(**values)


def decode_ident(text: str) -> AgentIdent:
    """Read agent.json. Raises WireMismatch, ValueError, TypeError or KeyError."""
    return AgentIdent(**_checked(json.loads(text), IDENT_FILE))


def decode_outcome(text: str) -> Outcome:
    """Read outcome.json. Raises WireMismatch, ValueError, TypeError or KeyError."""
    values = _checked(json.loads(text), OUTCOME_FILE)
    if values["server"] is not None:
        values["server"] = ServerIdent(**values["server"])
    values["files"] = {name: FileProof(**proof) for name, proof in values["files"].items()}
    return Outcome(**values)


def decode_request(line: str) -> RequestRecord:
    """Read one line of requests.jsonl. Raises ValueError or TypeError."""
    return RequestRecord(**json.loads(line))


def whole_lines(data: bytes) -> Tuple[List[str], int]:
    """Split `data` into its whole lines and return them with the bytes they took."""
    end = data.rfind(b"\n") + 1
    if end == 0:
        return [], 0
    return data[: end - 1].decode("utf-8", "replace").split("\n"), end
