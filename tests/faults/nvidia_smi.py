"""A fake nvidia-smi: answers its CSV queries from the JSON file named by FAKE_NVIDIA_SMI.

The file holds a time series, [[monotonic time, state], ...]: the latest state whose time has come
is shown. A state is {"gpus": [{field: value}], "processes": [{"gpu_uuid": ..., "pid": ...}]}, or
{"failure": message}. A field that a GPU lacks is [N/A].
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

PREFIX = ("--query-gpu=", "--query-compute-apps=")


def value_of(argv: list[str], option: str) -> str | None:
    """The word after an option."""
    return argv[argv.index(option) + 1] if option in argv else None


def answer(argv: list[str], state: dict[str, Any]) -> str:
    """The CSV lines for one query."""
    asked = next(word for word in argv if word.startswith(PREFIX))
    option, _, fields = asked.partition("=")
    rows = state["gpus"] if option == "--query-gpu" else state.get("processes", [])
    chosen = value_of(argv, "-i")
    if chosen:
        rows = [row for row in rows if row["uuid"] in chosen.split(",")]
    lines = (", ".join(str(row.get(field, "[N/A]")) for field in fields.split(",")) for row in rows)
    return "".join(line + "\n" for line in lines)


def present() -> dict[str, Any]:
    """The state of now."""
    series = json.loads(Path(os.environ["FAKE_NVIDIA_SMI"]).read_text())
    now_s = time.monotonic()
    state: dict[str, Any] = [state for at_s, state in series if at_s <= now_s][-1]
    return state


def main() -> None:
    """Answer once, or for ever with -l."""
    period = value_of(sys.argv, "-l")
    while True:
        state = present()
        if "failure" in state:
            print(state["failure"])
            sys.exit(9)
        sys.stdout.write(answer(sys.argv[1:], state))
        sys.stdout.flush()
        if period is None:
            return
        time.sleep(float(period))


if __name__ == "__main__":
    main()
