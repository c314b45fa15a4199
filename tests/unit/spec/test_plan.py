"""Planning: what is launched, in which order, under which identities."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import yaml
from fakes.engine import POOL_RULE, FakeEngine
from fakes.files import SMALL, SWEEP, load
from hypothesis import given, settings
from hypothesis import strategies as st

from sweep.model.experiment import Experiment
from sweep.model.plan import Configuration, Plan, PlannedLaunch, Role, SetupLayer
from sweep.ports import EngineFacts, Judged
from sweep.spec.lanes import ArmSize, assign
from sweep.spec.plan import KnownNode, make_plan


def plan(text: str, *overrides: str) -> Plan:
    """Plan a file for the fake engine."""
    return make_plan(load(text, overrides), FakeEngine())


def layout(planned: Plan) -> list[tuple[str, str, str]]:
    """Return role, arm and label of each launch."""
    return [(launch.role.value, launch.arm, launch.label) for launch in planned.launches]


def trial_ids(planned: Plan) -> set[str]:
    """Return the ids of all trials."""
    ids = [trial.trial_id for launch in planned.launches for trial in launch.trials]
    assert len(ids) == len(set(ids))
    return set(ids)


def launch_ids(planned: Plan) -> list[str]:
    """Return the ids of all launches, which are distinct."""
    ids = [launch.launch_id for launch in planned.launches]
    assert len(ids) == len(set(ids))
    return ids


def test_a_chain_is_framed_by_its_baselines() -> None:
    """One launch a step count, the baseline before and after; every trial shares its launch."""
    planned = plan(SMALL + SWEEP)
    assert layout(planned) == [
        ("baseline_first", "default", "baseline"),
        ("main", "default", "1 step"),
        ("main", "default", "2 steps"),
        ("main", "default", "3 steps"),
        ("baseline_last", "default", "baseline (again)"),
    ]
    assert [trial.concurrency for trial in planned.launches[1].trials] == [1, 2]
    assert planned.launches[1].server.argv[-6:] == ("--steps", "1", "--topk", "1", "--tokens", "2")
    assert planned.launches[0].node == "local"
    assert (planned.asked, planned.excluded, planned.merged) == (3, 0, 0)


def test_workloads_and_concurrencies_share_a_launch_in_file_order() -> None:
    """No server is started twice for another prompt or another number of streams."""
    text = SMALL + "  - {name: chat, prompts: [x, y, z], concurrency: [3, 1]}\n" + SWEEP
    trials = plan(text).launches[1].trials
    places = [(trial.workload.name, trial.concurrency) for trial in trials]
    assert places == [("code", 1), ("code", 2), ("chat", 3), ("chat", 1)]
    assert len({trial.configuration_id for trial in trials}) == 1


def test_impossible_trees_are_skipped_and_adjusted_chains_are_merged() -> None:
    """T20: the formula is the reason, no launch is spent; a chain's tokens follow its steps."""
    planned = plan(
        SMALL, "sweep={num_steps: 1, topk: [1, 2], num_draft_tokens: [2, 8]}", "baseline=false"
    )
    assert layout(planned) == [
        ("main", "default", "1 step"),
        ("main", "default", "1 step, topk 2, 2 tokens"),
    ]
    (skipped,) = planned.skipped
    assert skipped.reason == f"{POOL_RULE}: 7 > 2"
    assert (skipped.configuration.topk, skipped.configuration.num_draft_tokens) == (2, 8)
    assert skipped.configuration.num_steps == 1
    assert planned.launches[0].trials[0].configuration.num_draft_tokens == 2
    assert planned.merged == 1
    assert planned.notes == ("num_draft_tokens is num_steps + 1 when topk is 1",)
    assert planned.asked == 4


