"""The real SGLang server on a CPU, where scripts/install_sglang_cpu has put it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sweep.model.experiment import (
    Axes,
    EngineSpec,
    Experiment,
    Profile,
    Prompt,
    Repeats,
    Scalar,
    Timeouts,
    Workload,
)

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-sglang" / "bin" / "python"
INSTALLED = "0.5.23"
RELEASES = (*(ROOT / "scripts" / "sglang_cpu" / "releases.txt").read_text().split(), INSTALLED)
"""Of which there are sources."""
MODELS = ROOT / "experiments" / "models"
PROMPTS = (
    Prompt("parse", text='def parse(text):\n    """Return the tokens of a text."""\n'),
    Prompt("add", text="def add(a, b):\n    return"),
    Prompt("story", text="The old man walked to the river and"),
)
ARGS: Mapping[str, Scalar] = {
    "device": "cpu",
    "attention-backend": "torch_native",
    "dtype": "bfloat16",
    "context-length": 512,
    "max-total-tokens": 4096,
    "max-running-requests": 4,
    "mem-fraction-static": 0.3,
    "disable-overlap-schedule": True,
    "skip-server-warmup": True,
}
ENV = {
    "SGLANG_USE_CPU_ENGINE": "1",
    "TORCHDYNAMO_DISABLE": "1",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
}


def missing() -> str | None:
    """Why the server cannot be started here, None: it can."""
    return None if PYTHON.exists() else "scripts/install_sglang_cpu was not run"


def release(version: str) -> Path:
    """The directory to import a release of SGLang from; what it depends on is in PYTHON's."""
    if version == INSTALLED:
        (packages,) = PYTHON.parents[1].glob("lib/python3.*/site-packages")
        return packages
    return PYTHON.parents[1] / "releases" / version


def experiment(
    *,
    profile: Profile | None = None,
    args: Mapping[str, Scalar] | None = None,
    max_tokens: int = 48,
    **fields: Any,
) -> Experiment:
    """EAGLE-3 with three draft steps on the tiny models, one and two requests at a time."""
    engine = EngineSpec(
        kind="sglang",
        python=str(PYTHON),
        model=str(MODELS / "tiny-target"),
        draft_model=str(MODELS / "tiny-eagle3"),
        algorithm="EAGLE3",
        args={**ARGS, **(args or {})},
        env=ENV,
    )
    workload = Workload(
        "code", PROMPTS, max_tokens=max_tokens, ignore_eos=True, concurrency=(1, 2),
        repeats=Repeats(2, 2, 0.5),
    )  # fmt: skip
    values: dict[str, Any] = {"baseline": False, "axes": Axes(num_steps=(3,))} | fields
    return Experiment(
        name="sglang-cpu",
        engine=engine,
        workloads=(workload,),
        timeouts=Timeouts(load_s=300.0, stall_s=200.0, request_s=120.0),
        profile=profile,
        **values,
    )
