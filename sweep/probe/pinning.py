"""Which draft steps are in force, chosen by the requests themselves.

SGLang's adaptive speculation keeps what several step counts need and asks a policy which of them
is due. Here the requests are: each carries the count in its own parameters, which every rank gets
with the batch, so that all ranks change at the same cycle. What asks for nothing, such as a health
check, leaves things as they are.
"""

from __future__ import annotations

from typing import Any, Callable, Collection, Optional

from . import hooks, reading
from .complaint import complain

PIN = "pin"
"""Its name among the hooks."""
POLICY = ("get_steps_for_batch", "on_verify_complete")
"""What a policy is asked before a batch is decoded, and told after it."""


class _Policy:
    """SGLang's own policy, but for the choice."""

    def __init__(self, policy: Any, steps: int) -> None:
        self._policy = policy
        self.steps = steps

    def __getattr__(self, name: str) -> Any:
        return getattr(self._policy, name)

    def get_steps_for_batch(self, *_args: Any, **_kwargs: Any) -> int:
        return self.steps

    def on_verify_complete(self, *_args: Any, **_kwargs: Any) -> None:
        """What was accepted changes nothing."""


def _tell(where: str, message: str) -> None:
    complain("%s: %s" % (where, message))


class Pin:
    """Puts the steps that a batch's requests ask for in force before the batch is decoded."""

    def __init__(self, policy: _Policy, held: Collection[int], hook: hooks.Hook) -> None:
        self._policy = policy
        self._held = frozenset(held)
        self._hook = hook
        self.tell: Callable[[str, str], None] = _tell
        """Is told where it failed, and how."""
        hook.put(self._cycle)

    def _cycle(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def cycle(worker: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                steps = reading.pinned_steps(args[0] if args else kwargs.get("batch"))
                if steps in self._held:
                    self._policy.steps = steps
            except Exception as problem:  # noqa: BLE001 - the server must not notice
                self._failed(problem)
            return original(worker, *args, **kwargs)

        return cycle

    def _failed(self, problem: Exception) -> None:
        self._hook.remove()
        try:
            self.tell(PIN, "%s: %s" % (type(problem).__name__, problem))
        except OSError as second:
            complain("%s: %s, and it cannot be noted: %s" % (PIN, problem, second))


def install(worker: Any) -> Optional[Pin]:
    """Take the choice of steps from a worker's own policy; None: it has none, or another one.

    To be called before anything else wraps the worker's cycle, so that this stays when that goes.
    """
    controller: Any = getattr(worker, "adaptive_controller", None)
    policy = getattr(controller, "params", None)
    steps: Any = getattr(worker, "speculative_num_steps", None)
    held = getattr(policy, "candidate_steps", ())
    if steps not in held or not all(callable(getattr(policy, name, None)) for name in POLICY):
        return None
    if not callable(getattr(controller, "activate_step_by_batch", None)):
        return None  # nothing asks the policy before a batch is decoded
    hook = hooks.find([worker], hooks.CYCLE)
    if hook is None:
        return None
    own = _Policy(policy, steps)
    controller.params = own
    return Pin(own, held, hook)
