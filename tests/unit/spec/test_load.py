"""Experiment files as a whole: what they mean, and every problem at once with its place."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import yaml
from fakes.files import BASE, SMALL, SWEEP, load, only_problem, problems_of
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sweep.model.errors import Problem, SpecError
from sweep.model.experiment import (
    Axes,
    Budget,
    Constraint,
    EngineSpec,
    Experiment,
    NodeSpec,
    Objective,
    Profile,
    Prompt,
    Repeats,
    Timeouts,
    Variant,
    Workload,
)
from sweep.spec.load import decode_text

FULL = """
name: full-1
node: {gpus: [1, GPU-abc], on_busy: wait, workdir: /scratch}
engine:
  kind: llama.cpp
  command: [./serve, --quiet]
  model: ../models/target.gguf
  draft_model: hub/draft
  algorithm: draft-simple
  args: {threads: 2, ctx_size: 4096, mlock: true}
  env: {OMP_NUM_THREADS: 08}
baseline: false
sweep:
  num_steps: {from: 2, to: 6, step: 2}
  topk: 1
  num_draft_tokens: [3, 5]
  args: {batch-size: [256, 512]}
  nccl:
    default: {}
    low-latency: {NCCL_PROTO: LL, NCCL_P2P_LEVEL: ~}
  variants:
    other-draft: {draft_model: ./d2.gguf, unset: [FOO], env: {BAR: no}, args: {poll: 0}}
exclude:
  - {num-steps: 2, batch_size: 512}
workloads:
  - name: files
    prompts_file: prompts/p.jsonl
    api: chat
    max_tokens: 100
    ignore_eos: true
    temperature: 1e-1
    concurrency: [1, 2]
    repeats: {min: 2, max: 3, relative_ci: 0.05}
  - name: lines
    prompts_file: p.txt
objective:
  metric: decode_tok_s
  at: {workload: files, concurrency: 2}
  constraints: [{metric: itl_s_p99, at_most: 0.5}]
timeouts: {load: 15m, claim: 90s}
strategy: grid
budget: {launches: 40, hours: 1.5}
keep: true
"""
FILES = {
    "prompts/p.jsonl": '{"id": 7, "prompt": "x"}\n\n'
    '{"messages": [{"role": "user", "content": "y"}]}\n',
    "p.txt": "one\ntwo\r\n\n",
}


def test_a_full_file_becomes_an_experiment() -> None:
    """Every key arrives, shorthands are expanded, mappings are sorted, paths resolved."""
    experiment = load(FULL, files=FILES)
    assert experiment == Experiment(
        name="full-1",
        nodes=(NodeSpec(gpus=(1, "GPU-abc"), on_busy="wait", workdir="/scratch"),),
        engine=EngineSpec(
            kind="llama.cpp",
            command=("/lab/experiments/serve", "--quiet"),
            model="/lab/models/target.gguf",
            draft_model="hub/draft",
            algorithm="draft-simple",
            args={"ctx-size": 4096, "mlock": True, "threads": 2},
            env={"OMP_NUM_THREADS": "08"},
        ),
        baseline=False,
        axes=Axes(
            num_steps=(2, 4, 6),
            topk=(1,),
            num_draft_tokens=(3, 5),
            args={"batch-size": (256, 512)},
            variants=(
                Variant("default"),
                Variant("low-latency", env={"NCCL_P2P_LEVEL": None, "NCCL_PROTO": "LL"}),
                Variant(
                    "other-draft",
                    env={"BAR": "no", "FOO": None},
                    args={"poll": 0},
                    draft_model="/lab/experiments/d2.gguf",
                ),
            ),
        ),
        exclude=({"batch-size": (512,), "num_steps": (2,)},),
        workloads=(
            Workload(
                name="files",
                prompts=(Prompt("7", "x"), Prompt("2", messages=(("user", "y"),))),
                max_tokens=100,
                ignore_eos=True,
                temperature=0.1,
                concurrency=(1, 2),
                repeats=Repeats(2, 3, 0.05),
                api="chat",
            ),
            Workload(name="lines", prompts=(Prompt("1", "one"), Prompt("2", "two"))),
        ),
        objective=Objective("decode_tok_s", "files", 2, (Constraint("itl_s_p99", at_most=0.5),)),
        timeouts=Timeouts(load_s=900, claim_s=90),
        budget=Budget(40, 1.5),
        keep=True,
    )
    assert list(experiment.engine.args) == ["ctx-size", "mlock", "threads"]


def test_a_small_file_takes_the_defaults() -> None:
    """What is left out is what the model of an experiment says."""
    experiment = load(SMALL)
    prompts = (Prompt("1", "a"), Prompt("2", "b"), Prompt("3", "c"))
    assert experiment == Experiment(
        name="small",
        engine=EngineSpec("llama.cpp", "m.gguf"),
        workloads=(Workload("code", prompts, concurrency=(1, 2)),),
    )


def test_home_is_expanded_and_other_paths_are_left_alone() -> None:
    """A tilde is this machine's home; a hub name with a slash is no path."""
    text = SMALL.replace("m.gguf", "~/m.gguf") + "sweep: {num_steps: 1}\n"
    experiment = load(text, ["engine.draft_model=org/draft"])
    assert experiment.engine.model == str(Path("~/m.gguf").expanduser())
    assert experiment.engine.draft_model == "org/draft"


