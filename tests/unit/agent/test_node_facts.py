"""What nvidia-smi says, and events that go on after a crash."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sweep.agent import gpus, telemetry, wire
from sweep.agent.journal import Journal


def test_figures_that_nvidia_smi_does_not_have() -> None:
    """[N/A] is missing, not 0."""
    found = gpus.parse_gpus("0, GPU-a, NVIDIA GB10, [N/A], [N/A], 3, 580.1\n\n")
    assert found == [gpus.Gpu(0, "GPU-a", "NVIDIA GB10", None, None, 3.0, "580.1")]
    assert gpus.parse_processes("GPU-a, 77, 12\nGPU-b, 78, [N/A]\nGPU-a, [N/A], 1\n") == [
        gpus.GpuProcess("GPU-a", 77, 12.0),
        gpus.GpuProcess("GPU-b", 78, None),
    ]


def test_details_of_a_gpu() -> None:
    """Texts stay texts; what the driver does not tell is missing."""
    names = ["power_limit_w", "power_default_limit_w", "compute_capability", "persistence"]
    found = gpus.parse_details(
        "GPU-a, 450.00, 600.00, 12.0, Enabled\nGPU-b, [N/A], [N/A], 9.0, [N/A]\nnonsense\n", names
    )
    assert found == {
        "GPU-a": dict(zip(names, (450.0, 600.0, "12.0", "Enabled"), strict=True)),
        "GPU-b": dict(zip(names, (None, None, "9.0", None), strict=True)),
    }


def test_a_sample_of_a_gpu() -> None:
    """Figures have units in their names; a line of anything else is none."""
    sample = telemetry.parse_sample("GPU-a, 1980, 2619, [N/A], 54, 0x4, 81000, 99\n")
    assert sample == {
        "uuid": "GPU-a", "sm_clock_mhz": 1980.0, "memory_clock_mhz": 2619.0, "power_w": None,
        "temperature_c": 54.0, "throttle_reasons": "0x4", "memory_used_mib": 81000.0,
        "utilization_percent": 99.0,
    }  # fmt: skip
    assert telemetry.parse_sample("Unable to determine the device handle\n") is None


def test_gpus_are_chosen_by_index_or_uuid() -> None:
    """Both name the same GPU; none chosen is all."""
    found = [gpus.Gpu(n, f"GPU-{n}", "x", None, None, None, "1") for n in range(3)]
    assert gpus.select(found, [2, "GPU-0"]) == [found[2], found[0]]
    assert gpus.select(found, None) == found
    with pytest.raises(gpus.GpuError, match="no GPU 7, GPU-9 on this node; there are: 0, 1, 2"):
        gpus.select(found, [7, "GPU-9"])


def test_events_go_on_after_a_crash(tmp_path: Path) -> None:
    """Half a line is cut off, and the numbers go on."""
    first = Journal(str(tmp_path))
    first.event("healthy")
    first.event("clean")
    path = tmp_path / wire.EVENTS_FILE
    with path.open("ab") as stream:
        stream.write(b'{"half')
    second = Journal(str(tmp_path))
    second.resume()
    second.event("stopping", by="stop")
    events = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(event["n"], event["event"]) for event in events] == [
        (0, "healthy"),
        (1, "clean"),
        (2, "stopping"),
    ]


def test_durations_of_phases_are_summed(tmp_path: Path) -> None:
    """Visits of one phase add up, and all of them cover the time in between."""
    journal = Journal(str(tmp_path))
    for phase in ("measure", "scrape", "measure"):
        journal.event("phase", phase=phase, trial="t", window=0)
    spent = journal.phases_s()
    times = [json.loads(x)["t_s"] for x in (tmp_path / wire.EVENTS_FILE).read_text().splitlines()]
    assert set(spent) == {"measure", "scrape"}
    assert spent["scrape"] == pytest.approx(times[2] - times[1], abs=1e-5)
    assert spent["measure"] >= times[1] - times[0]
