"""What a node answered when it was asked before a sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sweep.model.experiment import NodeSpec
from sweep.model.plan import SetupLayer
from sweep.ports import EngineFacts, Reached
from sweep.spec.plan import KnownNode


@dataclass(frozen=True)
class Facts:
    """What the agent's `inspect` answered for one node, and how the node was reached."""

    spec: NodeSpec
    answer: Mapping[str, Any]
    paths: Sequence[str]
    workdir: str
    gpus: Sequence[Mapping[str, Any]] = field(default_factory=tuple)
    """The GPUs that this experiment asks for, in the order that it names them."""
    reached: Reached | None = None
    """None: it is this machine."""
    clock_ahead_s: float | None = None
    """The node's time of day minus this machine's, for display only."""

    @property
    def node(self) -> str:
        """The node's name."""
        return self.spec.name

    @property
    def engine_version(self) -> str | None:
        """First line that the engine's version command printed; None: it said nothing."""
        version = self.answer["version"] or {}
        return version.get("line")

    @property
    def engine(self) -> EngineFacts:
        """What the engine's rules depend on."""
        version = self.answer["version"] or {}
        capabilities = {gpu.get("compute_capability") for gpu in self.gpus}
        configs = {
            name: model["config"].get("architecture")
            for name, model in (self.answer["models"] or {}).items()
        }
        return EngineFacts(
            self.engine_version,
            version.get("details") or {},
            tuple(sorted(text for text in capabilities if text)),
            {name: text for name, text in configs.items() if text},
            len(self.gpus),
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
        return {**(self.answer["paths"] or {}), **cached}

    @property
    def changes(self) -> Mapping[str, Any]:
        """Commit and uncommitted changes of the engine's package by Python, where there are."""
        return {
            python: [package["commit"], package["state"]]
            for python, package in (self.answer["packages"] or {}).items()
            if package["error"] is None and (package["commit"] or package["state"])
        }

    @property
    def identity(self) -> Mapping[str, Any]:
        """What makes a result of this node reusable: its GPUs in the order asked for, the
        engine's version and changes, size and time of every model file. Another file under the
        same name is another model, and another GPU under the same index another machine."""
        return {
            "gpus": [gpu["uuid"] for gpu in self.gpus],
            "engine_version": self.engine_version,
            "engine_changes": self.changes,
            "files": dict(self.files),
        }

    @property
    def known(self) -> KnownNode:
        """What planning needs to know of the node."""
        return KnownNode(self.identity, self.engine, self.setup)

    @property
    def setup(self) -> SetupLayer:
        """What engine.setup changes of the node's environment."""
        found = self.answer["setup"]
        if found is None:
            return SetupLayer()
        return SetupLayer(found["env"], tuple(found["unset"]), tuple(found["path_first"]))

    @property
    def claimed(self) -> frozenset[str]:
        """Names of what a launch on the node claims."""
        return frozenset(f"gpu-{gpu['uuid']}" for gpu in self.gpus) or frozenset({"node"})