def test_each_arm_has_its_own_baselines_around_its_launches() -> None:
    """Environment sets and target arguments make arms; arms come one after another."""
    planned = plan(
        SMALL, "sweep={num_steps: 2, nccl: {ll: {NCCL_PROTO: LL}}, args: {batch: [8, 16]}}"
    )
    expected = []
    for variant in ("default", "ll"):
        for batch in (8, 16):
            arm = f"{variant}, batch={batch}"
            tail = f"ll, batch={batch}" if variant == "ll" else f"batch={batch}"
            expected += [
                ("baseline_first", arm, f"baseline, {tail}"),
                ("main", arm, f"2 steps, {tail}"),
                ("baseline_last", arm, f"baseline, {tail} (again)"),
            ]
    assert layout(planned) == expected
    assert planned.launches[6].server.env == {"NCCL_PROTO": "LL"}
    assert planned.launches[0].server.env == {}


def test_what_matters_to_speculation_only_shares_the_arm() -> None:
    """A variant with another draft model, or a swept draft argument, needs no other baseline."""
    planned = plan(
        SMALL,
        "sweep={num_steps: 2, args: {spec-p: [0.1, 0.2]}, variants: {other: {draft_model: x}}}",
    )
    assert {launch.arm for launch in planned.launches} == {"default"}
    assert [launch.role for launch in planned.launches] == [
        Role.BASELINE_FIRST,
        *[Role.MAIN] * 4,
        Role.BASELINE_LAST,
    ]
    assert planned.launches[0].trials[0].configuration.args == {}


def test_a_variant_with_its_own_algorithm_has_its_own_axes() -> None:
    """Those of the sweep do not hold for it, and it shares the arm's baseline."""
    planned = plan(
        SMALL,
        "engine.algorithm=A",
        "sweep={num_steps: [1, 2], variants: {"
        "other: {algorithm: B, num_steps: [4], topk: [1, 2], num_draft_tokens: [5]}}}",
    )
    assert {launch.arm for launch in planned.launches} == {"default"}
    asked = [launch.trials[0].configuration for launch in planned.launches]
    assert [(item.algorithm, item.num_steps, item.topk) for item in asked[1:-1]] == [
        ("A", 1, 1), ("A", 2, 1), ("B", 4, 1), ("B", 4, 2),
    ]  # fmt: skip
    assert [item.variant for item in asked[1:-1]] == ["default", "default", "other", "other"]


def test_a_variant_may_speculate_where_the_engine_does_not() -> None:
    """Only the variant's configuration is one, and the others are the baseline."""
    planned = plan(SMALL, "sweep={variants: {other: {algorithm: B, num_steps: [4]}}}")
    assert layout(planned) == [
        ("baseline_first", "default", "baseline"),
        ("main", "default", "4 steps, other"),
        ("baseline_last", "default", "baseline (again)"),
    ]


def test_unsetting_a_variable_is_an_arm_of_its_own() -> None:
    """Unset differs from not mentioned, and from empty."""
    planned = plan(
        SMALL, 'sweep={num_steps: 2, nccl: {unset: {NCCL_ALGO: ~}, empty: {NCCL_ALGO: ""}}}'
    )
    servers = {launch.arm: launch.server for launch in planned.launches}
    assert (servers["unset"].env, servers["unset"].unset) == ({}, ("NCCL_ALGO",))
    assert (servers["empty"].env, servers["empty"].unset) == ({"NCCL_ALGO": ""}, ())
    assert len(set(launch_ids(planned))) == 9


def test_variants_that_start_equal_servers_are_measured_once() -> None:
    """A variant that repeats what the engine has anyway is merged, and named."""
    text = SMALL.replace("model: m", "args: {x: 1}, model: m")
    planned = plan(text, "sweep={num_steps: [1, 2], variants: {same: {args: {x: 1}}}}")
    assert [launch.arm for launch in planned.launches] == ["default"] * 4
    assert planned.merged == 2
    assert len(planned.notes) == 1
    assert '"same"' in planned.notes[0]