def test_spellings_duplicates_unknown_keys_and_merge_keys() -> None:
    """T35: the first three are problems with lines and a suggestion, a merge key is none."""
    text = (
        "name: a\n"
        "engine: {kind: llama.cpp, model: m, args: &args {ctx-size: 1}}\n"
        "name: b\n"
        "sweep:\n"
        "  num_steps: 1\n"
        "  num-steps: 2\n"
        "  topk: 1\n"
        "  topk: 2\n"
        "  num_draft_token: 4\n"
        "  variants: {v: {args: {<<: *args, threads: 2}}}\n"
        "workloads:\n"
        "  - {name: w, prompts: [p]}\n"
    )
    problems = problems_of(text)
    assert [(problem.line, problem.column) for problem in problems] == [
        (3, 1),
        (6, 3),
        (8, 3),
        (9, 3),
    ]
    assert "line 1" in problems[0].message
    assert "`num_steps` in line 5" in problems[1].message
    assert "line 7" in problems[2].message
    assert problems[3].hint == "did you mean num_draft_tokens?"
    right = "\n".join(line for n, line in enumerate(text.split("\n"), 1) if n not in (3, 6, 8, 9))
    assert load(right).axes.variants[1].args == {"ctx-size": 1, "threads": 2}


def test_a_key_in_the_wrong_place_is_shown_the_right_one() -> None:
    """An unknown key that exists elsewhere is no spelling mistake."""
    assert only_problem(SMALL + "max_tokens: 3\n").hint == "it belongs into an entry of workloads"
    assert only_problem(SMALL + "topk: 3\n").hint == "it belongs into sweep"


@pytest.mark.parametrize("axis", ["num_steps: 2", "topk: 1", "num_draft_tokens: auto"])
def test_axes_of_a_variant_need_its_algorithm(axis: str) -> None:
    """Without one, they would stand beside those of the sweep."""
    problem = only_problem(SMALL + f"sweep: {{variants: {{v: {{{axis}}}}}}}\n")
    assert "those of its own algorithm" in problem.message


FAULTS = {
    "name: small": ("name: two words", "cannot be a name"),
    "kind: llama.cpp": ("kind: vllm", "not built yet"),
    "model: m.gguf": ("model: m.gguf, modle: 1", "unknown key `modle`"),
    "args: {}": ("args: {a_b: 1, a-b: 2}", "was set before"),
    "env: {}": ("env: {A: null}", "~ for unset"),
    "topk: 1": ("topk: [1, x]", "not a whole number"),
    "num_steps: 2": ("num_steps: {from: 3, to: 1}", "holds nothing"),
    "nccl: {}": ("nccl: {n: {}}", 'is the same as "default"'),
    "{v: {args: {x: 1}}}": ("{v: {args: {x: 1}, env: {E: 1}, unset: [E]}}", "stands in env too"),
    "exclude: []": ("exclude: [{num_stps: 1}]", "not an axis"),
    "prompts: [a, b]": ("prompts: [a, b], prompt_set: code", "prompts"),
    "min: 2": ("min: 9", "is above max"),
    "concurrency: 1": ("concurrency: [1, 64]", "different prompts"),
    "name: second": ("name: first", "two workloads"),
    "load: 5m": ("load: 300", "300s"),
    "hours: 1": ("hours: soon", "not a number"),
    "keep: false": ("keep: off", "write false"),
    "strategy: grid": ("strategy: guided", "not built yet"),
}
SOUND = """
name: small
engine: {kind: llama.cpp, model: m.gguf, args: {}, env: {}}
sweep:
  topk: 1
  num_steps: 2
  nccl: {}
  variants: {v: {args: {x: 1}}}
exclude: []
workloads:
  - {name: first, prompts: [a, b], repeats: {min: 2, max: 4}}
  - {name: second, prompts: [c, d], concurrency: 1}
timeouts: {load: 5m}
budget: {hours: 1}
keep: false
strategy: grid
"""
_UNDER_SWEEP = ("topk: 1", "num_steps: 2", "nccl: {}", "{v: {args: {x: 1}}}")


