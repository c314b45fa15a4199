"""What is asked of a node before anything is started on it, and what must be true of it."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any

from sweep.model.errors import ClaimHeldError, NodeError, SweepError, UnusableError
from sweep.model.experiment import Experiment, NodeSpec
from sweep.nodes.access import agent_python
from sweep.nodes.archive import agent_archive
from sweep.ports import Engine, EngineFacts, Node
from sweep.spec.plan import KnownNode

_INSPECT_TIMEOUT_S = 150.0
_LEAST_FREE_BYTES = 256 * 1024 * 1024
"""On the node's disk: a server's log at its limit."""


@dataclass(frozen=True)
class Facts:
    """What the agent's `inspect` answered for one node."""

    spec: NodeSpec
    answer: Mapping[str, Any]
    paths: Sequence[str]
    workdir: str
    gpus: Sequence[Mapping[str, Any]] = field(default_factory=tuple)
    """The GPUs that this experiment asks for, in the order that it names them."""

    @property
    def node(self) -> str:
        """The node's name."""
        return self.spec.name

    @property
    def engine_version(self) -> str | None:
        """First line that the engine's version command printed; None: it said nothing."""
        version = self.answer.get("version") or {}
        return version.get("line")

    @property
    def engine(self) -> EngineFacts:
        """What the engine's rules depend on."""
        version = self.answer.get("version") or {}
        capabilities = {gpu.get("compute_capability") for gpu in self.gpus}
        configs = {
            name: model["config"].get("architecture")
            for name, model in (self.answer.get("models") or {}).items()
        }
        return EngineFacts(
            self.engine_version,
            version.get("details") or {},
            tuple(sorted(text for text in capabilities if text)),
            {name: text for name, text in configs.items() if text},
        )

    @property
    def files(self) -> Mapping[str, Mapping[str, Any] | None]:
        """Size and time of every model, of those in the hub's cache size and revision; None: it is
        not there."""
        cached = {
            name: {"size": model["size_bytes"], "revision": model["revision"]}
            if model["path"] is not None
            else None
            for name, model in (self.answer["models"] or {}).items()
            if model["kind"] == "hub"
        }
        return {**self.answer["paths"], **cached}

    @property
    def identity(self) -> Mapping[str, Any]:
        """What makes a result of this node reusable: its GPUs in the order asked for, the
        engine's version, size and time of every model file. Another file under the same name is
        another model, and another GPU under the same index another machine."""
        return {
            "gpus": [gpu["uuid"] for gpu in self.gpus],
            "engine_version": self.engine_version,
            "files": dict(self.files),
        }

    @property
    def known(self) -> KnownNode:
        """What planning needs to know of the node."""
        return KnownNode(self.identity, self.engine)


def inspect_all(
    experiment: Experiment, engine: Engine, factories: Mapping[str, Callable[[], Node]]
) -> tuple[Facts, ...]:
    """Ask every node of an experiment, all at the same time, in the order of the file.

    `factories` are by node name. Raises UnusableError, with what every node that failed said.
    """

    def ask(spec: NodeSpec) -> Facts | SweepError:
        try:
            node = factories[spec.name]()
        except NodeError as error:
            return error
        try:
            return inspect(node, spec, experiment, engine)
        except UnusableError as error:
            return error
        finally:
            node.close()

    with ThreadPoolExecutor(len(experiment.nodes), thread_name_prefix="inspect") as pool:
        found = list(pool.map(ask, experiment.nodes))
    errors = [each for each in found if isinstance(each, SweepError)]
    if errors:
        hints = dict.fromkeys(error.hint for error in errors if error.hint)
        raise UnusableError(
            "; ".join(error.message for error in errors), hint="; ".join(hints) or None
        ) from errors[0]
    return tuple(each for each in found if isinstance(each, Facts))


def inspect(node: Node, spec: NodeSpec, experiment: Experiment, engine: Engine) -> Facts:
    """Ask a node for the facts that this experiment needs; raises UnusableError."""
    paths = engine.identity_paths(experiment)
    try:
        home = spec.workdir or node.home()
        asked = {
            "workdir": home,
            "paths": list(paths),
            "version_argv": list(engine.version_argv(experiment)),
            "version_input": dict(engine.version_input(experiment)),
            "env": dict(experiment.engine.env),
            **asdict(engine.installation(experiment)),
        }
        answer = _ask(node, agent_python(spec), home, asked)
    except NodeError as error:
        raise UnusableError(
            error.message, hint=error.hint or "set node.workdir to a directory that can be written"
        ) from error
    return Facts(spec, answer, paths, home, _asked_gpus(spec, answer))