def test_exclude_removes_what_matches_all_keys() -> None:
    """Keys of one entry are joined by and, entries by or; effective values count too."""
    sweep = "sweep={num_steps: [1, 2, 3], args: {b: [1, true]}, nccl: {ll: {A: 1}}}"
    planned = plan(
        SMALL,
        sweep,
        "exclude=[{num_steps: 1, variant: ll}, {num_draft_tokens: 4}, {b: true}, {num_steps: 9}]",
    )
    kept = [
        (trial.configuration.num_steps, trial.configuration.variant, trial.configuration.args["b"])
        for launch in planned.launches
        if launch.role is Role.MAIN
        for trial in launch.trials[:1]
    ]
    assert kept == [(1, "default", 1), (2, "default", 1), (2, "ll", 1)]
    assert (planned.asked, planned.excluded) == (12, 9)
    assert planned.notes[0] == "exclude {'num_steps': 9} matches no configuration"


def test_exclude_takes_several_values_of_a_key() -> None:
    """A list or a span of an axis matches by any of its values."""
    sweep = "sweep={num_steps: {from: 1, to: 6}, nccl: {ll: {A: 1}, tuned: {A: 2}}}"
    spans = "exclude=[{variant: [ll, tuned], num_steps: {from: 3, to: 6}}]"
    planned = plan(SMALL, sweep, spans)
    kept = [
        (trial.configuration.num_steps, trial.configuration.variant)
        for launch in planned.launches
        if launch.role is Role.MAIN
        for trial in launch.trials[:1]
    ]
    default = [(steps, "default") for steps in range(1, 7)]
    assert kept == [*default, (1, "ll"), (2, "ll"), (1, "tuned"), (2, "tuned")]
    assert planned.excluded == 8
    unmatched = plan(SMALL, sweep, "exclude=[{num_steps: [8, 9]}]")
    assert unmatched.notes == (
        "exclude {'num_steps': [8, 9]} matches no configuration",
        "variants that do not set A have it unset",
    )


def test_an_arm_without_configurations_has_no_baseline() -> None:
    """A baseline that nothing is compared with is not worth a load."""
    planned = plan(
        SMALL, "sweep={num_steps: 1, nccl: {ll: {A: 1}}}", "exclude=[{variant: default}]"
    )
    assert {launch.arm for launch in planned.launches} == {"ll"}


def test_without_speculation_arms_are_compared_by_their_baselines() -> None:
    """Nothing to speculate with: first and last of each arm, or once when not asked for."""
    overrides = ["sweep={nccl: {ll: {A: 1}}}"]
    assert layout(plan(SMALL, *overrides)) == [
        ("baseline_first", "default", "baseline"),
        ("baseline_last", "default", "baseline (again)"),
        ("baseline_first", "ll", "baseline, ll"),
        ("baseline_last", "ll", "baseline, ll (again)"),
    ]
    once = layout(plan(SMALL, *overrides, "baseline=false"))
    assert [role for role, _, _ in once] == ["main", "main"]


FULL = {
    "name": "full",
    "engine": {
        "kind": "llama.cpp",
        "model": "m.gguf",
        "args": {"a": 1, "b-c": 2, "d": "x"},
        "env": {"E": "1", "F": "2"},
    },
    "sweep": {
        "num_steps": [1, 2],
        "args": {"p": [1, 2], "q": [3]},
        "variants": {"v": {"env": {"G": "1", "H": "2"}, "args": {"r": 1, "s": 2}}},
    },
    "exclude": [{"num_steps": 1, "p": 2}],
    "workloads": [{"name": "w", "prompts": ["a", "b"], "concurrency": [1, 2], "max_tokens": 9}],
}


def shuffled(value: object, chance: random.Random) -> object:
    """Return a tree with the keys of every mapping in another order."""
    if isinstance(value, dict):
        items = list(value.items())
        chance.shuffle(items)
        return {key: shuffled(item, chance) for key, item in items}
    if isinstance(value, list):
        return [shuffled(item, chance) for item in value]
    return value


def commented(text: str, chance: random.Random) -> str:
    """Return YAML with comments between and behind its lines."""
    lines = []
    for line in text.splitlines():
        lines += ["# a comment"] if chance.random() < 0.3 else []
        lines.append(f"{line}  # why" if chance.random() < 0.3 else line)
    return "\n".join(lines)


