"""Foreign text made safe to show: logs, prompts and labels may hold anything."""

from __future__ import annotations

import re

# Control sequences (CSI), operating system commands (OSC) and two-character escapes of terminals.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])")
# Second control characters, direction marks (they can disguise text) and lone surrogates.
_UNSAFE = re.compile("[\x80-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_PICTURES = {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\n\t"} | {
    0x7F: 0x2421
}


def visible(text: str) -> str:
    """Return text without terminal escapes; other control characters become visible symbols.

    Line feeds and tabs stay; carriage returns become line feeds, as terminals show progress.
    """
    if text.isprintable():
        return text
    bare = _ESCAPES.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return _UNSAFE.sub("\ufffd", bare).translate(_PICTURES)
