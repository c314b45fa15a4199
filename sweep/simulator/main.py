"""Arguments, load, start: `python -c BOOTSTRAP --port N [SGLang's arguments]`."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from dataclasses import replace
from typing import Dict, List, Optional, Tuple

from sweep.simulator import (
    api,
    calibration,
    counters,
    cycles,
    decoding,
    faults,
    log,
    profiler,
    scheduler,
)

PROFILE_VARIABLE = "EAGLE3_PROFILE"
EVERY_VARIABLE = "EAGLE3_PROFILE_EVERY"
OWN_ARGUMENTS = ("calibration", "load-speedup", "seed")
"""Arguments that SGLang has not."""
DEFAULT_MAX_RUNNING = 48
DEFAULT_STEPS = 3
DEFAULT_EVERY = 100
_MODULES = (calibration, counters, cycles, decoding, faults, log, profiler, scheduler, api)


def read_arguments(argv: List[str]) -> Dict[str, str]:
    """Return arguments by name, with dashes; a bare flag is "true". Any argument is taken."""
    found: Dict[str, str] = {}
    name: Optional[str] = None
    for word in argv:
        if word.startswith("--") and len(word) > 2:  # noqa: PLR2004 - `--` alone names nothing
            name, equals, value = word[2:].partition("=")
            name = name.replace("_", "-")
            found[name] = value if equals else "true"
        elif name is not None:
            found[name] = word
            name = None
    return found


def _data(name: str) -> bytes:
    """Return a file that lies beside this one, on disk or in the agent's archive."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), name)
    loader = globals()["__loader__"]
    data: bytes = loader.get_data(path)
    return data


def version() -> str:
    """Return a name that changes with the simulator's sources and its own calibration."""
    digest = hashlib.sha256()
    for name in ["main.py", *("%s.py" % m.__name__.rpartition(".")[2] for m in _MODULES)]:
        digest.update(_data(name))
    digest.update(_data("reference.json"))
    return "simulator %s" % digest.hexdigest()[:12]


def load_calibration(name: str) -> calibration.Calibration:
    """Return the calibration of a file, or the one that comes with the simulator.

    Raises OSError, ValueError, KeyError or TypeError.
    """
    if name == "reference":
        return calibration.parse(_data("reference.json").decode("utf-8"))
    with open(name, encoding="utf-8") as stream:
        return calibration.parse(stream.read())


def speculation_of(arguments: Dict[str, str]) -> Optional[calibration.Speculation]:
    """Return how the server speculates, by SGLang's own rules; None: not at all."""
    if "speculative-algorithm" not in arguments:
        return None
    steps = int(arguments.get("speculative-num-steps", DEFAULT_STEPS))
    topk = int(arguments.get("speculative-eagle-topk", 1))
    tokens = int(arguments.get("speculative-num-draft-tokens", steps + 1))
    if topk == 1 and tokens != steps + 1:
        log.say(
            "speculative_num_draft_tokens is adjusted to speculative_num_steps + 1 when "
            "speculative_eagle_topk == 1",
            rank=False,
        )
        tokens = steps + 1
    return calibration.Speculation(steps, topk, tokens)


def held_steps(arguments: Dict[str, str]) -> List[int]:
    """Return the step counts that the server holds, of which requests choose: those of the file
    that SGLang's adaptive speculation reads. Raises OSError, ValueError, KeyError or TypeError."""
    if "speculative-adaptive" not in arguments:
        return []
    with open(arguments["speculative-adaptive-config"], encoding="utf-8") as stream:
        sets = json.load(stream)
    return sorted({int(steps) for key in sets for steps in sets[key]["candidate_steps"]})


def _fits(speculation: Optional[calibration.Speculation]) -> bool:
    """Whether a tree has as many candidates as draft tokens are to be chosen from it."""
    if speculation is None:
        return True
    pool = speculation.topk + (speculation.steps - 1) * speculation.topk**2
    return speculation.tokens - 1 <= pool


