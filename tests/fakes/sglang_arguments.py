"""Runs in an SGLang's own Python: what its argument code makes of command lines.

Standard input: JSON, a list of cases, each with `capability` of the GPUs that it is to believe in
("12.0"), `env` and `argv`. Standard output, last line: JSON, `version`, `flags` that the server
takes, and `answers`, for each case the settings that are in effect, or {"refused": why}.
"""

from __future__ import annotations

import functools
import gc
import json
import logging
import os
import sys
import tempfile
import types
from collections.abc import Mapping
from importlib import metadata
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

SETTINGS = (
    "speculative_algorithm", "speculative_num_steps", "speculative_eagle_topk",
    "speculative_num_draft_tokens", "max_running_requests", "page_size", "attention_backend",
)  # fmt: skip
_FOR_GPUS = ("sgl_kernel", "flashinfer", "vllm")
_GPUS = 8
_MEMORY_MIB = 97_887
_NVIDIA_SMI = f"""#!/bin/sh
case "$*" in
  *memory.total*) echo {_MEMORY_MIB} ;;
  *compute_cap*) echo "$PRETENDED_CAPABILITY" ;;
  *driver_version*) echo 580.95.05 ;;
esac
"""


class Anything:
    """Stands in for whatever a module for GPUs holds: class, function or constant."""

    def __getattr__(self, name: str) -> Anything:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()

    def __call__(self, *args: object, **kwargs: object) -> Anything:
        """Return the like."""
        return Anything()

    def __mro_entries__(self, bases: object) -> tuple[type, ...]:
        return ()


class GpuModules(MetaPathFinder, Loader):
    """Finds every module of packages that are for GPUs."""

    def find_spec(self, name: str, path: object, target: object = None) -> ModuleSpec | None:
        """Find one of theirs."""
        ours = name.partition(".")[0] in _FOR_GPUS
        return ModuleSpec(name, self, is_package=True) if ours else None

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        """Make a module that has everything."""
        module: Any = types.ModuleType(spec.name)
        module.__version__ = "99.0"
        module.__getattr__ = Anything().__getattr__
        return module  # type: ignore[no-any-return]

    def exec_module(self, module: types.ModuleType) -> None:
        """There is nothing to execute."""


def make_importable() -> None:
    """Give releases what packages newer than theirs have renamed, or taken over from them."""
    sys.meta_path.insert(0, GpuModules())
    import torch  # noqa: PLC0415 - only now is there what they look for
    import transformers  # noqa: PLC0415
    from triton.runtime import cache  # noqa: PLC0415

    # Paths that 0.4.6 imports from here; no argument is read by them.
    for name in ("default_cache_dir", "default_dump_dir", "default_override_dir"):
        if not hasattr(cache, name):
            setattr(cache, name, str)
    # Operators that the stand-ins do not register get no second implementation.
    torch.library.register_fake = lambda *_, **__: lambda function: function
    register = transformers.AutoConfig.register
    transformers.AutoConfig.register = functools.partial(register, exist_ok=True)


def pretend(capability: str) -> None:
    """Have torch and nvidia-smi tell of GPUs, and those ask again who have asked before."""
    import torch  # noqa: PLC0415

    os.environ["PRETENDED_CAPABILITY"] = capability
    major, minor = map(int, capability.split("."))
    memory_bytes = _MEMORY_MIB * 2**20
    cuda: Any = torch.cuda
    torch.version.cuda = "12.9"
    cuda.is_available = lambda: True
    cuda.device_count = lambda: _GPUS
    cuda.current_device = lambda: 0
    cuda.get_device_capability = lambda *_: (major, minor)
    cuda.get_device_name = lambda *_: "NVIDIA GPU"
    cuda.mem_get_info = lambda *_: (memory_bytes, memory_bytes)
    cuda.get_device_properties = lambda *_: types.SimpleNamespace(
        major=major, minor=minor, total_memory=memory_bytes, multi_processor_count=148
    )
    for item in gc.get_objects():
        if isinstance(item, functools._lru_cache_wrapper):
            item.cache_clear()


def resolved(argv: list[str]) -> dict[str, Any]:
    """The settings that SGLang would run with, or why it refuses."""
    from sglang.srt.server_args import prepare_server_args  # noqa: PLC0415

    try:
        view = arguments = prepare_server_args(argv)
        if hasattr(arguments, "resolve_once"):  # since 0.5.19, what is parsed is not yet resolved
            from sglang.srt.arg_groups.overrides import resolved_view  # noqa: PLC0415

            arguments.resolve_once()
            view = resolved_view(arguments)
        if hasattr(arguments, "check_server_args"):
            arguments.check_server_args()
    except (Exception, SystemExit) as problem:  # noqa: BLE001 - any of them is a refusal
        return {"refused": f"{type(problem).__name__}: {problem}"}
    return {name: getattr(view, name) for name in SETTINGS}


def answers(cases: list[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What is made of each case; those of one capability one after another."""
    found = []
    pretended = None
    for case in cases:
        if case["capability"] != pretended:
            pretended = case["capability"]
            pretend(pretended)
        os.environ.update(case["env"])
        found.append(resolved(case["argv"]))
        for name in case["env"]:
            del os.environ[name]
    return found


def main() -> None:
    """Answer every case."""
    logging.disable(logging.CRITICAL)
    cases = json.load(sys.stdin)
    make_importable()
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from sweep.inside import sglang  # noqa: PLC0415

    flags = sglang.flags(sglang._parser())
    with tempfile.TemporaryDirectory() as programs:
        smi = Path(programs, "nvidia-smi")
        smi.write_text(_NVIDIA_SMI)
        smi.chmod(0o755)
        os.environ["PATH"] = f"{programs}:{os.environ['PATH']}"
        found = answers(cases)
    told = {"version": metadata.version("sglang"), "flags": flags, "answers": found}
    sys.stdout.write("\n" + json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