@given(st.integers(0, 10**6))
@settings(max_examples=40)
def test_key_order_and_comments_do_not_change_identities(seed: int) -> None:
    """T37: a file that says the same plans the same launches and trials, in the same order."""
    chance = random.Random(seed)
    text = commented(yaml.safe_dump(shuffled(FULL, chance), sort_keys=False), chance)
    first = plan(yaml.safe_dump(FULL, sort_keys=False))
    again = plan(text)
    assert launch_ids(again) == launch_ids(first)
    assert trial_ids(again) == trial_ids(first)
    assert again == first


def test_one_configuration_is_compared_without_the_probe() -> None:
    """The first that speculates, right after itself, with the server as it is without profile."""
    asked = "profile={compare: true}"
    found = plan(SMALL, "engine.kind=simulator", "sweep.num_steps=[1, 2]", asked)
    assert layout(found) == [
        ("baseline_first", "default", "baseline"),
        ("main", "default", "1 step"),
        ("unprofiled", "default", "1 step (without the probe)"),
        ("main", "default", "2 steps"),
        ("baseline_last", "default", "baseline (again)"),
    ]
    main, unprofiled = found.launches[1:3]
    assert unprofiled.launch_id != main.launch_id
    assert [t.configuration_id for t in unprofiled.trials] == [
        t.configuration_id for t in main.trials
    ]
    plain = plan(SMALL, "engine.kind=simulator", "sweep.num_steps=[1, 2]", "profile={}")
    assert set(launch_ids(found)) - set(launch_ids(plain)) == {unprofiled.launch_id}


def test_without_speculation_nothing_is_compared() -> None:
    """A baseline has no cycles; a plan of baselines says nothing of the probe."""
    found = plan(SMALL, "engine.kind=simulator", "profile={compare: true}")
    assert {role for role, _, _ in layout(found)} <= {"main", "baseline_first", "baseline_last"}
    assert any("none is measured without the probe" in note for note in found.notes)


@pytest.mark.parametrize("spelling", ["ctx-size", "ctx_size"])
def test_the_spelling_of_an_argument_does_not_count(spelling: str) -> None:
    """Dashes and underscores are one name."""
    planned = plan(SMALL + SWEEP, f"engine.args.{spelling}=8")
    assert trial_ids(planned) == trial_ids(plan(SMALL + SWEEP, "engine.args.ctx-size=8"))


@pytest.mark.parametrize("override", ["name=other", "timeouts.load=5m", "budget.launches=3"])
def test_what_does_not_change_a_measurement_keeps_all_rows(override: str) -> None:
    """T37: names, deadlines and budgets are no part of any identity."""
    assert trial_ids(plan(SMALL + SWEEP, override)) == trial_ids(plan(SMALL + SWEEP))


def test_a_value_added_brings_only_its_own_launches() -> None:
    """T37: everything that was there keeps its identity."""
    before, after = plan(SMALL + SWEEP), plan(SMALL + SWEEP, "sweep.num_steps={from: 1, to: 4}")
    assert set(launch_ids(before)) < set(launch_ids(after))
    new = trial_ids(after) - trial_ids(before)
    assert len(new) == 2
    assert trial_ids(before) < trial_ids(after)


def test_a_concurrency_added_keeps_the_launches() -> None:
    """T37: the same servers, each with one more trial."""
    before, after = plan(SMALL + SWEEP), plan(SMALL + SWEEP, "workloads.0.concurrency=[1, 2, 3]")
    assert launch_ids(before) == launch_ids(after)
    assert len(trial_ids(after) - trial_ids(before)) == len(before.launches)
    assert trial_ids(before) < trial_ids(after)


@pytest.mark.parametrize(
    "override",
    [
        "workloads.0.prompts=[a, b, d]",
        "workloads.0.max_tokens=5",
        "workloads.0.temperature=1",
        "engine.model=other.gguf",
        "engine.args.x=1",
        "engine.env.X=1",
        "engine.env.X=~",
        "node.host=gpu-b",
    ],
)
def test_what_changes_a_measurement_keeps_no_row(override: str) -> None:
    """T37: other prompts, another model, environment or host: nothing is reused."""
    before, after = plan(SMALL + SWEEP), plan(SMALL + SWEEP, override)
    assert not trial_ids(before) & trial_ids(after)


