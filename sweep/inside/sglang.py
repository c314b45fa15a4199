"""Asks an installed SGLang: its version, the flags that its server takes, and its tokenizer.

Reads a JSON object on standard input (see `answer`), prints the version on the first line and a
JSON object on the second, or why SGLang cannot be asked.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import sys
from importlib import metadata
from typing import Any, Callable, Dict, List, Optional, Sequence

_TOKENIZERS = ("sglang.srt.utils.hf_transformers_utils", "sglang.srt.hf_transformers_utils")
"""Where SGLang makes its tokenizer: since 0.5.3, and before."""

_CONTROLLER = "sglang.srt.speculative.adaptive_runtime_state"
_ASKED = "def activate_step_by_batch("
"""What decodes asks this of adaptive speculation since 0.5.13."""

Json = Dict[str, Any]


def main() -> None:
    """Answer, and end at once: threads of imported modules must not have the last word."""
    asked = json.load(sys.stdin)
    said = os.dup(1)
    # What modules say while they are imported is nobody's answer.
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    try:
        name = "sglang %s" % metadata.version("sglang")
        lines, code = [name, json.dumps(answer(asked))], 0
    except Exception as problem:  # noqa: BLE001 - whatever a broken installation raises
        lines, code = ["SGLang cannot be imported: %s" % _described(problem)], 1
    os.write(said, "".join(line + "\n" for line in lines).encode())
    os._exit(code)


def _described(problem: Exception) -> str:
    return "%s: %s" % (type(problem).__name__, str(problem)[:500])


def answer(asked: Json) -> Json:
    """Return `flags`, `changes_steps`, and `token_ids` of the prompts of each workload, or why
    there are none.

    `asked` holds `tokenizer` (path or name, and how it is loaded) and `prompts`: workload name →
    list of messages, each a list of [role, content].
    """
    found: Json = {"flags": flags(_parser()), "changes_steps": changes_steps()}
    if not asked.get("prompts"):
        return found
    try:
        tokenizer = _tokenizer(**asked["tokenizer"])
        found["token_ids"] = {
            workload: [render(tokenizer, messages) for messages in prompts]
            for workload, prompts in asked["prompts"].items()
        }
    except Exception as problem:  # noqa: BLE001 - tokenizers bring code of their own
        found["rendering_error"] = _described(problem)
    return found


def changes_steps() -> bool:
    """Whether the server asks its policy for the draft steps before it decodes a batch, so that
    the batch's requests can choose them. Read in the source: to import it takes a GPU's libraries.
    """
    try:
        found = importlib.util.find_spec(_CONTROLLER)
        with open(str(found and found.origin), encoding="utf-8") as stream:
            return _ASKED in stream.read()
    except (ImportError, OSError, ValueError):
        return False


def _parser() -> argparse.ArgumentParser:
    arguments = importlib.import_module("sglang.srt.server_args")
    parser = argparse.ArgumentParser(add_help=False)
    arguments.ServerArgs.add_cli_args(parser)
    return parser


def flags(parser: argparse.ArgumentParser) -> Dict[str, Optional[List[str]]]:
    """Return every long flag without its dashes, with the values it takes; null: any."""
    found: Dict[str, Optional[List[str]]] = {}
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way to ask
        choices = None if action.choices is None else [str(choice) for choice in action.choices]
        for name in action.option_strings:
            if name.startswith("--"):
                found[name[2:]] = choices
    return found


def _tokenizer(path: str, mode: str, trust_remote_code: bool, revision: Optional[str]) -> Any:
    return _tokenizers()(
        path,
        tokenizer_mode=mode,
        trust_remote_code=trust_remote_code,
        tokenizer_revision=revision,
    )


def _tokenizers() -> Callable[..., Any]:
    for name in _TOKENIZERS:
        try:
            make: Callable[..., Any] = importlib.import_module(name).get_tokenizer
        except ModuleNotFoundError as problem:  # noqa: PERF203 - two rounds
            # Only that the module itself is elsewhere is no problem; what it needs may be missing.
            if not name.startswith(problem.name or "?"):
                raise
        else:
            return make
    raise ImportError("SGLang's tokenizer is in none of %s" % ", ".join(_TOKENIZERS))


def render(tokenizer: Any, messages: Sequence[Sequence[str]]) -> List[int]:
    """Return the tokens of a chat, up to where the answer begins; of the only message as it is
    where the model has no chat template."""
    if getattr(tokenizer, "chat_template", None) is None:
        if len(messages) > 1:
            raise ValueError("the model has no chat template, and a prompt has several messages")
        return [int(token) for token in tokenizer.encode(messages[0][1])]
    chat = [{"role": role, "content": content} for role, content in messages]
    tokens = tokenizer.apply_chat_template(
        chat, tokenize=True, add_generation_prompt=True, return_dict=False
    )
    return [int(token) for token in tokens]
