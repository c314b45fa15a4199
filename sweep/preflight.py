"""Asking nodes before anything starts on them, and refusing to start where that cannot work."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sweep.check import setup
from sweep.check.facts import Facts
from sweep.check.line import CheckLine, Group, Level, error, of_level
from sweep.check.node import check_node, together
from sweep.model.errors import NodeError, SweepError, UnusableError
from sweep.model.experiment import Experiment, NodeSpec
from sweep.nodes.access import agent_python, on_each
from sweep.nodes.inspections import Inspections
from sweep.ports import Clock, Engine, Node
from sweep.spec.plan import path_first


@dataclass(frozen=True)
class Silent:
    """A node that could not be asked."""

    node: str
    why: SweepError

    @property
    def group(self) -> Group:
        """What is to be said of it."""
        finding = self.why.message.removeprefix(f"{self.node}: ")
        return Group(self.node, (error("node", finding, self.why.hint),))


def ask_all(
    experiment: Experiment,
    engine: Engine,
    factories: Mapping[str, Callable[[], Node]],
    clock: Clock,
) -> tuple[Facts | Silent, ...]:
    """Ask every node of an experiment, all at the same time, in the order of the file.

    `factories` are by node name.
    """
    specs = {spec.name: spec for spec in experiment.nodes}

    inspections = Inspections(clock)

    def ask(name: str, node: Node) -> Facts:
        return inspect(node, specs[name], experiment, engine, inspections)

    found = on_each({name: factories[name] for name in specs}, ask, inspections.stop)
    return tuple(
        Silent(name, each) if isinstance(each, SweepError) else each for name, each in found.items()
    )


def require_answers(asked: Sequence[Facts | Silent]) -> tuple[Facts, ...]:
    """Return the facts of all nodes; raises UnusableError when a node could not be asked, or when
    the user's setup failed there: what a server would be started with is not known then."""
    require_usable(
        [
            each.group if isinstance(each, Silent) else Group(each.node, tuple(setup.lines(each)))
            for each in asked
        ]
    )
    return tuple(each for each in asked if isinstance(each, Facts))


def check_all(
    asked: Sequence[Facts | Silent], experiment: Experiment, engine: Engine, sweep_id: str | None
) -> tuple[Group, ...]:
    """Return the lines about every node; what sweep `sweep_id` holds there is our own."""
    installation = engine.installation(experiment)
    groups = [
        each.group
        if isinstance(each, Silent)
        else check_node(each, experiment, installation, sweep_id)
        for each in asked
    ]
    among = tuple(together([each for each in asked if isinstance(each, Facts)]))
    return (*groups, Group("all nodes", among)) if among else tuple(groups)


def require_usable(groups: Sequence[Group]) -> None:
    """Raise UnusableError with every error line there is."""
    found = of_level(groups, Level.ERROR)
    if found:
        count = "1 error" if len(found) == 1 else f"{len(found)} errors"
        lines = "".join(f"\n  {text}" for text in sentences(found))
        raise UnusableError(f"nothing was started, for {count}:{lines}")


def sentences(found: Sequence[tuple[str, CheckLine]]) -> list[str]:
    """Return lines as texts, each with its node."""
    return [f"{title}: {line.sentence}" for title, line in found]


def inspect(
    node: Node,
    spec: NodeSpec,
    experiment: Experiment,
    engine: Engine,
    inspections: Inspections,
) -> Facts:
    """Ask a node for the facts that this experiment needs; raises UnusableError."""
    paths = engine.identity_paths(experiment)
    try:
        home = spec.workdir or node.home()
        asked = {
            "workdir": home,
            "paths": list(paths),
            "version_argv": list(engine.version_argv(experiment)),
            "version_input": dict(engine.version_input(experiment)),
            "env": dict(experiment.engine.env),
            "setup": list(experiment.engine.setup),
            "path_first": list(path_first(experiment.engine.python)),
            **asdict(engine.installation(experiment)),
        }
        answer, ahead_s = inspections.ask(node, agent_python(spec), home, asked)
        reached = node.reached
    except NodeError as why:
        raise UnusableError(
            why.message, hint=why.hint or "set node.workdir to a directory that can be written"
        ) from why
    gpus = _asked_gpus(spec, answer)
    here = reached is None
    return Facts(spec, answer, paths, home, gpus, reached, None if here else ahead_s)


def _asked_gpus(spec: NodeSpec, answer: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    if spec.gpus is None:
        return list(answer["gpus"])
    return [
        gpu for name in spec.gpus for gpu in answer["gpus"] if name in (gpu["index"], gpu["uuid"])
    ]