def load(script: List[Tuple[float, str, str]], seconds: float, faulty: faults.Faults) -> None:
    """Spend the time of a load, saying what it does; fail where the faults say so."""
    death = faults.FAILURES[faulty.fail] if faulty.fail is not None else None
    start_s = time.monotonic()
    for share, step, text in script:
        time.sleep(max(0.0, start_s + share * seconds - time.monotonic()))
        log.say(text, rank=step != "start")
        while faulty.hang_load and step == "weights":
            time.sleep(3600.0)
        if death is not None and death.step == step:
            faults.die(death.code, *death.lines)
    time.sleep(max(0.0, start_s + seconds - time.monotonic()))


def _info(
    arguments: Dict[str, str], speculation: Optional[calibration.Speculation]
) -> Dict[str, object]:
    """Return the server's arguments as they are in effect, as /server_info shows them."""
    shown: Dict[str, object] = {"model_path": "simulated"}
    for name, value in arguments.items():
        if name not in OWN_ARGUMENTS:
            plain: object = int(value) if value.isdigit() else value
            shown[name.replace("-", "_")] = True if value == "true" else plain
    if speculation is not None:
        shown["speculative_num_steps"] = speculation.steps
        shown["speculative_eagle_topk"] = speculation.topk
        shown["speculative_num_draft_tokens"] = speculation.tokens
    return shown


def serve(argv: List[str]) -> None:
    """Load, then serve for ever."""
    given = read_arguments(argv)
    try:
        model = load_calibration(given.get("calibration", "reference"))
        faulty = faults.parse(dict(model.faults), os.environ.get(faults.VARIABLE))
        speedup = float(given.get("load-speedup", 1.0))
        port = int(given["port"])
        changed = {name.replace("_", "-"): str(value) for name, value in faulty.changed.items()}
        arguments = {**given, **changed}
        speculation = speculation_of(arguments)
        held = held_steps(arguments)
    except (OSError, ValueError, KeyError, TypeError) as problem:
        faults.die(2, "simulator: error: %s: %s" % (type(problem).__name__, problem))
        return
    log.write(
        "This is sweep's SIMULATED server (%s, calibration %s): nothing it does says anything "
        "of real hardware.\n" % (version(), model.name)
    )
    if not _fits(speculation):
        faulty = replace(faulty, fail="graph_capture")
    faults.arrange(faulty)
    load(log.load_script(speculation is not None), model.load_s / speedup, faulty)
    time.sleep(faulty.port_late_s)
    if faulty.no_speculation:
        speculation = None
    if faulty.no_pin or speculation is None:
        held = []
    _serve(port, arguments, model, faulty, speculation, held=held)


def _serve(
    port: int,
    arguments: Dict[str, str],
    model: calibration.Calibration,
    faulty: faults.Faults,
    speculation: Optional[calibration.Speculation],
    *,
    held: List[int],
) -> None:
    environment = dict(os.environ)
    profile = environment.get(PROFILE_VARIABLE) == "1"
    every = int(environment.get(EVERY_VARIABLE, DEFAULT_EVERY)) if profile else None
    counts = counters.Counters(
        speculation, profile_every=every, lifetime_cycles=faulty.lifetime_cycles
    )
    directory = environment.get(cycles.DIRECTORY_VARIABLE)
    cycle_log = None
    if profile and speculation is not None and directory is not None:
        cycle_log = cycles.CycleLog(directory, version(), holds_several=bool(held))
    schedule = scheduler.Scheduler(
        model,
        speculation,
        tuple(effect for effect in model.effects if effect.applies(environment, arguments)),
        counts,
        seed=arguments.get("seed", "1"),
        max_running=int(arguments.get("max-running-requests", DEFAULT_MAX_RUNNING)),
        chunk_tokens=faulty.chunk_tokens,
        cycles=cycle_log,
        held=held,
    )
    info = _info(arguments, speculation)
    trace = profiler.Profiler(model.phases(speculation, 1), speculates=speculation is not None)
    server = api.Server(port, api.Service(schedule, counts, faulty, info, trace))
    faults.on_listening(faulty)
    log.say(log.READY, rank=False)
    server.serve_forever()


def main() -> None:
    """Serve, or say which version this is."""
    if sys.argv[1:] == ["--version"]:
        print(version())
    else:
        serve(sys.argv[1:])
