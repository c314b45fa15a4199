"""Steps in force are those that the requests ask for, on a worker that asks its policy as SGLang's
does at the head of every decode cycle."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sweep.probe import hooks, pinning
from sweep.probe.attaching import header

HELD = (1, 3, 5)


class Policy:
    """SGLang's own: it would change to 1 step after the first verification."""

    candidate_steps = HELD

    def __init__(self) -> None:
        self.current = 5

    def get_steps_for_batch(self, _batch_size: int) -> int:
        """What it would choose."""
        return self.current

    def on_verify_complete(self, _accepted: list[int], _batch_size: int) -> int | None:
        """A change that is due."""
        self.current = 1
        return self.current

    def cuda_graph_bs_for_step(self, step: int) -> list[int]:
        """Something else that is asked of it."""
        return [step]


class Controller:
    """AdaptiveController: it follows what its policy says."""

    def __init__(self, worker: Any) -> None:
        self.worker = worker
        self.params: Any = Policy()

    def activate_step_by_batch(self, batch_size: int) -> None:
        """Before a batch is decoded."""
        self.worker.speculative_num_steps = self.params.get_steps_for_batch(batch_size)

    def on_verify_complete(self, accepted: list[int], batch_size: int) -> None:
        """After it was."""
        steps = self.params.on_verify_complete(accepted, batch_size)
        if steps is not None:
            self.worker.speculative_num_steps = steps


def make() -> Any:
    """A worker of a class that nobody has wrapped; it returns the steps that it decodes with."""

    class Worker:
        speculative_num_steps = 5

        def __init__(self) -> None:
            self.adaptive_controller = Controller(self)

        def forward_batch_generation(self, batch: Any, on_publish: Any = None) -> int:
            assert on_publish in (None, "published")
            self.adaptive_controller.activate_step_by_batch(len(batch.reqs))
            return self.speculative_num_steps

        def verify(self, batch: Any) -> None:
            """Not needed here."""

    return Worker()


def batch(*asked: object) -> Any:
    """A batch whose requests ask for so many steps; None: for nothing."""
    return SimpleNamespace(
        reqs=[
            SimpleNamespace(
                rid="r",
                sampling_params=SimpleNamespace(
                    custom_params=None if steps is None else {"sweep_num_steps": steps}
                ),
            )
            for steps in asked
        ]
    )


def decode(worker: Any, *asked: object) -> int:
    """The steps that such a batch is decoded with."""
    steps: int = worker.forward_batch_generation(batch(*asked), on_publish="published")
    worker.adaptive_controller.on_verify_complete([0], 1)
    return steps


def test_requests_choose_the_steps() -> None:
    """From one batch to the next, whatever was accepted before."""
    worker = make()
    assert pinning.install(worker) is not None
    assert [decode(worker, steps) for steps in (3, 3, 1, 5, 3)] == [3, 3, 1, 5, 3]


def test_without_it_the_policy_chooses() -> None:
    """So that the test above can fail."""
    worker = make()
    assert [decode(worker, 3), decode(worker, 3)] == [5, 1]


def test_what_asks_for_nothing_changes_nothing() -> None:
    """A health check alone, one beside a request that asks, and a batch of nobody."""
    worker = make()
    pinning.install(worker)
    assert decode(worker, None) == 5
    assert decode(worker, None, 3) == 3
    assert decode(worker, None) == 3
    assert decode(worker) == 3
    assert worker.forward_batch_generation(batch=batch(1)) == 1


@pytest.mark.parametrize("asked", [2, 0, "3", 3.5])
def test_steps_that_are_not_held_are_not_put_in_force(asked: object) -> None:
    """The server would raise; who asked finds the old ones in force."""
    worker = make()
    pinning.install(worker)
    decode(worker, 3)
    assert decode(worker, asked) == 3


def test_the_rest_of_the_policy_is_the_servers_own() -> None:
    """Whatever else is asked of it."""
    worker = make()
    pinning.install(worker)
    policy = worker.adaptive_controller.params
    assert (policy.candidate_steps, policy.cuda_graph_bs_for_step(3)) == (HELD, [3])


def test_a_failure_is_told_and_the_server_goes_on() -> None:
    """The steps stay, and are nobody's choice any more."""
    worker, told = make(), []
    pin = pinning.install(worker)
    assert pin is not None
    pin.tell = lambda where, message: told.append((where, message))
    decode(worker, 3)

    class Broken:
        def __iter__(self) -> Any:
            raise RuntimeError("no list")

        def __len__(self) -> int:
            return 1

    assert worker.forward_batch_generation(SimpleNamespace(reqs=Broken())) == 3
    assert told == [("pin", "RuntimeError: no list")]
    assert decode(worker, 1) == 3


def timed(original: Any) -> Any:
    """A wrapper, as those of the phases."""

    def cycle(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **kwargs)

    return cycle


def test_it_stays_when_other_hooks_are_put_and_taken_out() -> None:
    """Phases are no longer timed, and the steps are still those asked for."""
    worker = make()
    pinning.install(worker)
    timing = hooks.find([worker], hooks.CYCLE)
    assert timing is not None
    timing.put(timed)
    assert decode(worker, 3) == 3
    timing.remove()
    assert decode(worker, 1) == 1


@pytest.mark.parametrize("lacks", ["adaptive_controller", "speculative_num_steps"])
def test_a_worker_that_holds_one_step_count_is_left_alone(lacks: str) -> None:
    """Nothing is wrapped."""
    worker = make()
    original = type(worker).forward_batch_generation
    setattr(worker, lacks, None)
    assert pinning.install(worker) is None
    assert type(worker).forward_batch_generation is original


def test_the_handshake_tells_that_steps_cannot_be_pinned() -> None:
    """Missing where the server holds several step counts, and of no interest where it does not."""
    worker = make()
    assert "pin" in header(worker, "wall", [], adaptive=True)["missing"]
    assert "pin" not in header(worker, "wall", [])["missing"]
    assert "pin" in header(worker, "wall", ["pin"], adaptive=True)["hooks"]
    assert header(None, "wall", [], adaptive=True)["missing"] == ["pin"]
