"""What GPUs do behind SSH, by the script of an nvidia-smi: memory that stays, clocks that drop."""

from __future__ import annotations

from fakes.machine import Machine
from faults.gpus import FakeGpus, gpus
from faults.remote import node_behind_ssh, remote_node

FREE, HELD = gpus(10), gpus(90000)


def test_memory_that_stays_holds_up_the_next_launch(machine: Machine) -> None:
    """90 GB that come back eight seconds after a server's end are waited for. Those that never
    do make the node dirty: what was measured counts, later launches are not run, and not failed;
    once the memory is back, resume runs them."""
    machine.serve_with("--rate 2000 --term-after 1.5")
    fake = FakeGpus(machine.root, FREE)
    file = machine.experiment([1, 2, 3], node=remote_node(machine) | {"gpus": [1]})
    with node_behind_ssh(machine, environment=fake.environment):
        driving = machine.inline("submit", file)
        machine.wait_for_sweep()
        machine.wait_for_phase(1, "stop")
        held_s = fake.show(HELD, FREE, every_s=8)
        machine.wait_for_phase(2, "stop")
        fake.show(HELD)
        [clean], [started] = machine.events(1, "clean"), machine.events(2, "server_started")
        assert held_s + 8 <= clean["t_s"] < held_s + 11
        assert started["t_s"] > clean["t_s"]
        driving.join(90)
        assert driving.exitcode == 1, machine.inline_log()
        left = "gpu-a is not clean: GPU 1 has 90000 MiB in use, 10 MiB before the launch"
        assert left in str(machine.last_run().note)
        assert [result.state for result in machine.outcome().values()] == ["ok", "ok", "not_run"]
        assert len(machine.starts()) == 2
        fake.show(FREE)
        assert machine.inline_to_end("resume") == 0, machine.inline_log()
    assert machine.states() == {"ok": 3}
    assert [start["steps"] for start in machine.starts()] == [1, 2, 3]
    machine.require_quiet()
