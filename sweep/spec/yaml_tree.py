"""YAML text as a tree of plain values that keeps the source text and place of every scalar.

YAML 1.1 would read `no` as false, `22:22` as 1342 and `1e-3` as text. Nothing is typed here:
the schema knows what is wanted where.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import yaml

from sweep.model.errors import Problem

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 40
MAX_VALUES = 20_000
"""Values after aliases were followed: a few lines of aliases can stand for billions."""

Path: TypeAlias = tuple[str | int, ...]
"""Keys and indices that lead to a value; () is the whole file."""

_TEXT_TAG = "tag:yaml.org,2002:str"
_MERGE_TAG = "tag:yaml.org,2002:merge"
_COLLECTION_TAGS = ("tag:yaml.org,2002:seq", "tag:yaml.org,2002:map")
_TOO_DEEP = f"nested more than {MAX_DEPTH} levels deep"
_TOO_MANY = f"holds more than {MAX_VALUES} values, aliases included"
_ADVICE = "see the YAML around this place; quote texts that hold : # { [ or start with * & ! % @"


class Plain(str):
    """A scalar written without quotes, as it was written."""

    __slots__ = ()


@dataclass(frozen=True)
class Mark:
    """Where a value was written; line and column count from 1, an override has none."""

    line: int | None = None
    column: int | None = None
    override: str | None = None
    """The text of the `--set` that gave the value."""


@dataclass
class Tree:
    """A file's values (dict, list, Plain and str), their places, and what is wrong already."""

    value: Any = None
    marks: dict[Path, Mark] = field(default_factory=dict)
    key_marks: dict[Path, Mark] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def mark(self, path: Path, *, of_key: bool = False) -> Mark:
        """Return the place of the value (or its key) at `path`, or of what it would stand in."""
        if of_key and path in self.key_marks:
            return self.key_marks[path]
        while path and path not in self.marks:
            path = path[:-1]
        return self.marks.get(path, Mark(1, 1))

    def add(
        self, path: Path, message: str, *, hint: str | None = None, of_key: bool = False
    ) -> None:
        """Record a problem of the value (or the key) at `path`."""
        self.problems.append(problem_at(self.mark(path, of_key=of_key), message, hint))


def problem_at(mark: Mark, message: str, hint: str | None = None) -> Problem:
    """Return a problem placed at `mark`; one of an override names it."""
    if mark.override is not None:
        message = f"--set {mark.override}: {message}"
    return Problem(message, mark.line, mark.column, hint)


def same_name(key: str) -> str:
    """Return what two spellings of one name have in common: dashes equal underscores."""
    return key.replace("_", "-")


def unusable_character(text: str) -> str | None:
    """Name a character that no argument, variable or request can hold; None: there is none."""
    if "\0" in text:
        return "a NUL character"
    if any("\ud800" <= character <= "\udfff" for character in text):
        return "half of a surrogate pair"
    return None


def parse(text: str, mark_of: Callable[[yaml.Mark], Mark] | None = None) -> Tree:
    """Read one YAML document; every problem is in the tree's `problems`, nothing is raised.

    `mark_of` translates places; the default counts lines and columns from 1.
    """
    tree = Tree()
    place = mark_of or _place
    if len(text.encode("utf-8", "replace")) > MAX_BYTES:
        tree.problems.append(Problem(f"the file is larger than {MAX_BYTES} bytes", 1, 1))
        return tree
    try:
        node = _Loader(text).get_single_node()
        if node is not None:
            tree.value = _Converter(tree, place).convert(node, (), ())
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        column = error.position - (before.rfind("\n") + 1) + 1
        message = f"the character U+{ord(text[error.position]):04X} is not allowed"
        tree.problems.append(
            Problem(message, before.count("\n") + 1, column, "remove it, or write it as an escape")
        )
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        message = " ".join(part for part in (error.context, error.problem) if part)
        where = place(mark) if mark else Mark(1, 1)
        tree.problems.append(problem_at(where, f"not YAML: {message}", _hint(message)))
    except (ValueError, OverflowError) as error:
        tree.problems.append(Problem(f"not YAML: an escape or a number is wrong ({error})", 1, 1))
    return tree


def _place(mark: yaml.Mark) -> Mark:
    return Mark(mark.line + 1, mark.column + 1)


def _hint(message: str) -> str:
    if "'\\t'" in message:
        return "indent with spaces; YAML does not allow tabs"
    return _ADVICE


def _implicit_tag(text: str, *, quoted: bool) -> str:
    """Return the tag that YAML gives a scalar without one."""
    resolver = yaml.resolver.Resolver()
    tag: str = resolver.resolve(  # type: ignore[no-untyped-call] # types-PyYAML lacks it
        yaml.ScalarNode, text, (not quoted, quoted)
    )
    return tag


class _Refused(yaml.MarkedYAMLError):
    """Something that YAML allows and an experiment file does not."""

    def __init__(self, problem: str, mark: yaml.Mark) -> None:
        super().__init__(None, None, problem, mark)


