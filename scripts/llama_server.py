"""Run llama.cpp's own HTTP server, from the xllamacpp wheel, as a process like `llama-server`.

The wheel brings the server as a library without a command line. This launcher gives it one: the
same flag names, the same exit code 1 for a flag it does not know, SIGTERM ends it with 0. Flags
that are not in `FLAGS` are refused: a setting that is dropped in silence is a wrong measurement.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import xllamacpp

Convert = Callable[[str], Any]

SPECULATIVE_TYPES = {
    member.name.removeprefix("COMMON_SPECULATIVE_TYPE_").lower().replace("_", "-"): member
    for member in xllamacpp.common_speculative_type
    if not member.name.endswith("_COUNT")
}
REMOVED = {
    "--draft": "--spec-draft-n-max",
    "--draft-n": "--spec-draft-n-max",
    "--draft-max": "--spec-draft-n-max",
    "--draft-min": "--spec-draft-n-min",
}


def _types(text: str) -> list[Any]:
    """Read a comma-separated list of speculation types."""
    unknown = [name for name in text.split(",") if name not in SPECULATIVE_TYPES]
    if unknown:
        raise argparse.ArgumentTypeError(
            f"unknown speculative type: {unknown[0]} (known: {', '.join(SPECULATIVE_TYPES)})"
        )
    return [SPECULATIVE_TYPES[name] for name in text.split(",")]


def _rates(text: str) -> list[float]:
    """Read a comma-separated list of acceptance rates by position."""
    return [float(part) for part in text.split(",")]


@dataclass(frozen=True)
class Flag:
    """A flag of llama-server and the parameters that it sets, as dotted paths."""

    names: tuple[str, ...]
    paths: tuple[str, ...]
    convert: Convert = int
    value: Any = None
    """Set: the flag takes no value and this one is stored."""


FLAGS = (
    Flag(("-m", "--model"), ("model.path",), str),
    Flag(("-a", "--alias"), ("model_alias",), lambda text: {text}),
    Flag(("--host",), ("hostnames",), lambda text: [text]),
    Flag(("--port",), ("port",)),
    Flag(("-c", "--ctx-size"), ("n_ctx",)),
    Flag(("-b", "--batch-size"), ("n_batch",)),
    Flag(("-ub", "--ubatch-size"), ("n_ubatch",)),
    Flag(("-np", "--parallel"), ("n_parallel",)),
    Flag(
        ("-t", "--threads"),
        (
            "cpuparams.n_threads",
            "cpuparams_batch.n_threads",
            "speculative.draft.cpuparams.n_threads",
            "speculative.draft.cpuparams_batch.n_threads",
        ),
    ),
    Flag(
        ("-tb", "--threads-batch"),
        ("cpuparams_batch.n_threads", "speculative.draft.cpuparams_batch.n_threads"),
    ),
    Flag(("--threads-http",), ("n_threads_http",)),
    Flag(("--poll",), ("cpuparams.poll", "cpuparams_batch.poll")),
    Flag(("-ngl", "--gpu-layers", "--n-gpu-layers"), ("n_gpu_layers",)),
    Flag(("-kvu", "--kv-unified"), ("kv_unified",), value=True),
    Flag(("--no-warmup",), ("warmup",), value=False),
    Flag(("--cache-ram", "-cram"), ("cache_ram_mib",)),
    Flag(("--no-cache-prompt",), ("cache_prompt",), value=False),
    Flag(("--metrics",), ("endpoint_metrics",), value=True),
    Flag(("--props",), ("endpoint_props",), value=True),
    Flag(("--slots",), ("endpoint_slots",), value=True),
    Flag(("--no-slots",), ("endpoint_slots",), value=False),
    Flag(("-lv", "--verbosity", "--log-verbosity"), ("verbosity",)),
    Flag(("--spec-type",), ("speculative.types",), _types),
    Flag(("-md", "--spec-draft-model", "--model-draft"), ("speculative.draft.mparams.path",), str),
    Flag(("--spec-draft-n-max",), ("speculative.draft.n_max",)),
    Flag(("--spec-draft-n-min",), ("speculative.draft.n_min",)),
    Flag(("--spec-draft-p-min",), ("speculative.draft.p_min",), float),
    Flag(("--spec-draft-p-split",), ("speculative.draft.p_split",), float),
    Flag(("--spec-ngram-mod-n-match",), ("speculative.ngram_mod.n_match",)),
    Flag(("--spec-ngram-mod-n-min",), ("speculative.ngram_mod.n_min",)),
    Flag(("--spec-ngram-mod-n-max",), ("speculative.ngram_mod.n_max",)),
    *(
        Flag(
            (f"--spec-ngram-{kind}-{size}",), (f"speculative.ngram_{kind.replace('-', '_')}.{at}",)
        )
        for kind in ("simple", "map-k", "map-k4v")
        for size, at in (("size-n", "size_n"), ("size-m", "size_m"), ("min-hits", "min_hits"))
    ),
    Flag(("--spec-synth-rates",), ("speculative.synth_rates",), _rates),
    Flag(("--spec-synth-len",), ("speculative.synth_len",), float),
)


class _Parser(argparse.ArgumentParser):
    """Refuses like llama-server: one line on standard error, exit code 1."""

    def error(self, message: str) -> NoReturn:
        print(f"error: {message}", file=sys.stderr)
        raise SystemExit(1)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="llama_server.py", description=__doc__, allow_abbrev=False)
    parser.add_argument("--version", action="store_true", help="print versions and exit")
    for index, flag in enumerate(FLAGS):
        where = f"flag_{index}"
        if flag.value is None:
            parser.add_argument(*flag.names, dest=where, type=flag.convert)
        else:
            parser.add_argument(*flag.names, dest=where, action="store_const", const=flag.value)
    return parser


def read_arguments(argv: list[str]) -> dict[str, Any] | None:
    """Return parameter paths and their values; None: only the versions are asked.

    Raises SystemExit(1) for a flag that is unknown, removed or has no proper value.
    """
    parser = _parser()
    for name in argv:
        if name in REMOVED:
            parser.error(f"the argument {name} has been removed. use {REMOVED[name]}")
    known, unknown = parser.parse_known_args(argv)
    if unknown:
        parser.error(f"invalid argument: {unknown[0]}")
    if known.version:
        return None
    values: dict[str, Any] = {}
    for index, flag in enumerate(FLAGS):
        value = getattr(known, f"flag_{index}")
        if value is not None:
            values.update(dict.fromkeys(flag.paths, value))
    if "model.path" not in values:
        parser.error("-m/--model is required")
    return values


def parameters(values: dict[str, Any]) -> Any:
    """Return llama.cpp's parameters with `values` set; everything else keeps its default."""
    params = xllamacpp.CommonParams()
    for path, value in {"port": 8080, **values}.items():
        *parents, name = path.split(".")
        target = params
        for parent in parents:
            target = getattr(target, parent)
        setattr(target, name, value)
    return params