@given(st.sets(st.sampled_from(sorted(FAULTS)), min_size=1))
@example(set(FAULTS) - {"exclude: []"})
@settings(deadline=None)
def test_every_problem_is_reported_at_once(chosen: set[str]) -> None:
    """However faults are combined, each is reported, once, and nothing else is.

    One dependency is meant: `exclude` is checked against axes, so not while these are wrong.
    """
    if "exclude: []" in chosen:
        chosen -= set(_UNDER_SWEEP)
    text = SOUND
    for right in chosen:
        assert right in text
        text = text.replace(right, FAULTS[right][0])
    problems = problems_of(text)
    lines = [f"{problem.message} ({problem.hint})" for problem in problems]
    for right in chosen:
        assert any(FAULTS[right][1] in line for line in lines), (right, lines)
    assert len(problems) == len(chosen), lines
    assert all(problem.line and problem.column for problem in problems)
    assert list(problems) == sorted(problems, key=lambda item: (item.line, item.column))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("# nothing\n", "the file is empty"),
        ("- a\n", "must be a mapping"),
        ("just text", "must be a mapping"),
        ("a: [\n", "not YAML"),
    ],
)
def test_what_is_no_experiment_at_all(text: str, message: str) -> None:
    """One clear problem at a place."""
    problem = only_problem(text)
    assert message in problem.message
    assert problem.line is not None


def test_missing_keys_are_named_together() -> None:
    """A file with nothing right lists what it needs."""
    messages = {problem.message for problem in problems_of("engine: {kind: llama.cpp}\n")}
    assert messages == {"name is missing", "engine.model is missing", "workloads is missing"}


SEMANTIC = [
    ("name: code,", "name: code, prompts_file: p.txt,", "prompts_file and prompts", 4),
    ("prompts: [a, b, c], ", "", "it has no prompts", 4),
    ("[a, b, c]", "[]", "is empty", 4),
    ("[a, b, c]", "[a, b, b, {id: 1, prompt: z}]", 'two prompts have the id "1"', 4),
    ("[a, b, c]", "[a, a, a]", "there are 1", 4),
    ("prompts: [a, b, c]", "prompts_file: no.txt", "no.txt: No such file", 4),
    ("[1, 2]}", "[1, 2], repeats: {min: 1}}", "no interval of confidence", 4),
    ("name: small", "name: small\nobjective: {at: {workload: cod}}", 'no workload "cod"', 2),
    ("name: small", "name: small\nobjective: {at: {concurrency: 3}}", "not sent at", 2),
    ("name: small", "name: small\nobjective: {metric: speed}", "must be one of", 2),
    ("name: small", "name: small\nobjective: {constraints: [{metric: speedup}]}", "nothing", 2),
    ("name: small", "name: small\nexclude: [{}]", "excludes everything", 2),
    ("name: small", "name: small\nexclude: [{variant: fast}]", 'no variant "fast"', 2),
    ("name: small", "name: small\nexclude: [{variant: [default, x]}]", 'no variant "x"', 2),
    ("name: small", "name: small\nsweep: {num_steps: []}", "empty axis", 2),
    ("name: small", "name: small\nsweep: {num_steps: [1, 1]}", "twice", 2),
    ("name: small", "name: small\nsweep: {num_steps: 0}", "greater than or equal to 1", 2),
    ("name: small", "name: small\nsweep: {num_steps: {from: 1}}", "to is missing", 2),
    ("name: small", "name: small\nsweep: {num_steps: {from: 1, to: 9, by: 2}}", "not by", 2),
    ("name: small", "name: small\nsweep: {num_steps: {from: 1, to: 99999}}", "more than 1000", 2),
    ("name: small", "name: small\nsweep:", "has no value", 2),
    ("name: small", "name: small\nsweep: {variants: {a b: {}}}", "cannot be a name", 2),
    (
        "name: small",
        "name: small\nsweep: {nccl: {a: {X: 1}}, variants: {a: {env: {Y: 1}}}}",
        "names an nccl set too",
        2,
    ),
    (
        "name: small",
        "name: small\nsweep: {args: {a_b: [1, 2]}, variants: {v: {args: {a-b: 1}}}}",
        "swept in sweep.args",
        2,
    ),
    (
        "name: small",
        "name: small\nsweep: {num_steps: {from: 1, to: 900}, args: {x: {from: 1, to: 900}}}",
        "810000 configurations",
        2,
    ),
    ("m.gguf}", "m.gguf, draft_model: d}", "never used", 2),
]