def test_another_engine_or_model_file_is_another_launch() -> None:
    """The same names with another version or size are not the same thing."""
    experiment = load(SMALL + SWEEP)
    one, other, same = (
        make_plan(
            experiment, FakeEngine(), {"local": KnownNode({"engine": version, "files": {"m": 5}})}
        )
        for version in ("b1", "b2", "b1")
    )
    assert not set(launch_ids(one)) & set(launch_ids(other))
    assert not trial_ids(one) & trial_ids(other)
    assert one == same


def test_configurations_are_told_apart_by_what_they_stand_for() -> None:
    """A configuration's id holds its engine and its variant's content, not only names."""

    def ids(*overrides: str) -> set[str]:
        trials = [trial for launch in plan(SMALL, *overrides).launches for trial in launch.trials]
        return {trial.configuration_id for trial in trials}

    base = "sweep={num_steps: 1, nccl: {ll: {A: 1}}}"
    assert len(ids(base)) == 4
    assert len(ids(base) & ids("sweep={num_steps: 1, nccl: {ll: {A: 2}}}")) == 2
    assert not ids(base) & ids(base, "engine.args.x=1")


TWO = "nodes=[{host: a}, {host: b}]"
ARMS = "sweep={num_steps: [1, 2], nccl: {ll: {A: 1}, simple: {A: 2}}}"


def places(planned: Plan) -> list[tuple[str, str, str]]:
    """Return node, arm and a letter for the role of each launch."""
    letters = {Role.BASELINE_FIRST: "first", Role.MAIN: "main", Role.BASELINE_LAST: "last"}
    return [(launch.node, launch.arm, letters[launch.role]) for launch in planned.launches]


def test_arms_are_shared_out_and_each_node_has_the_default_baseline() -> None:
    """An arm stays on one node; what is compared with the default is compared on its own node."""
    planned = plan(SMALL, ARMS, TWO)
    assert places(planned) == [
        *[("a", "default", role) for role in ("first", "main", "main", "last")],
        *[("a", "simple", role) for role in ("first", "main", "main", "last")],
        ("b", "default", "first"),
        *[("b", "ll", role) for role in ("first", "main", "main", "last")],
        ("b", "default", "last"),
    ]
    trial_ids(planned)
    launch_ids(planned)
    assert planned.notes[:2] == (
        "node a runs default; simple",
        "node b runs ll (and the baseline of default)",
    )
    assert planned.notes[2].startswith("rows of different nodes are never ranked together; ")


def test_variants_that_are_ranked_together_share_a_node() -> None:
    """Also with all their swept arguments; the other variants are shared out by themselves."""
    together = plan(SMALL, ARMS, TWO, "sweep.together=[[default, simple]]")
    assert {(launch.node, launch.arm) for launch in together.launches} == {
        ("a", "default"), ("a", "simple"), ("b", "default"), ("b", "ll"),
    }  # fmt: skip
    args = "sweep={num_steps: 1, args: {b: [1, 2]}, nccl: {ll: {A: 1}}, together: [[ll]]}"
    swept = {(launch.node, launch.arm) for launch in plan(SMALL, args, TWO).launches}
    assert swept == {
        ("a", "default, b=1"), ("b", "default, b=2"), ("b", "default, b=1"),
        ("a", "ll, b=1"), ("a", "ll, b=2"),
    }  # fmt: skip


def test_a_node_without_an_arm_is_idle_and_named() -> None:
    """One comparison group cannot be split: the other node has nothing to run, and that is told."""
    planned = plan(SMALL + SWEEP, TWO)
    assert {launch.node for launch in planned.launches} == {"a"}
    assert planned.notes[-1].startswith("nothing to run on b: ")


