"""Compilers and caches of a server with a given environment."""

from __future__ import annotations

from pathlib import Path

from sweep.agent.facts import toolchain


def program(path: Path) -> str:
    """Make an executable."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return str(path)


def test_compilers_are_found_where_a_server_would(tmp_path: Path) -> None:
    """Beside its Python first, then on its PATH; nvcc in CUDA_HOME too."""
    ninja = program(tmp_path / "venv" / "bin" / "ninja")
    program(tmp_path / "bin" / "ninja")
    gcc = program(tmp_path / "bin" / "gcc")
    nvcc = program(tmp_path / "cuda" / "bin" / "nvcc")
    environment = {"PATH": str(tmp_path / "bin"), "CUDA_HOME": str(tmp_path / "cuda")}
    found = toolchain.compilers(environment, str(tmp_path / "venv" / "bin" / "python"))
    assert found == {"gcc": gcc, "g++": None, "ninja": ninja, "nvcc": nvcc}


def test_caches_by_their_variables(tmp_path: Path) -> None:
    """Each library's own variable, else its place below the home."""
    home = str(tmp_path)
    places = {
        cache["name"]: cache["path"]
        for cache in toolchain.caches({"HOME": home, "TMPDIR": f"{home}/t"}, "ann")
    }
    assert places == {
        "user cache": f"{home}/.cache",
        "Triton": f"{home}/.triton/cache",
        "FlashInfer": f"{home}/.cache/flashinfer",
        "TorchInductor": f"{home}/t/torchinductor_ann",
        "CUDA": f"{home}/.nv/ComputeCache",
    }
    moved = {
        "HOME": home,
        "XDG_CACHE_HOME": "/a",
        "TRITON_CACHE_DIR": "/b",
        "FLASHINFER_WORKSPACE_BASE": "/c",
        "TORCHINDUCTOR_CACHE_DIR": "/d",
        "CUDA_CACHE_PATH": "/e",
    }
    paths = [cache["path"] for cache in toolchain.caches(moved, "ann")]
    assert paths == ["/a", "/b", "/c/.cache/flashinfer", "/d", "/e"]