@pytest.mark.parametrize(("right", "wrong", "words", "line"), SEMANTIC)
def test_what_a_well_shaped_file_can_get_wrong(
    right: str, wrong: str, words: str, line: int
) -> None:
    """Each is one problem in the right line."""
    problem = only_problem(SMALL.replace(right, wrong))
    assert words in problem.message
    assert problem.line == line


def test_axes_of_a_variants_own_count_as_well() -> None:
    """Those of the sweep hold for the other variants only."""
    own = "{algorithm: a, num_steps: {from: 1, to: 900}, topk: {from: 1, to: 9}}"
    sweep = f"sweep: {{num_steps: [1, 2], args: {{x: [1, 2]}}, variants: {{v: {own}}}}}\n"
    problem = only_problem(SMALL + sweep)
    assert problem.message == f"the sweep asks for {(900 * 9 + 2) * 2} configurations"


def test_problems_of_prompt_files_name_file_and_line() -> None:
    """Every bad line is reported, at the key that names the file."""
    text = SMALL.replace("prompts: [a, b, c]", "prompts_file: p.jsonl")
    lines = '{"prompt": "a"}\nnot json\n{"promt": "b"}\n{"prompt": ""}\n[1]\n' + "[" * 9000
    problems = problems_of(text, files={"p.jsonl": lines})
    starts = (
        "p.jsonl: line 2: not JSON (",
        "p.jsonl: line 3: unknown key `promt`",
        "p.jsonl: line 4: prompt: is an empty text",
        "p.jsonl: line 5: the line: must be a mapping",
        "p.jsonl: line 6: not JSON (",
    )
    assert {problem.line for problem in problems} == {4}
    for problem, start in zip(problems, starts, strict=True):
        assert problem.message.startswith(start)


@pytest.mark.parametrize(
    ("content", "words"),
    [("", "no prompts"), (b"\xff\xfe", "not UTF-8"), ("a\n" * 10_001, "more than 10000")],
)
def test_prompt_files_that_cannot_serve(content: str | bytes, words: str) -> None:
    """Empty, binary and endless files are refused."""
    text = SMALL.replace("prompts: [a, b, c]", "prompts_file: p.txt")
    (problem,) = problems_of(text, files={"p.txt": content})
    assert words in problem.message


@pytest.mark.parametrize(
    ("data", "line", "column"), [(b"name: a\nb\xc3\xa9: \xff", 2, 5), (b"\xff", 1, 1)]
)
def test_bytes_that_are_no_text(data: bytes, line: int, column: int) -> None:
    """The place of the first byte that is not UTF-8 is named."""
    with pytest.raises(SpecError) as caught:
        decode_text(data, "x.yaml")
    (problem,) = caught.value.problems
    assert (problem.line, problem.column) == (line, column)


def test_bytes_that_are_text() -> None:
    """UTF-8 is decoded; more than a mebibyte is refused before anything reads it."""
    assert decode_text("ä: 1".encode(), "x.yaml") == "ä: 1"
    with pytest.raises(SpecError) as caught:
        decode_text(b"#" * (1 << 20) + b"\n", "x.yaml")
    assert "larger than" in caught.value.problems[0].message


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("engine: {kind: vllm, model: m}", "`engine.kind: vllm`"),
        ("engine: {kind: llama.cpp, model: m, container: x}", "`engine.container`"),
        ("strategy: guided", "`strategy: guided`"),
    ],
)
def test_what_is_documented_but_not_built_is_refused_by_name(line: str, name: str) -> None:
    """Nobody waits for a sweep that silently left out what was asked."""
    key = line.partition(":")[0]
    kept = [old for old in SMALL.splitlines() if old.partition(":")[0] != key]
    problem = only_problem("\n".join([*kept, line]))
    assert problem.message == f"{name} is not built yet"
    assert problem.hint


