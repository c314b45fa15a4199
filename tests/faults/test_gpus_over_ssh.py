"""What GPUs do behind SSH, by the script of an nvidia-smi: memory that stays, clocks that drop."""

from __future__ import annotations

import json

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


def test_only_the_row_whose_clocks_dropped_is_flagged(machine: Machine) -> None:
    """Twenty per cent for one launch, with a reason; the row stays, and says so."""
    machine.serve_with("--rate 110 --unready 1")  # a window lasts 1.5 s, a sample comes each second
    fake = FakeGpus(machine.root, FREE)
    file = machine.experiment([1, 2, 3], node=remote_node(machine) | {"gpus": [0, 1]})
    hot = gpus(10, sm_clock_mhz=1584, throttle_reasons=0x40)
    with node_behind_ssh(machine, environment=fake.environment):
        driving = machine.inline("submit", file)
        machine.wait_for_sweep()
        for steps, state in ((1, FREE), (2, hot), (3, FREE)):
            machine.wait_for_phase(steps, "load")
            fake.show(state)
        driving.join(60)
    assert driving.exitcode == 0, machine.inline_log()
    rows = json.loads(machine.run("export", "--format", "json").text)
    assert {row["num_steps"]: "throttled" in row["flags"] for row in rows} == {
        1: False,
        2: True,
        3: False,
    }
    assert all(row["output_tok_s"] for row in rows)
