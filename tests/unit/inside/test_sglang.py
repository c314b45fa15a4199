"""The program that asks an installed SGLang, over packages of the same shape."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sweep.inside import sglang

ARGUMENTS = """
class ServerArgs:
    @staticmethod
    def add_cli_args(parser):
        parser.add_argument("--tp-size", type=int)
        parser.add_argument("--attention-backend", choices=["triton", "fa3"])
"""
TOKENIZER = """
class Tokenizer:
    chat_template = None
    def encode(self, text):
        return [len(word) for word in text.split()]
def get_tokenizer(path, tokenizer_mode, trust_remote_code, tokenizer_revision):
    return Tokenizer()
"""
NEW, OLD = "srt/utils/hf_transformers_utils.py", "srt/hf_transformers_utils.py"
ASKED = {
    "tokenizer": {"path": "m", "mode": "auto", "trust_remote_code": False, "revision": None},
    "prompts": {"code": [[["user", "one three five"]]]},
}


def ask(root: Path, **files: str) -> dict[str, Any]:
    """Ask an SGLang of these modules; returns what it answers."""
    package = root / "sglang"
    information = root / "sglang-9.9.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: sglang\nVersion: 9.9\n")
    for name, text in {"srt/server_args.py": ARGUMENTS, **files}.items():
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for folder in [package, *(path for path in package.rglob("*") if path.is_dir())]:
        (folder / "__init__.py").touch()
    ended = subprocess.run(
        [sys.executable, "-c", Path(sglang.__file__).read_text() + "\nmain()\n"],
        input=json.dumps(ASKED),
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(root)},
        timeout=30,
        check=True,
    )
    version, answer = ended.stdout.splitlines()
    assert version == "sglang 9.9"
    found: dict[str, Any] = json.loads(answer)
    return found


@pytest.mark.parametrize("name", [NEW, OLD])
def test_flags_and_tokens_of_either_generation(tmp_path: Path, name: str) -> None:
    """Wherever the tokenizer's module lies."""
    found = ask(tmp_path, **{name: TOKENIZER})
    assert found["flags"] == {"tp-size": None, "attention-backend": ["triton", "fa3"]}
    assert found["token_ids"] == {"code": [[3, 5, 4]]}


@pytest.mark.parametrize(("method", "able"), [("activate_step_by_batch", True), ("other", False)])
def test_whether_requests_could_choose_the_steps(tmp_path: Path, method: str, able: bool) -> None:
    """By the source of the installed version, which is not executed."""
    source = f"import no_such_gpu\nclass AdaptiveController:\n    def {method}(self, batch_size):\n"
    found = ask(tmp_path, **{"srt/speculative/adaptive_runtime_state.py": source})
    assert found["changes_steps"] is able


def test_a_version_without_adaptive_speculation(tmp_path: Path) -> None:
    """It has no such module."""
    assert ask(tmp_path)["changes_steps"] is False


def test_what_the_tokenizer_lacks_is_named(tmp_path: Path) -> None:
    """A package that is not installed, and not that the tokenizer cannot be found."""
    found = ask(tmp_path, **{NEW: "import no_such_vision\n" + TOKENIZER})
    assert found["rendering_error"] == ("ModuleNotFoundError: No module named 'no_such_vision'")


def test_a_tokenizer_that_is_nowhere(tmp_path: Path) -> None:
    """Both places are named."""
    assert "is in none of sglang.srt.utils.hf_tr" in ask(tmp_path)["rendering_error"]