def test_overrides_lie_over_the_file() -> None:
    """Values are YAML, keys take either spelling, list items are numbered, the last one wins."""
    experiment = load(
        SMALL + SWEEP,
        [
            "sweep.num-steps=[2, 4]",
            "engine.args.ctx_size=1",
            "engine.args.ctx-size=2",
            "workloads.0.max_tokens=7",
            "budget={hours: 2}",
            "engine.env.URL=a=b",
        ],
    )
    assert experiment.axes.num_steps == (2, 4)
    assert experiment.engine.args == {"ctx-size": 2}
    assert experiment.engine.env == {"URL": "a=b"}
    assert experiment.workloads[0].max_tokens == 7
    assert experiment.budget == Budget(hours=2)


@pytest.mark.parametrize(
    ("override", "profile"),
    [
        ("profile={}", Profile(100)),
        ("profile.every_cycles=50", Profile(50)),
        ("profile.compare=true", Profile(100, compare=True)),
        ("profile.trace=true", Profile(100, trace=True)),
        ("profile=~", None),
        ("keep=false", None),
    ],
)
def test_phases_are_timed_on_demand_only(override: str, profile: Profile | None) -> None:
    """A probe inside the engine is put there by those who ask for it."""
    assert load(SMALL, [override]).profile == profile


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("name", "not of the form"),
        ("=3", "not of the form"),
        ("a..b=3", "not of the form"),
        ("name=", "gives no value"),
        ("name=[", "not YAML"),
        ("workloads.1.name=x", "no `workloads.1`"),
        ("workloads.x.name=x", "no `workloads.x`"),
        ("engine.modle=x", "unknown key `modle`"),
        ("engine.kind=vllm", "not built yet"),
        ("sweep.num_steps={from: 2, to: 1}", "holds nothing"),
    ],
)
def test_problems_of_overrides_name_them(override: str, words: str) -> None:
    """There is no line to point at, so the override itself is shown."""
    problem = only_problem(SMALL, [override])
    assert problem.message.startswith(f"--set {override}: ")
    assert words in problem.message
    assert problem.line is None


def test_problems_of_the_engine_are_placed_by_their_path() -> None:
    """What an engine finds wrong carries a path, which becomes line and column."""
    found = [Problem("no such flag", hint="x", path=("engine", "model")), Problem("odd")]
    with pytest.raises(SpecError) as caught:
        load(SMALL, engine_problems=lambda _: found)
    assert caught.value.problems == (Problem("no such flag", 2, 34, "x"), Problem("odd"))


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["name", "num_steps", "prompts", "from", "to", "env", "x", "at", "kind"]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=12,
)
_TOP = st.sampled_from(
    [field.name for field in dataclasses.fields(Experiment)]
    + ["sweep", "node", "profile", "nodes", "<<"]
)


@given(st.text(max_size=200) | st.text("{}[]:,-&*!|>'\"%@` \n\t#?<~ab1", max_size=60))
@settings(max_examples=300)
def test_any_text_loads_or_is_a_spec_error(text: str) -> None:
    """Nothing that a file holds may end in another exception."""
    problems_of(text)


@given(st.dictionaries(_TOP, _VALUES, max_size=6), st.text(max_size=20))
@settings(max_examples=200)
def test_any_tree_loads_or_is_a_spec_error(tree: dict[str, Any], override: str) -> None:
    """Values of any type at any key are problems, never another exception."""
    text = yaml.safe_dump(tree, allow_unicode=True)
    problems_of(text)
    problems_of(SMALL, [override, f"engine.args={text}"])


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30))
def test_quoted_environment_values_arrive_exactly(value: str) -> None:
    """Whatever a value holds, it reaches the server unchanged."""
    env = yaml.safe_dump({"V": value}, default_style='"', allow_unicode=False)
    text = SMALL.replace("model: m", f"env: {{{env.strip()}}}, model: m")
    assert load(text).engine.env == {"V": value}


def test_base_is_the_directory_of_prompt_files() -> None:
    """A relative prompt file is looked for beside the experiment, not where sweep runs."""
    text = SMALL.replace("prompts: [a, b, c]", "prompts_file: ../shared/p.txt")
    asked = problems_of(text)[0].message
    assert str(BASE.parent / "shared" / "p.txt") in asked


def test_paths_on_another_machine_are_whole() -> None:
    """What counts from this file or this home is refused for a node behind SSH, all at once."""
    text = SMALL + "\nnode: {host: gpu-a, workdir: ~/w}\n"
    text = text.replace("model: m.gguf", "model: ./m.gguf")
    messages = [problem.message for problem in problems_of(text)]
    assert messages == [
        f"{path} counts from this machine, but the node is gpu-a" for path in ("./m.gguf", "~/w")
    ]