def test_without_a_baseline_nothing_is_added_to_a_node() -> None:
    """Nor when no variant is the default."""
    bare = plan(SMALL, ARMS, TWO, "baseline=false")
    assert {role for _, _, role in places(bare)} == {"main"}
    assert len(bare.launches) == 6
    excluded = plan(SMALL, ARMS, TWO, "exclude=[{variant: default}]")
    assert {(node, arm) for node, arm, _ in places(excluded)} == {("a", "ll"), ("b", "simple")}


@given(st.lists(st.integers(1, 6), min_size=1, max_size=8), st.integers(1, 4), st.data())
@settings(max_examples=100)
def test_an_arm_that_is_appended_moves_no_other(
    sizes: list[int], nodes: int, data: st.DataObject
) -> None:
    """T37: what was measured keeps its node, whatever arms come behind it."""
    names = [f"v{n}" for n in range(len(sizes))]
    group = st.lists(st.sampled_from(names), min_size=1, unique=True)
    together = [data.draw(group)] if data.draw(st.booleans()) else []
    arms = [ArmSize([name], size, name == "v0") for name, size in zip(names, sizes, strict=True)]
    hosts = [f"n{n}" for n in range(nodes)]
    whole = assign(arms, hosts, together, extra=2)
    for count in range(len(arms)):
        assert assign(arms[:count], hosts, together, extra=2) == whole[:count]
    for names_together in together:
        assert len({whole[names.index(name)] for name in names_together}) == 1


def test_an_arm_of_two_entries_joins_them() -> None:
    """Variants that share an arm cannot be on two nodes."""
    arms = [ArmSize(["x"], 1), ArmSize(["y"], 1), ArmSize(["x2", "y2"], 1)]
    together = [["x", "x2"], ["y", "y2"]]
    assert assign(arms, ["a", "b"], together, extra=0) == ["a", "a", "a"]
    assert assign(arms[:2], ["a", "b"], together, extra=0) == ["a", "b"]


_OVERRIDES = st.fixed_dictionaries(
    {
        "num_steps": st.sets(st.integers(1, 6), min_size=1, max_size=4),
        "topk": st.sets(st.integers(1, 4), min_size=1, max_size=3),
        "num_draft_tokens": st.none() | st.sets(st.integers(1, 20), min_size=1, max_size=4),
    }
)


def _framed(launches: list[PlannedLaunch]) -> bool:
    roles = [launch.role for launch in launches]
    middle = roles[1:-1]
    return (
        roles[0] is Role.BASELINE_FIRST
        and roles[-1] is Role.BASELINE_LAST
        and set(middle) == {Role.MAIN}
    )


@given(_OVERRIDES, st.booleans())
@settings(max_examples=100)
def test_every_configuration_asked_is_accounted_for(
    axes: dict[str, set[int] | None], with_sets: bool
) -> None:
    """Asked = planned + skipped + merged; no command twice; every arm between its baselines."""
    sweep = {key: sorted(values) if values else "auto" for key, values in axes.items()}
    sets = {"nccl": {"ll": {"A": "1"}}} if with_sets else {}
    experiment: Experiment = load(SMALL, [f"sweep={yaml.safe_dump({**sweep, **sets})}"])
    planned = make_plan(experiment, FakeEngine())
    mains = [launch for launch in planned.launches if launch.role is Role.MAIN]
    assert planned.asked == len(mains) + len(planned.skipped) + planned.merged
    commands = {(launch.server.argv, tuple(launch.server.env.items())) for launch in mains}
    assert len(commands) == len(mains)
    for arm in {launch.arm for launch in planned.launches}:
        assert _framed([launch for launch in planned.launches if launch.arm == arm])
    trial_ids(planned)


class _Versioned(FakeEngine):
    """An engine whose old version cannot draft two steps, and whose newest halves the tokens."""

    def judge(
        self, configuration: Configuration, experiment: Experiment, known: EngineFacts | None
    ) -> Judged:
        """By the version that the node told."""
        judged = super().judge(configuration, experiment, known)
        version = known.version if known else None
        if version == "old" and configuration.num_steps == 2:
            return replace(judged, reason="the old version cannot")
        if version == "newest" and configuration.num_steps == 3:
            return replace(judged, configuration=replace(judged.configuration, num_steps=1))
        return judged


