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


def test_an_old_driver_does_not_know_compute_capabilities(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It refuses the whole question, and is asked again for the rest."""
    program = tmp_path / "nvidia-smi"
    program.write_text(
        '#!/bin/sh\ncase "$1" in *compute_cap*) echo not a valid field; exit 2;; esac\n'
        'echo "GPU-a, 300.00, 350.00, Enabled"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert gpus.list_details() == {
        "GPU-a": {
            "power_limit_w": 300.0,
            "power_default_limit_w": 350.0,
            "persistence": "Enabled",
        }
    }
