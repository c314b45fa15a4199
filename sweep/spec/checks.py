"""What a well-shaped file can still get wrong: names that do not exist, values that clash."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path as FilePath

from sweep.model.experiment import Prompt, Variant
from sweep.spec import workload_prompts as reading
from sweep.spec.build import AXES, exclude_key, resolve_path, variants
from sweep.spec.fields import suggestion
from sweep.spec.node_checks import check_nodes
from sweep.spec.prompt_sets import packaged_text
from sweep.spec.schema import ExperimentFile, SweepSection, VariantSection, WorkloadSection
from sweep.spec.yaml_tree import Path, Tree

MAX_CONFIGURATIONS = 10_000
_PROMPT_KEYS = ("prompt_set", "prompts_file", "prompts", "messages")


@dataclass(frozen=True)
class Checker:
    """One file under check; what its methods find goes into the tree's problems."""

    file: ExperimentFile
    tree: Tree
    wrong: frozenset[Path]
    """Paths already reported: nothing that depends on them is checked."""
    base: FilePath
    read_text: Callable[[FilePath], str]

    def check(self) -> dict[int, tuple[Prompt, ...]]:
        """Check everything; return the prompts of each workload by its position."""
        found = {
            position: self._prompts(workload, ("workloads", position))
            for position, workload in enumerate(self.file.workloads)
        }
        self._workload_names()
        self._objective()
        self._variants()
        self._arguments()
        self._exclude()
        self._speculation()
        self._together()
        check_nodes(self.file, self.tree, self._sound)
        return found

    def _sound(self, *path: str | int) -> bool:
        """Whether nothing at, above or below `path` was reported."""
        return not any(bad[: len(path)] == path or path[: len(bad)] == bad for bad in self.wrong)

    def _workload_names(self) -> None:
        seen: set[str] = set()
        for position, workload in enumerate(self.file.workloads):
            path = ("workloads", position, "name")
            if workload.name in seen and self._sound(*path):
                self.tree.add(path, f'two workloads are named "{workload.name}"')
            seen.add(workload.name)

    def _prompts(self, workload: WorkloadSection, path: Path) -> tuple[Prompt, ...]:
        given = [key for key in _PROMPT_KEYS if getattr(workload, key) is not None]
        if not all(self._sound(*path, key) for key in _PROMPT_KEYS):
            return ()
        if len(given) != 1:
            message = f"the workload has {' and '.join(given)}" if given else "it has no prompts"
            self.tree.add(path, message, hint=f"give exactly one of {', '.join(_PROMPT_KEYS)}")
            return ()
        at = (*path, given[0])
        read = self._read(workload)
        for problem in read.problems:
            self.tree.add(at, problem)
        if read.prompts and not read.problems:
            self._concurrency(workload, path, read.distinct)
        return read.prompts

    def _read(self, workload: WorkloadSection) -> reading.Prompts:
        if workload.prompts is not None:
            return reading.from_entries(workload.prompts)
        if workload.messages is not None:
            chat = Prompt("1", messages=reading.as_pairs(workload.messages))
            return reading.Prompts((chat,))
        if workload.prompt_set is not None:
            return reading.from_json_lines(packaged_text(workload.prompt_set))
        assert workload.prompts_file is not None
        path = self.base / resolve_path(workload.prompts_file, self.base)
        try:
            text = self.read_text(path)
        except UnicodeDecodeError as error:
            return reading.Prompts((), (f"{path} is not UTF-8 text (byte {error.start})",))
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            return reading.Prompts((), (f"cannot read {path}: {reason}",))
        json_lines = path.suffix == ".jsonl"
        read = reading.from_json_lines(text) if json_lines else reading.from_text_lines(text)
        return replace(read, problems=tuple(f"{path.name}: {item}" for item in read.problems))

    def _concurrency(self, workload: WorkloadSection, path: Path, distinct: int) -> None:
        largest = max(workload.concurrency)
        if largest > distinct and self._sound(*path, "concurrency"):
            self.tree.add(
                (*path, "concurrency"),
                f"concurrency {largest} needs {largest} different prompts, there are {distinct}",
                hint="equal prompts in flight share a cache: add prompts, or go lower",
            )

    def _objective(self) -> None:
        at = self.file.objective.at
        if not self._sound("workloads") or not self._sound("objective"):
            return
        by_name = {workload.name: workload for workload in self.file.workloads}
        name = at.workload or self.file.workloads[0].name
        if name not in by_name:
            self.tree.add(
                ("objective", "at", "workload"),
                f'there is no workload "{name}"',
                hint=suggestion(name, by_name) or f"there is {', '.join(by_name)}",
            )
        elif at.concurrency is not None and at.concurrency not in by_name[name].concurrency:
            there = ", ".join(map(str, by_name[name].concurrency))
            self.tree.add(
                ("objective", "at", "concurrency"),
                f'workload "{name}" is not sent at concurrency {at.concurrency}',
                hint=f"it is sent at {there}",
            )

    def _variants(self) -> None:
        sweep = self.file.sweep
        for name in sweep.variants:
            path = ("sweep", "variants", name)
            if sweep.nccl.get(name):
                self.tree.add(path, f'"{name}" names an nccl set too', of_key=True)
            for variable in sweep.variants[name].unset:
                if variable in sweep.variants[name].env:
                    self.tree.add((*path, "unset"), f"{variable} stands in env too")
        seen: dict[str, Variant] = {}
        for variant in variants(sweep, lambda text: text):
            kind = "variants" if variant.name in sweep.variants else "nccl"
            path = ("sweep", kind, variant.name)
            equal = (
                name for name, other in seen.items() if replace(other, name=variant.name) == variant
            )
            twin = next(equal, None)
            if twin is not None and self._sound(*path) and self._sound("sweep", kind, twin):
                message = f'"{variant.name}" is the same as "{twin}"'
                self.tree.add(
                    path, message, hint="remove one: it would be measured twice", of_key=True
                )
            seen[variant.name] = variant

    def _arguments(self) -> None:
        """An argument that is swept must not be set elsewhere too."""
        sweep = self.file.sweep
        places: Iterator[tuple[Path, Mapping[str, object]]] = iter(
            [(("engine", "args"), self.file.engine.args)]
            + [(("sweep", "variants", name, "args"), v.args) for name, v in sweep.variants.items()]
        )
        for path, args in places:
            for name in args:
                if name in sweep.args:
                    self.tree.add(
                        self._spelled(path, name),
                        f"{name} is set here and swept in sweep.args",
                        hint="keep one of the two",
                        of_key=True,
                    )

    def _spelled(self, path: Path, name: str) -> Path:
        """Return the path of an argument as it is spelled in the file."""
        underscored = (*path, name.replace("-", "_"))
        return underscored if underscored in self.tree.key_marks else (*path, name)

    def _exclude(self) -> None:
        if not self._sound("sweep"):
            return
        known = (*AXES, *self.file.sweep.args)
        names = [variant.name for variant in variants(self.file.sweep, lambda text: text)]
        for position, entry in enumerate(self.file.exclude):
            if not entry and self._sound("exclude", position):
                self.tree.add(("exclude", position), "an empty entry excludes everything")
            for key, values in entry.items():
                path = ("exclude", position, key)
                if exclude_key(key) not in known:
                    hint = suggestion(key, known) or f"axes are {', '.join(known)}"
                    self.tree.add(
                        path, f"`{key}` is not an axis of this sweep", hint=hint, of_key=True
                    )
                elif exclude_key(key) == "variant":
                    for value in [value for value in values if value not in names]:
                        message = f'there is no variant "{value}"'
                        self.tree.add(path, message, hint=suggestion(str(value), names))

    def _together(self) -> None:
        """Each variant may stand once in all of the lists."""
        if not self._sound("sweep"):
            return
        names = [variant.name for variant in variants(self.file.sweep, lambda text: text)]
        seen: set[str] = set()
        for position, together in enumerate(self.file.sweep.together):
            for number, name in enumerate(together):
                path = ("sweep", "together", position, number)
                if name not in names:
                    hint = suggestion(name, names) or f"there are {', '.join(names)}"
                    self.tree.add(path, f'there is no variant "{name}"', hint=hint)
                elif name in seen:
                    self.tree.add(
                        path,
                        f'variant "{name}" stands there twice',
                        hint="a variant runs on one node: join the lists, or name it once",
                    )
                seen.add(name)

    def _speculation(self) -> None:
        sweep, engine = self.file.sweep, self.file.engine
        if not self._sound("sweep") or not self._sound("engine"):
            return
        if engine.draft_model and not engine.algorithm and not sweep.num_steps:
            message = "the draft model is never used: nothing speculates"
            self.tree.add(("engine", "draft_model"), message, hint="give sweep.num_steps")
        named = variants(sweep, lambda text: text)
        own = [sweep.variants[v.name] for v in named if v.drafting is not None]
        total = sum(map(_combinations, own)) + (len(named) - len(own)) * _combinations(sweep)
        total *= prod(max(1, len(values)) for values in sweep.args.values())
        if total > MAX_CONFIGURATIONS:
            message = f"the sweep asks for {total} configurations"
            self.tree.add(
                ("sweep",), message, hint=f"{MAX_CONFIGURATIONS} is the limit", of_key=True
            )


def _combinations(section: SweepSection | VariantSection) -> int:
    """Return how many configurations the axes of speculation make."""
    counts = [section.num_steps, section.topk, section.num_draft_tokens or ()]
    return prod(max(1, len(values)) for values in counts)
