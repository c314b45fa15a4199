"""The launcher's own part: what the engine logged is written before the process ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPTS = Path(__file__).parents[3] / "scripts"
LINES = 20_000
LOG_AND_END = """
import ctypes, os, sys
import llama_server, xllamacpp
engine = ctypes.CDLL(xllamacpp.xllamacpp.__file__)
main = engine["_Z15common_log_mainv"]
add = engine["_Z14common_log_addP10common_log14ggml_log_levelPKcz"]
main.restype = ctypes.c_void_p
log, level_error = ctypes.c_void_p(main()), 4
for number in range(int(sys.argv[1])):
    add(log, level_error, b"%d\\n", ctypes.c_int(number))
llama_server.flush_log()
os._exit(1)
"""


def test_no_line_of_the_log_is_lost() -> None:
    """Lines that the engine's log thread has not reached yet are waited for."""
    ended = subprocess.run(
        [sys.executable, "-c", LOG_AND_END, str(LINES)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SCRIPTS)},
        timeout=60,
        check=False,
    )
    assert ended.returncode == 1
    lines = (ended.stdout + ended.stderr).splitlines()
    assert len(lines) == LINES, lines[-3:]
    assert lines[-1].endswith(str(LINES - 1))
