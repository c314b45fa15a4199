"""The fake server behind llama-server's flags: `python llama_server.py --model M --port N [...]`.

What it answers follows from the prompt and the draft length alone, so two runs of one sweep agree
to the token. How it loads and fails is in the environment:

FAKE_OPTIONS   JSON file of server.py's options: under "" those of every launch, under "n" those
               that the launch with draft length n has beside them (0: without a draft)
FAKE_STARTS    file that gets a JSON line per start: pid, start time, nonce, draft length, and
               NCCL's variables
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from pathlib import Path

SERVER = Path(__file__).with_name("server.py")
VERSION = "version: 1 (fake)"


def note_start(steps: int) -> None:
    """Append this process to the list of starts; it keeps its pid when it becomes the server."""
    stat = Path("/proc/self/stat").read_text(encoding="utf-8")
    start = {
        "pid": os.getpid(),
        "start_ticks": int(stat.rpartition(")")[2].split()[19]),
        "nonce": os.environ["SWEEP_NONCE"],
        "steps": steps,
        "nccl": {name: os.environ[name] for name in os.environ if name.startswith("NCCL_")},
    }
    print(f"fake llama-server starts: {start}", flush=True)
    with Path(os.environ["FAKE_STARTS"]).open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(start) + "\n")


def main() -> None:
    """Translate the flags and become the server."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--version", action="store_true")
    parser.add_argument("--port", type=int)
    parser.add_argument("--spec-draft-n-max", type=int, default=0)
    flags, _ = parser.parse_known_args()
    if flags.version:
        print(VERSION)
        return
    steps = flags.spec_draft_n_max
    note_start(steps)
    by_steps = json.loads(Path(os.environ["FAKE_OPTIONS"]).read_text(encoding="utf-8"))
    options = [word for key in ("", str(steps)) for word in shlex.split(by_steps.get(key, ""))]
    argv = [sys.executable, "-I", str(SERVER), "--port", str(flags.port), "--vary"]
    os.execv(sys.executable, [*argv, "--draft-tokens", str(steps), *options])


if __name__ == "__main__":
    main()
