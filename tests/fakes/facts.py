"""Facts of a node: usable unless the test says otherwise."""

from __future__ import annotations

from typing import Any

from sweep.check.facts import Facts
from sweep.model.experiment import NodeSpec
from sweep.ports import Reached

NODE = NodeSpec("n")
GIB = 2**30
DISK: dict[str, Any] = {
    "path": "/w",
    "writable": True,
    "network": False,
    "device": "/dev/sda1",
    "file_system": "ext4",
    "free_bytes": 10**12,
}
REACHED = Reached("ann", "10.0.0.7:22", ("jump",), 0.084, "ssh-ed25519 SHA256:abc")


def gpu(index: int = 0, **changes: Any) -> dict[str, Any]:
    """A GPU."""
    values: dict[str, Any] = {
        "index": index,
        "uuid": f"GPU-{index}",
        "name": "RTX PRO 6000",
        "memory_total_mib": 98304.0,
        "memory_used_mib": 600.0,
        "utilization_percent": 0.0,
        "driver": "580.95",
        "power_limit_w": 450.0,
        "power_default_limit_w": 600.0,
        "compute_capability": "12.0",
        "persistence": "Enabled",
    }
    return values | changes


def process(on: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Somebody's process on a GPU."""
    values: dict[str, Any] = {
        "gpu_uuid": on["uuid"],
        "user": "bob",
        "pid": 4711,
        "name": "python",
        "command": "python train.py --api-key secret",
        "memory_used_mib": 40960.0,
    }
    return values | changes


def claim(resource: str, sweep: str) -> dict[str, Any]:
    """A claim that a sweep holds."""
    reason = f"sweep {sweep} of bob on lab-1 (agent pid 7, since then)"
    return {"resource": resource, "holder": {"sweep": sweep}, "reason": reason}


def model(**changes: Any) -> dict[str, Any]:
    """A model that is there and whole; a change of `config` replaces all of it."""
    values: dict[str, Any] = {
        "kind": "directory",
        "path": "/m",
        "revision": None,
        "offline": None,
        "partial_files": 0,
        "size_bytes": 595 * 10**9,
        "weights": 64,
        "largest": "/m/model-00001-of-00064.safetensors",
        "unread": 0,
        "problems": [],
        "config": {
            "model_type": "llama",
            "hidden_size": 64,
            "vocab_size": 1000,
            "num_hidden_layers": 8,
        },
    }
    return values | changes


def package(**changes: Any) -> dict[str, Any]:
    """An engine's package, untouched."""
    values: dict[str, Any] = {
        "error": None,
        "python": "3.12.3",
        "version": "0.5.23",
        "location": "/opt/venv/lib/python3.12/site-packages",
        "editable": False,
        "commit": None,
        "looked_at": 40,
        "changed": [],
        "instrumented": [],
        "state": None,
    }
    return values | changes


def storage(**changes: Any) -> dict[str, Any]:
    """A disk that was timed."""
    values: dict[str, Any] = {
        **DISK,
        "path": "/m/model-00001-of-00064.safetensors",
        "cached_share": 0.0,
        "bytes_read": 10**9,
        "bytes_per_s": 2e9,
    }
    return values | changes


def machine(**changes: Any) -> dict[str, Any]:
    """A machine with room for everything."""
    values: dict[str, Any] = {
        "python": "3.11.2",
        "cpus": 64,
        "memory_bytes": 1500 * 10**9,
        "memory_available_bytes": 1400 * 10**9,
        "shm_bytes": 750 * 10**9,
        "shm_free_bytes": 750 * 10**9,
        "open_files": [1024, 1048576],
        "locked_memory_bytes": [8388608, 8388608],
        "port_error": None,
        "utc_s": 1.8e9,
    }
    return values | changes


def facts(
    *gpus: dict[str, Any],
    spec: NodeSpec = NODE,
    reached: Reached | None = REACHED,
    clock_ahead_s: float | None = 0.2,
    files: tuple[str, ...] = (),
    **answer: Any,
) -> Facts:
    """A usable node that has these GPUs, all of them asked for, and these files; `answer`
    replaces groups."""
    values: dict[str, Any] = {
        "host": "gpu-box",
        "user": "ann",
        "boot_id": "boot",
        "claim_directory": "/locks",
        "claim_error": None,
        "claims": [],
        "machine": machine(),
        "setup": None,
        "gpus": list(gpus),
        "gpu_error": None,
        "gpu_processes": [],
        "version": {"line": "v1", "returncode": 0, "error": None, "details": None},
        "models": {},
        "packages": {},
        "session": None,
        "compilers": {"gcc": "/usr/bin/gcc", "g++": "/usr/bin/g++", "ninja": None, "nvcc": None},
        "caches": [],
        "paths": {path: {"size": 1} for path in files},
        "workdir": DISK,
        "storage": None,
        "unknown": {},
    } | answer
    return Facts(spec, values, files, "/w", gpus, reached, clock_ahead_s)