def _ask(node: Node, python: str, home: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    name, archive = agent_archive()
    directory = f"{home}/preflight-{secrets.token_hex(4)}"
    path = f"{directory}/{name}"
    try:
        node.put(path, archive)
        node.put(f"{directory}/asked.json", json.dumps(asked).encode())
        argv = [python, "-I", path, "inspect", f"{directory}/asked.json"]
        ended = node.run(argv, timeout_s=_INSPECT_TIMEOUT_S)
    finally:
        node.remove_tree(directory)
    try:
        answer: dict[str, Any] = json.loads(ended.stdout)
    except ValueError:
        complaint = (ended.stderr or ended.stdout).decode(errors="replace")[-500:]
        raise NodeError(f"{node.name}: the agent cannot inspect the node: {complaint}") from None
    if "error" in answer:
        raise NodeError(f"{node.name}: the agent cannot inspect the node: {answer['error']}")
    return answer


def _asked_gpus(spec: NodeSpec, answer: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    if spec.gpus is None:
        return list(answer["gpus"])
    return [
        gpu for name in spec.gpus for gpu in answer["gpus"] if name in (gpu["index"], gpu["uuid"])
    ]


def problems(facts: Facts) -> list[str]:
    """Return what makes the node unusable for the experiment, each with what to do."""
    answer, spec = facts.answer, facts.spec
    found = [
        f"{path} does not exist on node {facts.node}: correct the path in the experiment file"
        for path in facts.paths
        if answer["paths"].get(path) is None
    ]
    version = answer.get("version")
    if version and version.get("returncode") != 0:
        said = version.get("error") or version.get("line") or f"exit {version.get('returncode')}"
        found.append(f"the server's program cannot be run on node {facts.node}: {said}")
    rendering_error = facts.engine.details.get("rendering_error")
    if rendering_error:
        found.append(
            f"the engine's tokenizer cannot render the prompts on node {facts.node}: "
            f"{rendering_error}"
        )
    if answer.get("gpu_error"):
        found.append(f"nvidia-smi fails on node {facts.node}: {answer['gpu_error']}")
    elif spec.gpus is not None and len(facts.gpus) != len(spec.gpus):
        there = [gpu["index"] for gpu in answer["gpus"]]
        found.append(f"node.gpus asks for {list(spec.gpus)}, node {facts.node} has {there}")
    disk = answer["workdir"]
    if not disk["writable"]:
        found.append(f"{disk['path']} cannot be written on node {facts.node}: set node.workdir")
    if disk["network"]:
        found.append(
            f"{disk['path']} on node {facts.node} is on a network file system "
            f"({disk['file_system']}): set node.workdir to a local disk"
        )
    if disk["free_bytes"] is not None and disk["free_bytes"] < _LEAST_FREE_BYTES:
        found.append(f"{disk['path']} on node {facts.node} has {disk['free_bytes']} bytes free")
    return found


def claimed(facts: Facts) -> set[str]:
    """Return the names of what a launch on the node claims."""
    return {f"gpu-{gpu['uuid']}" for gpu in facts.gpus} or {"node"}


def users(facts: Facts, sweep_id: str | None) -> list[str]:
    """Return who else holds or uses what the experiment would claim; `sweep_id` is our own."""
    claims = [claim for claim in facts.answer["claims"] if claim["resource"] in claimed(facts)]
    ours = {claim["resource"] for claim in claims if claim["holder"]["sweep"] == sweep_id}
    found = [
        f"{claim['resource']} of node {facts.node} is held: {claim['reason']}"
        for claim in claims
        if claim["resource"] not in ours
    ]
    if found:
        return found
    # What uses a GPU that our own sweep holds is the server that we are going to attach to.
    uuids = {gpu["uuid"] for gpu in facts.gpus if f"gpu-{gpu['uuid']}" not in ours}
    return [
        f"GPU {process['gpu_uuid']} of node {facts.node} is used by {process['user']}, "
        f"pid {process['pid']} ({process.get('name')})"
        for process in facts.answer["gpu_processes"]
        if process["gpu_uuid"] in uuids
    ]


def shared(facts: Sequence[Facts]) -> list[str]:
    """Return which nodes are one machine under two names and would claim the same of it."""
    found: list[str] = []
    seen: dict[tuple[str, str, str], str] = {}
    for each in facts:
        for resource in sorted(claimed(each)):
            key = (each.answer["boot_id"], each.answer["claim_directory"], resource)
            other = seen.setdefault(key, each.node)
            if other != each.node:
                found.append(f"nodes {other} and {each.node} are one machine: name it once")
                break
    return found


def require_usable(facts: Sequence[Facts], sweep_id: str | None) -> None:
    """Raise UnusableError with everything that is wrong on any node, ClaimHeldError when someone
    else is there and the experiment does not say to wait."""
    wrong = [problem for each in facts for problem in problems(each)] + shared(facts)
    if wrong:
        raise UnusableError("; ".join(wrong), hint="nothing was started")
    others = [
        user for each in facts if each.spec.on_busy == "fail" for user in users(each, sweep_id)
    ]
    if others:
        raise ClaimHeldError(
            "; ".join(others), hint="wait for it, or set node.on_busy: wait; nothing was started"
        )
