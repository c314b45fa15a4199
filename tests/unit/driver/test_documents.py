"""launch.json of a planned launch."""

from __future__ import annotations

from fakes.sweeps import SmallEngine, small_experiment

from sweep.agent import wire
from sweep.driver.documents import launch_document
from sweep.engines.sglang import SGLang
from sweep.model.experiment import (
    Axes,
    EngineSpec,
    Experiment,
    NodeSpec,
    Profile,
    Prompt,
    Variant,
    Workload,
)
from sweep.model.plan import PlannedLaunch, Role
from sweep.spec.plan import make_plan


def documents(experiment: Experiment) -> dict[str, wire.LaunchDoc]:
    """Variant → the document of its first launch."""
    engine = SmallEngine()
    found: dict[str, wire.LaunchDoc] = {}
    for launch in make_plan(experiment, engine).launches:
        document = launch_document(
            launch,
            launch.trials,
            experiment=experiment,
            engine=engine,
            node=experiment.nodes[0],
            sweep_id="s",
            attempt=1,
            nonce="n",
            owner=wire.Owner("me", "here", "s"),
        )
        found.setdefault(launch.trials[0].configuration.variant, document)
    return found


def sglang_experiment(profile: Profile) -> Experiment:
    """One step of EAGLE-3 and the baselines."""
    engine = EngineSpec("sglang", "m", draft_model="d", algorithm="EAGLE3")
    workload = Workload("one", (Prompt("p", text="text"),))
    return Experiment("e", engine, (workload,), axes=Axes(num_steps=(1,)), profile=profile)


def sglang_document(launch: PlannedLaunch, experiment: Experiment) -> wire.LaunchDoc:
    """The launch.json of one of its launches."""
    return launch_document(
        launch, launch.trials, experiment=experiment, engine=SGLang(), node=NodeSpec(),
        sweep_id="s", attempt=1, nonce="n", owner=wire.Owner("me", "here", "s"),
    )  # fmt: skip


def test_a_launch_without_the_probe_has_none() -> None:
    """Nor is it active in the server's environment; the launch beside it has both."""
    experiment = sglang_experiment(Profile(compare=True))
    launches = make_plan(experiment, SGLang()).launches
    found = {launch.role: sglang_document(launch, experiment) for launch in launches}
    assert found[Role.MAIN].engine.probe is not None
    assert found[Role.UNPROFILED].engine.probe is None
    differing = found[Role.MAIN].env.items() ^ found[Role.UNPROFILED].env.items()
    assert {name for name, _ in differing} == {
        "EAGLE3_PROFILE", "SGLANG_ENABLE_METRICS_DEVICE_TIMER",
    }  # fmt: skip
    assert found[Role.MAIN].argv == found[Role.UNPROFILED].argv


def test_what_one_variant_sets_is_unset_for_the_others() -> None:
    """Whatever the login exports; what the engine's own section sets is set for all, and search
    paths are the login's."""
    variants = (
        Variant("default"),
        Variant("ll", env={"NCCL_PROTO": "LL", "LD_LIBRARY_PATH": "/opt/nccl"}),
        Variant("few", env={"NCCL_MAX_NCHANNELS": "8", "NCCL_PROTO": ""}),
        Variant("quiet", env={"NCCL_DEBUG": "WARN", "LANG": None}),
    )
    env = {"NCCL_DEBUG": "INFO"}
    found = documents(
        small_experiment(
            axes=Axes(num_steps=(1,), variants=variants),
            engine=EngineSpec("llama.cpp", "m.gguf", draft_model="d.gguf", env=env),
        )
    )
    swept = ["LANG", "NCCL_MAX_NCHANNELS", "NCCL_PROTO"]
    assert {name: document.unset for name, document in found.items()} == {
        "default": swept,
        "ll": ["LANG", "NCCL_MAX_NCHANNELS"],
        "few": ["LANG"],
        "quiet": swept,
    }
    assert found["few"].env["NCCL_PROTO"] == ""
    assert found["default"].env["NCCL_DEBUG"] == "INFO"


def test_a_traced_trial_has_time_for_it() -> None:
    """The launch may last longer by its requests and by three calls of the profiler."""
    experiment = sglang_experiment(Profile(trace=True))
    launches = make_plan(experiment, SGLang()).launches
    found = {launch.role: sglang_document(launch, experiment) for launch in launches}
    assert [trial.traced for trial in found[Role.MAIN].trials] == [True]
    assert [trial.traced for trial in found[Role.BASELINE_LAST].trials] == [False]
    assert found[Role.MAIN].engine.trace is not None
    spent_s = [found[role].deadlines.launch_s for role in (Role.MAIN, Role.BASELINE_LAST)]
    assert spent_s[0] - spent_s[1] == 300.0 + 3 * 180.0
