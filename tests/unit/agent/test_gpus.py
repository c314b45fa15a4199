"""Whether there is an nvidia-smi at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweep.agent import gpus


def test_what_cannot_be_executed_is_no_nvidia_smi(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search of PATH that ends in "permission denied" has found no program, hence no GPUs."""
    (tmp_path / "nvidia-smi").write_text("not executable")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpus.list_gpus() == []
    assert gpus.list_processes() == []


def test_an_nvidia_smi_that_cannot_start_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that is there and cannot run is not the same as none."""
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/no/such/interpreter\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(gpus.GpuError, match="does not answer"):
        gpus.list_gpus()
