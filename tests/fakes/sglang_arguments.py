"""Runs in an SGLang's own Python: what its argument code makes of command lines.

Standard input: a JSON list of argument lists. Standard output, last line: for each, null where it
is refused, else the settings that are in effect.
"""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

SETTINGS = (
    "speculative_algorithm", "speculative_num_steps", "speculative_eagle_topk",
    "speculative_num_draft_tokens", "max_running_requests",
)  # fmt: skip


def resolved(argv: list[str]) -> dict[str, Any] | None:
    """The settings that SGLang would run with."""
    from sglang.srt.arg_groups.overrides import resolved_view  # noqa: PLC0415
    from sglang.srt.server_args import prepare_server_args  # noqa: PLC0415

    try:
        arguments = prepare_server_args(argv)
        arguments.resolve_once()
        view = resolved_view(arguments)
    except (Exception, SystemExit):  # noqa: BLE001 - any of them is a refusal
        return None
    return {name: getattr(view, name) for name in SETTINGS}


def main() -> None:
    """Answer every case."""
    logging.disable(logging.CRITICAL)
    cases = json.load(sys.stdin)
    answers = [resolved(case) for case in cases]
    sys.stdout.write("\n" + json.dumps(answers) + "\n")


if __name__ == "__main__":
    main()
