"""Asking an installed SGLang: with an argument parser and tokenizers of the same shape."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sweep.engines.sglang.arguments import ASKING
from sweep.inside import sglang
from sweep.nodes.archive import agent_archive


def test_flags_with_the_values_they_take() -> None:
    """Every long spelling of each, and null where anything is taken."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--model-path", "--model", "-m")
    parser.add_argument("--backend", choices=["triton", "fa3"])
    parser.add_argument("--trust-remote-code", action="store_true")
    assert sglang.flags(parser) == {
        "model-path": None,
        "model": None,
        "backend": ["triton", "fa3"],
        "trust-remote-code": None,
    }


class Tokenizer:
    """One number for each character; a chat begins each message with the role's initial."""

    chat_template: str | None = "a template"

    def encode(self, text: str) -> list[int]:
        """Tokens of a text."""
        return [ord(character) for character in text]

    def apply_chat_template(self, chat: list[dict[str, str]], **options: Any) -> list[int]:
        """Tokens of a chat."""
        assert options == {"tokenize": True, "add_generation_prompt": True, "return_dict": False}
        return self.encode("".join(item["role"][0] + item["content"] for item in chat) + ">")


class Plain(Tokenizer):
    """A model that was never taught to chat."""

    chat_template = None


def test_a_prompt_is_rendered_as_a_chat() -> None:
    """Up to where the answer begins; as it is where there is no template."""
    chat = [["system", "be short"], ["user", "hi"]]
    assert bytes(sglang.render(Tokenizer(), chat)) == b"sbe shortuhi>"
    assert bytes(sglang.render(Plain(), [["user", "hi"]])) == b"hi"
    with pytest.raises(ValueError, match="no chat template"):
        sglang.render(Plain(), chat)


PACKAGE = {
    "sglang/__init__.py": "",
    "sglang/srt/__init__.py": "print('noise of an import')\n",
    "sglang/srt/server_args.py": """
class ServerArgs:
    @staticmethod
    def add_cli_args(parser):
        parser.add_argument("--page-size", type=int)
""",
    "sglang/srt/hf_transformers_utils.py": """
class Tokenizer:
    chat_template = None
    def encode(self, text):
        return [len(text)]
def get_tokenizer(path, tokenizer_mode, trust_remote_code, tokenizer_revision):
    if path == "broken":
        raise OSError("no tokenizer.json in broken")
    return Tokenizer()
""",
    "sglang-0.5.2.dist-info/METADATA": "Metadata-Version: 2.1\nName: sglang\nVersion: 0.5.2\n",
}


def ask(directory: Path, files: dict[str, str], asked: Any) -> tuple[int, list[str]]:
    """Exit code and lines of the program, as the agent runs it, over a package of these files."""
    for name, text in files.items():
        path = directory / "packages" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    name, data = agent_archive()
    (directory / name).write_bytes(data)
    environment = {
        **os.environ,
        "SWEEP_AGENT": str(directory / name),
        "PYTHONPATH": str(directory / "packages"),
    }
    done = subprocess.run(
        [sys.executable, "-c", ASKING],
        input=json.dumps(asked), capture_output=True, text=True, env=environment, timeout=60,
        check=False,
    )  # fmt: skip
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()


def question(path: str) -> Any:
    """What the controller asks."""
    tokenizer = {"path": path, "mode": "auto", "trust_remote_code": False, "revision": None}
    return {"tokenizer": tokenizer, "prompts": {"code": [[["user", "four"]], [["user", "six6"]]]}}


def test_the_program_answers_in_two_lines(tmp_path: Path) -> None:
    """Whatever the modules print while they are imported."""
    code, lines = ask(tmp_path, PACKAGE, question("model"))
    assert (code, lines[0], len(lines)) == (0, "sglang 0.5.2", 2)
    assert json.loads(lines[1]) == {
        "flags": {"page-size": None},
        "token_ids": {"code": [[4], [4]]},
    }


def test_a_tokenizer_that_cannot_be_loaded_is_no_broken_engine(tmp_path: Path) -> None:
    """The flags are there, and why the prompts are not."""
    code, lines = ask(tmp_path, PACKAGE, question("broken"))
    found = json.loads(lines[1])
    assert (code, "token_ids" in found) == (0, False)
    assert found["rendering_error"] == "OSError: no tokenizer.json in broken"


def test_an_installation_that_cannot_be_imported_says_why(tmp_path: Path) -> None:
    """On the first line, with an exit code."""
    broken = {**PACKAGE, "sglang/srt/server_args.py": "import no_such_library\n"}
    code, lines = ask(tmp_path, broken, question("model"))
    assert code == 1
    assert lines == [
        "SGLang cannot be imported: ModuleNotFoundError: No module named 'no_such_library'"
    ]
