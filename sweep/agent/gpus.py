"""GPUs, as nvidia-smi tells. A node without nvidia-smi is a node without GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Sequence

_TIMEOUT_S = 20.0
"""Without persistence mode the driver may need seconds to wake up."""

_FORMAT = "--format=csv,noheader,nounits"


@dataclass(frozen=True)
class Gpu:
    """One GPU; memory in MiB."""

    index: int
    uuid: str
    name: str
    memory_total_mib: Optional[float]
    memory_used_mib: Optional[float]
    utilization_percent: Optional[float]
    driver: str


@dataclass(frozen=True)
class GpuProcess:
    """A process that holds memory of a GPU [MiB]."""

    gpu_uuid: str
    pid: int
    memory_used_mib: Optional[float] = None


class GpuError(RuntimeError):
    """nvidia-smi is there and does not answer; the message says how."""


def number(text: str) -> Optional[float]:
    """Read a figure of nvidia-smi; None for [N/A] and the like."""
    try:
        return float(text)
    except ValueError:
        return None


def rows(output: str) -> List[List[str]]:
    """Split CSV output into its cells."""
    return [
        [cell.strip() for cell in line.split(",")] for line in output.splitlines() if line.strip()
    ]


def query(*arguments: str) -> Optional[str]:
    """Run nvidia-smi; None when there is no such program. Raises GpuError."""
    import shutil  # noqa: PLC0415 - start-up time counts on nodes without GPUs
    import subprocess  # noqa: PLC0415

    # Looked for first: a directory of PATH that cannot be read would say "permission denied".
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    argv = [program, *arguments, _FORMAT]
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise GpuError("nvidia-smi does not answer: %s" % problem) from problem
    output = done.stdout.decode("utf-8", "replace")
    if done.returncode != 0:
        message = (output + done.stderr.decode("utf-8", "replace")).strip()
        raise GpuError("nvidia-smi failed (%d): %s" % (done.returncode, message[:500]))
    return output


_GPU_FIELDS = "index,uuid,name,memory.total,memory.used,utilization.gpu,driver_version"


def parse_gpus(output: str) -> List[Gpu]:
    """Read the answer for the fields of a Gpu."""
    return [
        Gpu(int(row[0]), row[1], row[2], number(row[3]), number(row[4]), number(row[5]), row[6])
        for row in rows(output)
        if len(row) == len(_GPU_FIELDS.split(","))
    ]


def list_gpus() -> List[Gpu]:
    """Return the node's GPUs, [] without nvidia-smi. Raises GpuError."""
    output = query("--query-gpu=" + _GPU_FIELDS)
    return [] if output is None else parse_gpus(output)


_DETAILS = {
    "power_limit_w": "power.limit",
    "power_default_limit_w": "power.default_limit",
    "compute_capability": "compute_cap",
    "persistence": "persistence_mode",
}
_TEXTS = ("compute_capability", "persistence")


def parse_details(output: str, names: Sequence[str]) -> Dict[str, Dict[str, Any]]:
    """Read the answer for the uuid and these details, by UUID; what is not reported is null."""
    found: Dict[str, Dict[str, Any]] = {}
    for row in rows(output):
        if len(row) == len(names) + 1:
            known = {
                name: None if cell.startswith("[") else cell for name, cell in zip(names, row[1:])
            }
            found[row[0]] = {
                name: cell if cell is None or name in _TEXTS else number(cell)
                for name, cell in known.items()
            }
    return found


def list_details() -> Dict[str, Dict[str, Any]]:
    """Return what a person wants to know of each GPU, by UUID. Raises GpuError."""
    names = list(_DETAILS)
    try:
        output = query("--query-gpu=uuid," + ",".join(_DETAILS.values()))
    except GpuError:
        # Drivers before 2021 do not know compute_cap, and refuse the whole question.
        names.remove("compute_capability")
        output = query("--query-gpu=uuid," + ",".join(_DETAILS[name] for name in names))
    return {} if output is None else parse_details(output, names)


def parse_processes(output: str) -> List[GpuProcess]:
    """Read the answer for gpu_uuid,pid,used_memory."""
    return [
        GpuProcess(row[0], int(row[1]), number(row[2]))
        for row in rows(output)
        if len(row) > 2 and row[1].isdigit()  # noqa: PLR2004 - the fields asked for
    ]


def list_processes() -> List[GpuProcess]:
    """Return which process computes on which GPU. Raises GpuError."""
    output = query("--query-compute-apps=gpu_uuid,pid,used_memory")
    return [] if output is None else parse_processes(output)


def select(found: Sequence[Gpu], wanted: Optional[Sequence[Any]]) -> List[Gpu]:
    """Return the GPUs named by index or UUID, all for None. Raises GpuError for unknown ones."""
    if wanted is None:
        return list(found)
    by_name = {gpu.uuid: gpu for gpu in found}
    by_name.update({str(gpu.index): gpu for gpu in found})
    missing = [str(name) for name in wanted if str(name) not in by_name]
    if missing:
        there = ", ".join(str(gpu.index) for gpu in found) or "none"
        raise GpuError("no GPU %s on this node; there are: %s" % (", ".join(missing), there))
    return [by_name[str(name)] for name in wanted]