def flush_log() -> None:
    """Wait until everything that the engine logged is written: a thread of its own does that, and
    the wheel offers no call for it but exports llama.cpp's."""
    engine = ctypes.CDLL(xllamacpp.xllamacpp.__file__)
    log = engine["_Z15common_log_mainv"]
    log.restype = ctypes.c_void_p
    flush = engine["_Z16common_log_flushP10common_log"]
    flush.argtypes, flush.restype = [ctypes.c_void_p], None
    flush(log())


def _serve(params: Any, keep: list[Any]) -> None:
    """Load the model and serve; a failure ends the process, because nothing else can."""
    try:
        keep.append(xllamacpp.Server(params))
    except Exception as error:  # noqa: BLE001 - the wheel raises whatever the engine threw
        try:
            flush_log()
        finally:
            print(f"error: {error}", file=sys.stderr, flush=True)
            os._exit(1)


def main(argv: list[str]) -> int:
    """Serve until SIGTERM or SIGINT; 0 then, 1 when the server cannot start."""
    values = read_arguments(argv)
    if values is None:
        print(f"xllamacpp {xllamacpp.__version__}")
        print(xllamacpp.BUILD_INFO)
        return 0
    stops = {signal.SIGTERM, signal.SIGINT}
    # Blocked before any thread exists, so that only sigwait below ever receives them.
    signal.pthread_sigmask(signal.SIG_BLOCK, stops)
    running: list[Any] = []
    threading.Thread(target=_serve, args=(parameters(values), running), daemon=True).start()
    signal.sigwait(stops)
    sys.stdout.flush()
    # The engine's threads are inside native code: there is nothing to unwind.
    os._exit(0)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
