"""The engine on a node: its version, its package and who changed it, what it compiles with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sweep.check.facts import Facts
from sweep.check.line import CheckLine, error, ok, warning
from sweep.check.wording import counted, some
from sweep.ports import Installation

_FOR_GPUS = ("ninja", "nvcc")


def lines(facts: Facts, installation: Installation) -> Iterator[CheckLine]:
    """Yield what is to be said of the engine."""
    told = facts.answer["paths"] is not None
    programs = [path for path in facts.paths if path not in installation.models]
    missing = [path for path in programs if told and facts.files.get(path) is None]
    for path in missing:
        yield error("engine", f"{path} does not exist", "correct engine.command")
    if not missing or _runs(facts):  # else it fails for the same reason
        yield from _version(facts, "engine.python" if installation.package else "engine.command")
    refused = facts.engine.details.get("rendering_error")
    if refused:
        yield error(
            "engine",
            f"its tokenizer cannot render the prompts: {refused}",
            "see that the model's tokenizer files are there",
        )
    if installation.package is None:
        return
    for python, package in (facts.answer["packages"] or {}).items():
        if package["error"] is None or _runs(facts):
            yield from _package(installation.package, python, package)
    yield from _compilers(facts)
    yield from _caches(facts)


def _version(facts: Facts, named_by: str) -> Iterator[CheckLine]:
    version = facts.answer["version"]
    if version is None:
        return
    if version["returncode"] != 0:
        said = version["error"] or version["line"] or f"exit {version['returncode']}"
        yield error("engine", f"the server's program cannot be run: {said}", f"correct {named_by}")
    elif version["line"]:
        yield ok("engine", version["line"])
    else:
        yield warning("engine", "its version command says nothing: results carry no version")


def _runs(facts: Facts) -> bool:
    """Whether the version command worked: if not, its line says what a missing package would."""
    version = facts.answer["version"]
    return version is None or version["returncode"] == 0


def _package(name: str, python: str, package: Mapping[str, Any]) -> Iterator[CheckLine]:
    if package["error"] is not None:
        yield error("engine", package["error"], f"install {name} there, or correct engine.python")
        return
    commit = f", commit {package['commit'][:12]}" if package["commit"] else ""
    kind = "editable, " if package["editable"] else ""
    found = f"{name} {package['version']} ({kind}{package['location']}{commit}) of {python}"
    changed, instrumented = package["changed"], package["instrumented"]
    if changed:
        than = "its commit" if package["editable"] else "what was installed"
        differ = "differs" if len(changed) == 1 else "differ"
        yield warning(
            "engine",
            f"{found}: {counted(len(changed), 'file')} {differ} from {than}: {some(changed)} "
            f"(state {package['state']})",
            "results are this state's, not the release's: commit it, or install again",
        )
    else:
        yield ok("engine", f"{found}, unchanged in {counted(package['looked_at'], 'file')}")
    if instrumented:
        yield warning(
            "engine",
            f"measuring code of an earlier investigation (EAGLE3_PROF) in {some(instrumented)}",
            "remove it: it may synchronise the GPUs in every cycle",
        )


def _compilers(facts: Facts) -> Iterator[CheckLine]:
    compilers = facts.answer["compilers"]
    if compilers is None:
        return
    wanted = [name for name in compilers if facts.gpus or name not in _FOR_GPUS]
    missing = [name for name in wanted if compilers[name] is None]
    if missing:
        yield warning(
            "compilers",
            f"not found: {', '.join(missing)}",
            "kernels that are compiled when the server starts need them; put them on the PATH of "
            "engine.env",
        )
    else:
        yield ok("compilers", ", ".join(str(compilers[name]) for name in wanted))


def _caches(facts: Facts) -> Iterator[CheckLine]:
    caches = facts.answer["caches"]
    if caches is None:
        return
    for cache in caches:
        if not cache["writable"]:
            yield warning(
                "caches",
                f"{cache['path']} ({cache['name']}) cannot be written: kernels are compiled anew "
                "by every launch, or the server fails",
                "make it writable, or set the cache's variable in engine.env",
            )
    if all(cache["writable"] for cache in caches):
        yield ok("caches", f"writable: {', '.join(cache['name'] for cache in caches)}")
