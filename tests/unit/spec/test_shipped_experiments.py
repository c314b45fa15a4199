"""The experiment files that come with the project: each loads, and plans what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweep.app import load
from sweep.engines import engine_of
from sweep.model.plan import Plan, Role
from sweep.spec.plan import make_plan

EXPERIMENTS = Path(__file__).resolve().parents[3] / "experiments"


def plan(name: str) -> Plan:
    """The plan of a file, without a node."""
    experiment = load(EXPERIMENTS / name, ()).experiment
    return make_plan(experiment, engine_of(experiment.engine))


@pytest.mark.parametrize("path", sorted(EXPERIMENTS.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_file_plans_all_that_it_asks_for(path: Path) -> None:
    """Nothing in it is impossible, and no exclusion is without effect."""
    found = plan(path.name)
    assert found.launches
    assert not found.skipped
    assert not [note for note in found.notes if "matches no configuration" in note]


def test_the_reference_experiment_is_what_its_comments_say() -> None:
    """Ten step counts with each of three NCCL sets, four more with the other attention mode, and
    the baseline of each environment first and last."""
    found = plan("kimi-k2.5-rtx-pro-6000.yaml")
    mains = [launch for launch in found.launches if launch.role is Role.MAIN]
    assert len(mains) == 10 + 10 + 10 + 4
    assert len(found.launches) == len(mains) + 2 * 3
    by_variant = {launch.trials[0].configuration.variant: launch.server for launch in mains}
    everywhere = {
        "HF_HUB_OFFLINE": "1",
        "EAGLE3_PROFILE": "1",
        "SGLANG_ENABLE_METRICS_DEVICE_TIMER": "1",
    }
    assert by_variant["default"].env == everywhere
    unset = {"NCCL_MIN_NCHANNELS", "NCCL_P2P_LEVEL", "NCCL_PROTO"}
    assert unset < set(by_variant["default"].unset)
    assert by_variant["low-latency"].env == {**everywhere, "NCCL_PROTO": "LL"}
    assert by_variant["tuned"].env["NCCL_P2P_LEVEL"] == "SYS"
    decode = by_variant["tuned-decode-attention"].argv
    assert decode[decode.index("--speculative-attention-mode") + 1] == "decode"
    longest = next(launch for launch in mains if launch.label == "10 steps")
    assert longest.server.argv[:7] == (
        "/opt/sglang/bin/python", "-m", "sglang.launch_server",
        "--host", "127.0.0.1", "--port", "0",
    )  # fmt: skip
    assert longest.server.argv[-4:] == (
        "--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", "11",
    )  # fmt: skip
    assert {trial.concurrency for trial in longest.trials} == {1, 8}


def test_the_trees_are_eight_launches() -> None:
    """A chain each for two and three steps, two sizes of tree for each, and two baselines."""
    found = plan("kimi-k2.5-rtx-pro-6000-trees.yaml")
    assert len(found.launches) == 2 + 2 * 2 + 2
