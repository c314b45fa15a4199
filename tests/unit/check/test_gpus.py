"""GPUs, and who else holds or uses them."""

from __future__ import annotations

from typing import Any

from fakes.facts import claim, facts, gpu, process

from sweep.check import gpus
from sweep.check.line import CheckLine, Level
from sweep.model.experiment import NodeSpec


def lines(*found: dict[str, Any], sweep_id: str | None = None, **changes: Any) -> list[CheckLine]:
    """All lines about GPUs and claims."""
    return list(gpus.lines(facts(*found, **changes), sweep_id))


def test_gpus_that_are_alike_are_one_line() -> None:
    """Name, memory, power limit, compute capability, driver, persistence."""
    found = lines(gpu(0), gpu(1))
    assert [line.level for line in found] == [Level.OK, Level.OK]
    assert found[0].finding == (
        "2 × RTX PRO 6000 (96 GiB, power limit 450 of 600 W, compute capability 12.0, "
        "driver 580.95, persistence enabled)"
    )
    assert found[1].finding == "nobody else holds or uses them"


def test_figures_that_are_not_told_are_left_out() -> None:
    """As on GPUs that share the machine's memory."""
    names = ("memory_total_mib", "power_limit_w", "compute_capability", "persistence")
    bare = gpu(0, memory_used_mib=None, **dict.fromkeys(names))
    assert lines(bare)[0].finding == "1 × RTX PRO 6000 (driver 580.95)"


def test_gpus_that_differ_are_a_warning() -> None:
    """In power limit as well as in name."""
    line = lines(gpu(0), gpu(1, power_limit_w=600.0))[0]
    assert line.level is Level.WARNING
    assert "power limit 450 of 600 W" in line.finding
    assert "power limit 600 W" in line.finding


def test_no_gpus() -> None:
    """The node is claimed as a whole."""
    found = lines()
    assert [line.finding for line in found] == [
        "none: a launch claims the node as a whole",
        "nobody else holds or uses the node",
    ]


def test_claims_that_cannot_be_taken_are_an_error() -> None:
    """Every launch would fail: nothing is said to be fine."""
    _, line = lines(gpu(0), claim_error="/x, where claims are kept, is not a directory")
    assert line.level is Level.ERROR
    assert line.finding == "no claim can be taken: /x, where claims are kept, is not a directory"
    assert "SWEEP_CLAIM_DIR" in str(line.remedy)


def test_a_broken_driver_is_an_error() -> None:
    """With its own words, and nothing else can be said."""
    (line,) = lines(gpu_error="driver mismatch")
    assert line.level is Level.ERROR
    assert line.finding == "nvidia-smi fails: driver mismatch"


def test_gpus_that_are_not_there() -> None:
    """What is asked and what there is; nothing else is said to be as it should be."""
    (line,) = lines(gpu(0), spec=NodeSpec("n", (0, 7)))
    assert line.level is Level.ERROR
    assert line.finding == "node.gpus asks for [0, 7], the node has [0]"


def test_others_are_named_beside_a_wrong_list() -> None:
    """All that is wrong is told at once."""
    found = lines(gpu(0), spec=NodeSpec("n", (0, 7)), gpu_processes=[process(gpu(0))])
    assert [line.level for line in found] == [Level.ERROR, Level.ERROR]
    assert "GPU 0 is used by bob" in found[1].finding


def test_a_foreign_process_is_named_with_its_gpus() -> None:
    """User, pid, command without secrets, memory: an error, because nobody says to wait."""
    two = [gpu(0), gpu(1), gpu(2)]
    found = lines(*two, gpu_processes=[process(two[0]), process(two[1])])
    (line,) = [line for line in found if line.level is Level.ERROR]
    assert line.finding == (
        "GPUs 0, 1 are used by bob: pid 4711 (python train.py --api-key [redacted]), 80 GiB"
    )
    assert line.remedy == "wait until it ends, or set node.on_busy: wait"
    assert not [line for line in found if line.subject == "claims"]


def test_a_process_without_a_command_is_named_all_the_same() -> None:
    """Another user's command line may be hidden, and so may its memory."""
    hidden = process(gpu(0), command="", memory_used_mib=None)
    found = lines(gpu(0), gpu_processes=[hidden])
    assert found[1].finding == "GPU 0 is used by bob: pid 4711 (python)"


def test_processes_on_other_gpus_do_not_count() -> None:
    """The experiment does not ask for them."""
    found = lines(gpu(0), gpu_processes=[process(gpu(5))])
    assert all(line.level is Level.OK for line in found)


def test_a_claim_of_another_sweep_is_named() -> None:
    """Who holds it, since when; what its server uses is not told again."""
    held = [claim("gpu-GPU-0", "theirs")]
    found = lines(gpu(0), claims=held, gpu_processes=[process(gpu(0))])
    (line,) = [line for line in found if line.level is not Level.OK]
    assert line.level is Level.ERROR
    assert line.finding.startswith("GPU 0 is held: sweep theirs of bob on lab-1")


def test_one_holder_of_all_gpus_is_one_line() -> None:
    """Eight equal sentences would hide the one that matters."""
    held = [claim(f"gpu-GPU-{number}", "theirs") for number in range(8)]
    found = lines(*(gpu(number) for number in range(8)), claims=held)
    (line,) = [line for line in found if line.level is not Level.OK]
    assert line.finding.startswith("GPUs 0, 1, 2, 3, 4, 5, 6, 7 are held: sweep theirs of bob")


def test_a_claim_on_one_gpu_hides_no_process_on_another() -> None:
    """Both are told at once."""
    both = [gpu(0), gpu(1)]
    held = [claim("gpu-GPU-0", "theirs")]
    found = lines(*both, claims=held, gpu_processes=[process(both[1])])
    assert [line.subject for line in found if line.level is Level.ERROR] == ["claims", "GPUs"]


def test_claims_on_other_resources_are_no_hindrance() -> None:
    """Nor is one on the node as a whole when GPUs are what is claimed."""
    held = [claim("gpu-GPU-9", "theirs"), claim("node", "theirs")]
    assert all(line.level is Level.OK for line in lines(gpu(0), claims=held))
    assert [line.level for line in lines(claims=held)] == [Level.OK, Level.ERROR]


def test_our_own_claim_is_what_a_resume_attaches_to() -> None:
    """Neither the claim, nor the server's use of the GPU and its memory, is anything to tell."""
    busy = gpu(0, memory_used_mib=90000.0)
    held = [claim("gpu-GPU-0", "ours")]
    found = lines(busy, sweep_id="ours", claims=held, gpu_processes=[process(busy)])
    assert all(line.level is Level.OK for line in found)
    assert any(line.level is Level.ERROR for line in lines(busy, sweep_id="o", claims=held))


def test_one_may_wait_for_others() -> None:
    """With on_busy: wait they are warnings."""
    waiting = NodeSpec("n", on_busy="wait")
    held = [claim("gpu-GPU-0", "theirs")]
    used = [process(gpu(1))]
    found = lines(gpu(0), gpu(1), spec=waiting, claims=held, gpu_processes=used)
    assert [line.level for line in found] == [Level.OK, Level.WARNING, Level.WARNING]


def test_memory_that_nobody_seems_to_use() -> None:
    """Processes of other containers are not shown; a driver's own little is nothing to tell."""
    assert all(line.level is Level.OK for line in lines(gpu(0, memory_used_mib=1400.0)))
    line = lines(gpu(0, memory_used_mib=40960.0), gpu(1))[-1]
    assert line.level is Level.WARNING
    assert line.finding.endswith("cannot be seen from here: GPU 0 40 GiB")
