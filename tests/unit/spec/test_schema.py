"""The JSON Schema for editors, the packaged prompts, and what importing costs."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import jsonschema  # type: ignore[import-untyped] # ships no types
import pytest
import yaml
from fakes.files import SMALL, SWEEP, load

from sweep.spec.prompt_sets import PROMPT_SETS, packaged_text
from sweep.spec.schema import json_schema

RICH = """
name: rich
node: {gpus: [0, GPU-1], on_busy: wait}
engine:
  kind: llama.cpp
  model: m
  command: [a, b]
  args: {x: 1, y: true, z: text, w: 0.5}
  env: {A: no, B: 1, C: ~, D: "x"}
sweep:
  num_steps: {from: 1, to: 9, step: 2}
  topk: 1
  num_draft_tokens: auto
  args: {p: [0.1, 0.2], q: {from: 1, to: 3}}
  nccl: {default: {}, ll: {NCCL_PROTO: LL}}
  variants: {v: {env: {E: 1}, unset: [F], args: {g: false}, draft_model: d}}
exclude: [{num_steps: {from: 1, to: 2}, p: [0.1, 0.2]}, {num_steps: 1}]
workloads:
  - {name: a, prompt_set: code, concurrency: [1, 8], repeats: {min: 2, max: 4}}
  - {name: b, prompts: [x, {id: y, prompt: z}], max_tokens: 8}
  - {name: c, messages: [{role: user, content: hi}], api: chat}
objective: {metric: speedup, at: {workload: a, concurrency: 8}}
timeouts: {load: 30m, stall: 90s}
strategy: grid
budget: {launches: 4, hours: 1.5}
profile: {every_cycles: 50}
"""


def check(document: Any) -> None:
    """Validate a document; raises jsonschema.ValidationError."""
    jsonschema.Draft202012Validator(json_schema()).validate(document)


def test_the_schema_is_a_schema() -> None:
    """Editors get a valid draft 2020-12 document in which every key is described."""
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    sections = [schema, *schema["$defs"].values()]
    for section in sections:
        assert section["additionalProperties"] is False
        for name, field in section["properties"].items():
            assert "description" in field or "$ref" in field, (section["title"], name)
            if "default" in field:
                jsonschema.validate(field["default"], field)
    assert schema["$defs"]["WorkloadSection"]["properties"]["max_tokens"]["default"] == 256


@pytest.mark.parametrize("text", [RICH, SMALL + SWEEP])
def test_what_loads_is_valid_to_an_editor(text: str) -> None:
    """The schema allows what the loader allows."""
    load(text)
    check(yaml.safe_load(text))


@pytest.mark.parametrize(
    "override",
    [
        "engine={kind: vllm, model: m}",
        "engine={kind: llama.cpp, model: m, modle: m}",
        "sweep={num_steps: []}",
        "sweep={num_steps: 0}",
        "timeouts={load: 900}",
        "workloads=[]",
        "nodes=[]",
        "workloads=[{name: a, prompt_set: poems}]",
    ],
)
def test_what_an_editor_refuses(override: str) -> None:
    """The commonest mistakes are underlined while typing."""
    key, _, value = override.partition("=")
    document = yaml.safe_load(SMALL) | {key: yaml.safe_load(value)}
    with pytest.raises(jsonschema.ValidationError):
        check(document)


@pytest.mark.parametrize("name", PROMPT_SETS)
def test_packaged_sets_hold_twenty_different_prompts(name: str) -> None:
    """Each set loads, has distinct ids and serves a concurrency of 20."""
    workload = f"workloads=[{{name: w, prompt_set: {name}, concurrency: 20}}]"
    prompts = load(SMALL, [workload]).workloads[0].prompts
    assert len({prompt.text for prompt in prompts}) >= 20
    assert len({prompt.prompt_id for prompt in prompts}) == len(prompts)
    words = [len((prompt.text or "").split()) for prompt in prompts]
    assert min(words) >= (300 if name == "long-context" else 15)
    assert max(words) <= (1500 if name == "long-context" else 60)


def test_packaged_sets_are_ascii_json_lines() -> None:
    """No line depends on an encoding or an editor."""
    for name in PROMPT_SETS:
        for line in packaged_text(name).splitlines():
            assert set(json.loads(line)) == {"id", "prompt"}
            assert line.isascii()


def test_importing_is_light() -> None:
    """`sweep plan` and `sweep schema` wait for no library that they do not need."""
    program = (
        "import sys, sweep.spec.load, sweep.spec.plan, sweep.spec.describe, sweep.spec.schema\n"
        "print(*{'ray', 'pandas', 'matplotlib', 'scipy', 'numpy', 'paramiko'} & set(sys.modules))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert ended.stdout.strip() == ""