@pytest.mark.parametrize(
    ("other", "reasons"),
    [
        ("usual", []),
        ("old", ["the old version cannot"]),
        ("newest", ["the engines of a and b would run it differently"]),
    ],
)
def test_a_configuration_is_planned_if_all_nodes_run_it_alike(
    other: str, reasons: list[str]
) -> None:
    """Which node an arm goes to must not decide what is compared."""
    known = {
        "a": KnownNode(engine=EngineFacts("usual")),
        "b": KnownNode(engine=EngineFacts(other)),
    }
    planned = make_plan(load(SMALL + SWEEP, [TWO]), _Versioned(), known)
    assert [skipped.reason for skipped in planned.skipped] == reasons
    assert len(planned.launches) == 5 - len(reasons)


SETUP = SetupLayer({"A": "setup", "S": "setup"}, ("GONE", "B"), ("/venv/bin",))


def with_setup(text: str, *overrides: str, **setups: SetupLayer) -> Plan:
    """Plan for nodes with these layers; one of the file's alone is local."""
    known = {name: KnownNode(setup=layer) for name, layer in setups.items()}
    return make_plan(load(text, overrides), FakeEngine(), known)


def test_what_setup_changes_lies_under_the_file() -> None:
    """The engine's environment and then the variant's win; what either unsets stays unset."""
    text = SMALL.replace("model: m", 'env: {A: engine, B: "1"}, model: m')
    planned = with_setup(text, "sweep={num_steps: 1, nccl: {v: {S: ~, C: 3}}}", local=SETUP)
    servers = {launch.arm: launch.server for launch in planned.launches}
    assert servers["default"].env == {"A": "engine", "B": "1", "S": "setup"}
    assert servers["default"].unset == ("GONE",)
    assert servers["v"].env == {"A": "engine", "B": "1", "C": "3"}
    assert servers["v"].unset == ("S", "GONE")
    assert servers["v"].path_first == ("/venv/bin",)


def test_what_setup_changes_is_part_of_identities_node_by_node() -> None:
    """Another environment is another launch; the other node's launches stay what they are."""
    sweep = (ARMS, TWO)
    one = with_setup(SMALL, *sweep, a=SETUP, b=SETUP)
    other = with_setup(SMALL, *sweep, a=SETUP, b=replace(SETUP, path_first=("/else",)))
    kept = set(launch_ids(one)) & set(launch_ids(other))
    assert kept == {launch.launch_id for launch in one.launches if launch.node == "a"}
    assert launch_ids(with_setup(SMALL, *sweep)) == launch_ids(plan(SMALL, *sweep))


@pytest.mark.parametrize(
    ("python", "override", "first"),
    [
        ("/opt/e/bin/python", "name=x", ("/opt/e/bin",)),
        ("python3", "name=x", ()),
        ("/opt/e/bin/python", "engine.env.PATH=/mine", ()),
        ("/opt/e/bin/python", "engine.env.PATH=~", ()),
    ],
)
def test_the_engines_python_comes_first_in_path(
    python: str, override: str, first: tuple[str, ...]
) -> None:
    """As in an activated environment, with and without setup, unless the file sets PATH."""
    overrides = ("sweep.num_steps=1", f"engine.python={python}", override)
    assert {launch.server.path_first for launch in plan(SMALL, *overrides).launches} == {first}
    layered = with_setup(SMALL, *overrides, local=SETUP).launches[0].server
    names_path = "PATH" in override
    assert layered.path_first == (() if names_path else (*first, "/venv/bin"))


def test_a_variants_own_python_comes_first_in_its_path() -> None:
    """Each launch finds the programs of the Python that it runs with."""
    sweep = "sweep={num_steps: 1, variants: {v: {python: /v/bin/python, args: {x: 1}}}}"
    planned = plan(SMALL, sweep, "engine.python=/e/bin/python")
    firsts = {launch.arm: launch.server.path_first for launch in planned.launches}
    assert firsts == {"default": ("/e/bin",), "v": ("/v/bin",)}
