"""How a node of an experiment is reached: this machine, or one behind SSH."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from sweep.model.errors import NodeError, SweepError
from sweep.model.experiment import NodeSpec
from sweep.nodes.local import LocalNode
from sweep.ports import Clock, Completed, Node

_T = TypeVar("_T")

PATIENCE_S = 10.0
"""How long one call goes on trying to reach a node that it lost. Lanes call again for longer."""
_COMPLAINT_CHARACTERS = 800
_NOT_FOUND = 127
"""Exit code of a shell that found no such command."""


def node_factory(
    spec: NodeSpec, environment: Mapping[str, str], clock: Clock
) -> Callable[[], Node]:
    """Return what builds the node: it can be sent to another process, and connects there.

    `environment` is the user's: this machine's commands are started with it, and its HOME and
    SSH_AUTH_SOCK say where the SSH settings and the agent are.
    """
    if spec.host is None:
        return partial(LocalNode, dict(environment))
    from sweep.nodes.ssh import SshNode  # noqa: PLC0415 - paramiko takes 0.4 s to import
    from sweep.nodes.ssh_config import SshFiles  # noqa: PLC0415

    files = SshFiles.of_user(environment)
    return partial(SshNode, spec.host, clock, files=files, patience_s=PATIENCE_S)


def on_each(
    factories: Mapping[str, Callable[[], Node]],
    act: Callable[[str, Node], _T],
    interrupted: Callable[[], None] = lambda: None,
) -> dict[str, _T | SweepError]:
    """Do the same on every node, all at the same time: each may take seconds. Returns, by the
    name of the node and in the order given, what `act` returned or the error that it raised.
    Every `act` is waited for; when a signal ends the wait, `interrupted` may hurry them."""

    def one(name: str) -> _T | SweepError:
        try:
            node = factories[name]()
            try:
                return act(name, node)
            finally:
                node.close()
        except SweepError as error:
            return error

    if not factories:
        return {}
    with ThreadPoolExecutor(len(factories), thread_name_prefix="node") as pool:
        acts = {name: pool.submit(one, name) for name in factories}
        try:
            return {name: each.result() for name, each in acts.items()}
        except BaseException:
            interrupted()
            raise


def agent_python(spec: NodeSpec) -> str:
    """Return the command of the Python that runs the agent on the node."""
    return sys.executable if spec.host is None else "python3"


def agent_answer(node: str, failed: str, python: str, ended: Completed) -> dict[str, Any]:
    """Return what a verb of the agent answered; raises NodeError, which says what has `failed` on
    the node, and why."""
    try:
        answer: dict[str, Any] = json.loads(ended.stdout)
    except ValueError:
        raise NodeError(
            f"{node}: {failed}: {_complaint(python, ended)}",
            hint=f"the agent needs Python 3.9 or newer as `{python}` on the node",
        ) from None
    if "error" in answer:
        raise NodeError(f"{node}: {failed}: {answer['error']}")
    return answer


def _complaint(python: str, ended: Completed) -> str:
    """Why an agent said nothing, in its own words where it has any."""
    if ended.returncode == _NOT_FOUND:
        return f"{python}: not found"
    if ended.returncode is None:
        return "the connection broke while it ran"
    words = (ended.stderr or ended.stdout).decode(errors="replace").strip()
    said = words[-_COMPLAINT_CHARACTERS:] or "it said nothing"
    return f"exit code {ended.returncode}: {said}"
