"""One server for several step counts: SGLang's adaptive speculation, with the choice given to the
requests by the probe.

The server keeps attention backends and graphs for every candidate and changes between cycles.
Left to itself it would follow how many tokens are accepted; its configuration keeps it from that,
so that without the probe it stays with the largest candidate, and the trials of others fail.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

from sweep.agent.wire import Expected, Request
from sweep.engines.sglang import arguments, known
from sweep.engines.sglang.known import Known
from sweep.model.experiment import Experiment
from sweep.model.plan import Configuration, ServerCommand, ServerFile, Setting
from sweep.ports import EngineFacts
from sweep.probe.reading import STEPS_ASKED

FILE = "steps.json"
ADAPTIVE, FILE_FLAG = "speculative-adaptive", "speculative-adaptive-config"
_ALGORITHMS = ("EAGLE", "EAGLE3", "NEXTN")
_NEVER = 10**12
"""Batches that SGLang waits before it changes steps by itself."""

_EXCLUSIVE = {
    "enable-dp-attention": "ranks would change steps each for itself",
    "enable-multi-layer-eagle": "its worker holds one step count",
    "enable-two-batch-overlap": "a change of steps would lose its attention backend",
    "enable-pdmux": "a change of steps does not reach its attention backends",
    "enable-lora": "a change of steps does not reach its graphs",
    "enable-hisparse": "it is sized for one step count",
}
"""Flags beside which SGLang leaves adaptive speculation out, or refuses it (0.5.13 to 0.5.23)."""
_REPLICATED = ("dp-size", "attn-dp-size", "pp-size")
_LATENT_BACKENDS = ("flashmla", "cutlass_mla", "trtllm_mla", "cutedsl_mla")


class StepScan:
    """Implements ports.StepScan; `plain` is how a server of one configuration is started."""

    def __init__(self, plain: Callable[[Configuration, Experiment], ServerCommand]) -> None:
        self._plain = plain

    def obstacle(
        self, configuration: Configuration, experiment: Experiment, facts: EngineFacts | None
    ) -> str | None:
        """Say why a configuration needs a server of its own."""
        own = arguments.facts_of(configuration, experiment, facts)
        found = known.read(own, experiment.engine.model)
        return (
            obstacle_in_shape(configuration)
            or _version(found)
            or _arguments(configuration, experiment, found)
        )

    def server(
        self, configurations: Sequence[Configuration], experiment: Experiment
    ) -> ServerCommand:
        """Start with the largest step count: 0.5.15 to 0.5.18 size a buffer by the first one, and
        crash when another needs more of it."""
        steps = sorted({each.num_steps or 0 for each in configurations})
        largest = max(configurations, key=lambda each: each.num_steps or 0)
        plain = self._plain(largest, experiment)
        text = json.dumps({"1": {"candidate_steps": steps, "warmup_batches": _NEVER}})
        argv = (*plain.argv, f"--{ADAPTIVE}", f"--{FILE_FLAG}", FILE)
        settings = {**plain.settings, ADAPTIVE: Setting(("speculative_adaptive",), True)}
        files = (ServerFile(len(argv) - 1, FILE, text),)
        return replace(plain, argv=argv, files=files, settings=settings)

    def asking(self, request: Request, num_steps: int) -> Request:
        """Ask in the request's own parameters: the scheduler hands them to every rank."""
        pin = {"custom_params": {STEPS_ASKED: num_steps}}
        if "sampling_params" in request.body:
            sampling = {**request.body["sampling_params"], **pin}
            return replace(request, body={**request.body, "sampling_params": sampling})
        return replace(request, body={**request.body, **pin})

    def in_force(self, num_steps: int) -> tuple[Expected, ...]:
        """The scheduler's own arguments, which a change of steps updates."""
        state = ["internal_states", 0]
        return (
            Expected([*state, "speculative_num_steps"], num_steps),
            Expected([*state, "speculative_num_draft_tokens"], num_steps + 1),
        )


def obstacle_in_shape(configuration: Configuration) -> str | None:
    """Say why no version of SGLang could; None: some can."""
    if configuration.algorithm not in _ALGORITHMS:
        return f"SGLang changes steps for {', '.join(_ALGORITHMS)} only"
    if configuration.topk not in (None, 1):
        return "SGLang changes steps for topk 1 only"
    return None


def _version(found: Known) -> str | None:
    if found.version is None:
        return "which version of SGLang would run it is not known"
    if found.before(0, 5, 13):
        return f"{found.name} cannot change steps between requests safely: 0.5.13 and newer can"
    missing = [name for name in (ADAPTIVE, FILE_FLAG) if name not in (found.flags or {name})]
    if missing:
        return f"{found.name} on this node has no --{missing[0]}"
    if found.changes_steps is False:
        return f"{found.name} on this node does not ask for the steps before each batch"
    return None


def _arguments(configuration: Configuration, experiment: Experiment, found: Known) -> str | None:
    args = arguments.merged(configuration, experiment)
    for name, why in _EXCLUSIVE.items():
        if args.get(name) is True:
            return f"not with {name}: {why}"
    if "lora-paths" in args:
        return f"not with lora-paths: {_EXCLUSIVE['enable-lora']}"
    for name in _REPLICATED:
        size = args.get(name, 1)
        if isinstance(size, int) and size > 1:
            return f"{name} {size}: which part of the server answers is not known"
    backend = args.get("decode-attention-backend", args.get("attention-backend"))
    latent = backend in _LATENT_BACKENDS or (backend is None and found.latent_attention)
    if latent and found.since(0, 5, 15) and found.before(0, 5, 19):
        return (
            f"{found.name} crashes at a change of steps with {backend or 'the attention backend'} "
            "for latent attention (0.5.15 to 0.5.18): 0.5.19 and newer do not"
        )
    return None
