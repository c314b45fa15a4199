"""The agent's verbs: each prints one JSON object and ends; `run` leaves the agent behind."""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Dict, List

from sweep.agent import wire

USAGE = "usage: agent run DIR | status DIR | stop DIR | inspect FILE | release SWEEP"


def _verb(name: str, argument: str) -> Dict[str, Any]:
    # Imported by verb: what a verb does not need, it does not pay for.
    if name == "run":
        from sweep.agent import daemon  # noqa: PLC0415

        return daemon.run(os.path.abspath(argument))
    if name == "status":
        from sweep.agent import attach  # noqa: PLC0415

        return attach.status(os.path.abspath(argument))
    if name == "stop":
        from sweep.agent import stopping  # noqa: PLC0415

        return stopping.stop(os.path.abspath(argument))
    if name == "inspect":
        from sweep.agent import inspection, inspection_end  # noqa: PLC0415

        # What is asked comes in a file: the environment of a server may hold secrets, and everybody
        # on the node can read command lines.
        with open(argument, encoding="utf-8") as stream:
            asked = json.load(stream)
        directory = os.path.dirname(os.path.abspath(argument))
        inspection_end.remove_abandoned(directory)
        with inspection_end.while_wanted(directory):
            return inspection.inspect(asked)
    if name == "release":
        from sweep.agent import claim  # noqa: PLC0415

        return {"released": claim.let_go(claim.directory(), argument)}
    raise SystemExit(USAGE)


def main(argv: List[str] | None = None) -> None:
    """Run one verb. Exit code 1 with {"error": ...} when it cannot be done, 2 for bad usage."""
    arguments = sys.argv[1:] if argv is None else argv
    if len(arguments) != 2:  # noqa: PLR2004 - a verb and what it is about
        print(USAGE, file=sys.stderr)
        sys.exit(2)
    os.environ[wire.AGENT_VARIABLE] = os.path.abspath(os.path.join(__file__, "../../.."))
    try:
        answer = _verb(arguments[0], arguments[1])
    except (OSError, ValueError, TypeError, KeyError) as problem:
        print(json.dumps({"error": "%s: %s" % (type(problem).__name__, problem)}))
        sys.exit(1)
    print(json.dumps(answer))
    sys.stdout.flush()
