"""The prompt sets that come with sweep, one file of JSON lines each."""

from __future__ import annotations

from importlib import resources

PROMPT_SETS = ("code", "chat", "math", "long-context")


def packaged_text(name: str) -> str:
    """Return the text of a packaged set: JSON lines of `id` and `prompt`."""
    return resources.files("sweep.spec").joinpath("prompts", f"{name}.jsonl").read_text("utf-8")
