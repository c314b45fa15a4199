"""What engines that compile kernels when they start need: compilers, and caches for the results."""

from __future__ import annotations

import os
import shutil
import tempfile
from typing import Any, Dict, List, Mapping, Optional

from sweep.agent.facts.storage import disk_facts

_COMPILERS = ("gcc", "g++", "ninja", "nvcc")
_CUDA_HOME = "/usr/local/cuda"


def compilers(environment: Mapping[str, str], python: Optional[str]) -> Dict[str, Optional[str]]:
    """Return where each compiler is found by a server with this environment, None: nowhere.

    The directory of the engine's Python comes first, as in an activated environment.
    """
    own = [os.path.dirname(python)] if python and "/" in python else []
    places = [*own, environment.get("PATH", os.defpath)]
    places.append(os.path.join(environment.get("CUDA_HOME") or _CUDA_HOME, "bin"))
    path = os.pathsep.join(places)
    return {name: shutil.which(name, path=path) for name in _COMPILERS}


def caches(environment: Mapping[str, str], user: str) -> List[Dict[str, Any]]:
    """Return the directories where compiled kernels are kept, each with its `disk_facts`."""
    home = environment.get("HOME") or os.path.expanduser("~")
    cache = environment.get("XDG_CACHE_HOME") or os.path.join(home, ".cache")
    flashinfer = environment.get("FLASHINFER_WORKSPACE_BASE") or home
    temporary = environment.get("TMPDIR") or tempfile.gettempdir()
    places = {
        "user cache": cache,
        "Triton": environment.get("TRITON_CACHE_DIR") or os.path.join(home, ".triton", "cache"),
        "FlashInfer": os.path.join(flashinfer, ".cache", "flashinfer"),
        "TorchInductor": environment.get("TORCHINDUCTOR_CACHE_DIR")
        or os.path.join(temporary, "torchinductor_" + user),
        "CUDA": environment.get("CUDA_CACHE_PATH") or os.path.join(home, ".nv", "ComputeCache"),
    }
    return [{"name": name, **disk_facts(path)} for name, path in places.items()]
