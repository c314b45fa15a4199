"""What a well-shaped file can get wrong about the machines that it launches on."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sweep.model.experiment import NodeSpec
from sweep.spec.schema import ExperimentFile, NodeSection
from sweep.spec.yaml_tree import Path, Tree

_FROM_HERE = ("./", "../", "~")


def check_nodes(file: ExperimentFile, tree: Tree, sound: Callable[..., bool]) -> None:
    """Report node and nodes together, a machine named twice, and paths that mean nothing on it.

    `sound` says whether nothing at, above or below a path was reported already.
    """
    if not sound("node") or not sound("nodes"):
        return
    if file.nodes is not None and "node" in file.model_fields_set:
        tree.add(
            ("nodes",),
            "both `node` and `nodes` are given",
            hint="move the node into the list, or remove the list",
            of_key=True,
        )
        return
    _twice(file, tree)
    _paths(file, tree)
    _workdirs(file, tree)


def _sections(file: ExperimentFile) -> Iterator[tuple[Path, NodeSection]]:
    if file.nodes is None:
        yield ("node",), file.node
    else:
        for position, section in enumerate(file.nodes):
            yield ("nodes", position), section


def _twice(file: ExperimentFile, tree: Tree) -> None:
    seen: set[str] = set()
    for path, section in _sections(file):
        name = NodeSpec(section.host).name
        if section.host is not None and NodeSpec.named(section.host).host is None:
            message = f"{section.host} is the name of this machine"
            tree.add((*path, "host"), message, hint="leave the host out, or use another alias")
        elif name in seen:
            tree.add(
                path if section.host is None else (*path, "host"),
                f"node {name} stands there twice",
                hint="give a machine one entry with all of its GPUs that may be used: its "
                "launches run one after another",
            )
        seen.add(name)


def _paths(file: ExperimentFile, tree: Tree) -> None:
    """A path that counts from this file, or from this user's home, means nothing elsewhere."""
    sections = list(_sections(file))
    hosts = [section.host for _, section in sections if section.host is not None]
    if not hosts:
        return
    engine = file.engine
    texts: list[tuple[Path, str | None, str]] = [
        (("engine", key), getattr(engine, key), hosts[0])
        for key in ("model", "draft_model", "python")
    ]
    texts += [
        (("engine", "command", n), part, hosts[0]) for n, part in enumerate(engine.command or ())
    ]
    for name, variant in file.sweep.variants.items():
        at = ("sweep", "variants", name)
        texts += [
            ((*at, key), getattr(variant, key), hosts[0]) for key in ("draft_model", "python")
        ]
    texts += [
        ((*path, "workdir"), section.workdir, section.host)
        for path, section in sections
        if section.host is not None
    ]
    for path, text, host in texts:
        if text and text.startswith(_FROM_HERE):
            message = f"{text} counts from this machine, but the node is {host}"
            tree.add(path, message, hint="write the whole path as it is on the node")


def _workdirs(file: ExperimentFile, tree: Tree) -> None:
    """A bare relative path would count from wherever sweep and its agent happen to run."""
    for path, section in _sections(file):
        workdir = section.workdir
        if workdir and not workdir.startswith(("/", *_FROM_HERE)):
            hint = (
                f"write ./{workdir} to count from this file, or the whole path"
                if section.host is None
                else "write the whole path as it is on the node"
            )
            message = f"{workdir} is relative, and nothing says to what"
            tree.add((*path, "workdir"), message, hint=hint)