@pytest.mark.parametrize(
    ("written", "workdir"),
    [
        ("./w", BASE / "w"),
        ("../w", BASE.parent / "w"),
        ("~/w", Path.home() / "w"),
        ("/w", Path("/w")),
    ],
)
def test_a_workdir_is_whole(written: str, workdir: Path) -> None:
    """On this machine a workdir counts from the file or from home, never from where sweep runs."""
    assert load(SMALL + f"\nnode: {{workdir: {written}}}\n").nodes[0].workdir == str(workdir)


@pytest.mark.parametrize(
    ("node", "advice"),
    [("workdir: w/x", "write ./w/x"), ("host: gpu-a, workdir: w/x", "the whole path as it is")],
)
def test_a_bare_relative_workdir_is_refused(node: str, advice: str) -> None:
    """A relative path without ./ in front counts from nothing, here as on a host."""
    problem = only_problem(SMALL + f"\nnode: {{{node}}}\n")
    assert problem.message == "w/x is relative, and nothing says to what"
    assert advice in (problem.hint or "")


def test_setup_is_read_line_by_line() -> None:
    """Whatever a line holds, it reaches the shell as written."""
    text = SMALL.replace("model: m", "setup: ['. /x/activate', \"export A='1 2'\"], model: m")
    assert load(text).engine.setup == (". /x/activate", "export A='1 2'")
    assert load(SMALL).engine.setup == ()


@pytest.mark.parametrize(
    ("setup", "message"),
    [
        ("source /x/activate", "engine.setup: must be a list"),
        ("[]", "engine.setup: is empty"),
        ("[{a: 1}]", "engine.setup[0]: "),
        ("['']", "engine.setup[0]: "),
    ],
)
def test_a_setup_that_is_no_list_of_lines_is_refused(setup: str, message: str) -> None:
    """One problem each."""
    problem = only_problem(SMALL.replace("model: m", f"setup: {setup}, model: m"))
    assert problem.message.startswith(message)


def test_several_nodes_are_read() -> None:
    """Each with GPUs and settings of its own, in the order of the file."""
    loaded = load(SMALL + "nodes: [{host: a, gpus: [0, 1]}, {on_busy: wait}]\n")
    assert loaded.nodes == (NodeSpec("a", (0, 1)), NodeSpec(None, on_busy="wait"))
    assert [node.name for node in loaded.nodes] == ["a", "local"]


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("nodes: []", "nodes: is empty", "give at least one entry"),
        ("node: {host: a}\nnodes: [{host: b}]", "both `node` and `nodes` are given", "move"),
        ("nodes: [{host: a}, {host: a, gpus: [1]}]", "node a stands there twice", "all of its"),
        ("nodes: [{}, {gpus: [0]}]", "node local stands there twice", "one entry"),
        ("nodes: [{host: a, gpu: [1]}]", "unknown key `gpu` in nodes[0]", "did you mean gpus?"),
        ("nodes: [{}, {host: b, workdir: ~/w}]", "~/w counts from this machine, but the", "whole"),
    ],
)
def test_what_is_wrong_with_nodes_is_told(text: str, message: str, hint: str) -> None:
    """One problem, with what to do."""
    problem = only_problem(SMALL + text + "\n")
    assert problem.message.startswith(message)
    assert hint in (problem.hint or "")
    assert problem.line


@pytest.mark.parametrize(
    ("together", "message", "hint"),
    [
        ("[[default, lo]]", 'there is no variant "lo"', "did you mean low?"),
        ("[[default, low], [low]]", 'variant "low" stands there twice', "join the lists"),
        ("[[]]", "sweep.together[0]: is empty", "at least one entry"),
    ],
)
def test_what_is_wrong_with_together_is_told(together: str, message: str, hint: str) -> None:
    """Each variant is named once at most, by a name that is there."""
    sweep = f"sweep: {{num_steps: 1, nccl: {{low: {{A: 1}}}}, together: {together}}}\n"
    problem = only_problem(SMALL + sweep)
    assert problem.message == message
    assert hint in (problem.hint or "")


def test_a_host_is_read() -> None:
    """node.host names the machine behind SSH; nothing else changes."""
    assert load(SMALL + "\nnode: {host: gpu-a}\n").nodes[0].host == "gpu-a"
