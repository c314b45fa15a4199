"""The user's own setup on a node: what it changes, or which line of it failed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sweep.check.facts import Facts
from sweep.check.line import CheckLine, error, ok, warning
from sweep.check.wording import some
from sweep.model.redaction import redact_shell


def lines(facts: Facts) -> Iterator[CheckLine]:
    """Yield what is to be said of engine.setup; nothing when the file has none."""
    found, layer = facts.answer["setup"], facts.setup
    if found is None:
        return
    if found["error"] is not None:
        yield error(
            "setup",
            _failure(found["error"]),
            "correct engine.setup: bash runs it on the node, in the home directory",
        )
        return
    parts = [f"puts {', '.join(layer.path_first)} first in PATH"] if layer.path_first else []
    parts += [f"sets {some(sorted(layer.env))}"] if layer.env else []
    parts += [f"unsets {some(layer.unset)}"] if layer.unset else []
    yield ok("setup", "; ".join(parts) or "changes nothing in the environment")
    if found["ended"]:
        commands = some([f"`{redact_shell(each)}`" for each in found["ended"]])
        yield warning(
            "setup",
            f"it left processes running, which were ended: {commands}",
            "start nothing in engine.setup that the server needs: only its environment is kept",
        )


def _failure(failed: Mapping[str, Any]) -> str:
    output = redact_shell(failed["output"])
    if failed["line"] is None:
        return output
    code = failed["returncode"]
    how = failed["killed"] or f"failed (exit {code})"
    line = f"line {failed['number']}, `{redact_shell(failed['line'])}`, {how}"
    return f"{line}: {output}" if output else line