class _Loader(yaml.SafeLoader):
    """PyYAML's composer with limits: it follows nesting by recursion, and it is slow."""

    def __init__(self, text: str) -> None:
        self._depth = self._nodes = 0
        super().__init__(text)

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Compose one node; raises MarkedYAMLError when it is nested too deeply."""
        self._depth += 1
        self._nodes += 1
        if self._depth > MAX_DEPTH or self._nodes > 2 * MAX_VALUES:
            event = self.peek_event()  # type: ignore[no-untyped-call] # types-PyYAML lacks it
            raise _Refused(_TOO_DEEP if self._depth > MAX_DEPTH else _TOO_MANY, event.start_mark)
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


class _Converter:
    """Makes the tree's values from nodes; aliases are followed, merge keys resolved."""

    def __init__(self, tree: Tree, place: Callable[[yaml.Mark], Mark], values: int = 0) -> None:
        self._tree = tree
        self._place = place
        self._values = values

    def convert(self, node: yaml.Node, path: Path, above: tuple[int, ...]) -> Any:
        """Return the value of `node` for `path`; `above` are the nodes that it stands in."""
        self._values += 1
        if self._values > MAX_VALUES:
            raise _Refused(_TOO_MANY, node.start_mark)
        if id(node) in above:
            raise _Refused("an anchor stands inside itself", node.start_mark)
        if len(above) >= MAX_DEPTH:
            raise _Refused(_TOO_DEEP, node.start_mark)
        self._tree.marks[path] = self._place(node.start_mark)
        above = (*above, id(node))
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node)
        if node.tag not in _COLLECTION_TAGS:
            self._refuse(node, f"the tag {node.tag} is not used here", "remove it")
        if isinstance(node, yaml.SequenceNode):
            return [
                self.convert(item, (*path, index), above) for index, item in enumerate(node.value)
            ]
        return self._mapping(node, path, above)

    def _refuse(self, node: yaml.Node, message: str, hint: str | None = None) -> None:
        self._tree.problems.append(problem_at(self._place(node.start_mark), message, hint))

    def _text(self, node: yaml.ScalarNode) -> str:
        text: str = node.value
        if unusable := unusable_character(text):
            self._refuse(node, f"holds {unusable}")
            return ""
        return text

    def _scalar(self, node: yaml.ScalarNode) -> str:
        text = self._text(node)
        quoted = node.style is not None
        implicit = _implicit_tag(node.value, quoted=quoted)
        if node.tag == implicit:
            return text if quoted else Plain(text)
        if node.tag != _TEXT_TAG:
            self._refuse(node, f"the tag {node.tag} is not used here", "remove it")
        return text

    def _mapping(self, node: yaml.Node, path: Path, above: tuple[int, ...]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        spelled: dict[str, str] = {}
        merged: list[yaml.Node] = []
        for key_node, value_node in node.value:
            if key_node.tag == _MERGE_TAG:
                merged += self._merge_sources(value_node)
            elif not isinstance(key_node, yaml.ScalarNode):
                self._refuse(key_node, "a key must be a word, not a list or a mapping")
            else:
                key = self._text(key_node)
                earlier = spelled.setdefault(same_name(key), key)
                if earlier in result:
                    self._duplicate((*path, earlier), key, key_node)
                    continue
                self._tree.key_marks[*path, key] = self._place(key_node.start_mark)
                result[key] = self.convert(value_node, (*path, key), above)
        for source in merged:
            self._merge(source, result, path, above)
        return result

    def _duplicate(self, path: Path, key: str, node: yaml.Node) -> None:
        first = self._tree.mark(path, of_key=True)
        spelling = "" if key == path[-1] else f" as `{path[-1]}`"
        where = "" if first.line is None else f" in line {first.line}"
        self._refuse(node, f"`{key}` was set before{spelling}{where}", "keep one of the two")

    def _merge_sources(self, node: yaml.Node) -> list[yaml.Node]:
        sources = node.value if isinstance(node, yaml.SequenceNode) else [node]
        for source in sources:
            if not isinstance(source, yaml.MappingNode):
                raise _Refused("`<<` takes a mapping or a list of mappings", source.start_mark)
        return list(sources)

    def _merge(
        self, source: yaml.Node, into: dict[str, Any], path: Path, above: tuple[int, ...]
    ) -> None:
        """Add what `source` has and `into` has not, under either spelling."""
        beside = Tree()
        converter = _Converter(beside, self._place, self._values)
        values = converter.convert(source, (), above)
        self._values = converter._values
        self._tree.problems += beside.problems
        known = {same_name(key) for key in into}
        for key in values:
            if same_name(key) in known:
                continue
            into[key] = values[key]
            for own, other in (
                (self._tree.marks, beside.marks),
                (self._tree.key_marks, beside.key_marks),
            ):
                own.update({(*path, *at): mark for at, mark in other.items() if at[:1] == (key,)})
