"""SGLang's rules against the argument code of its releases: generated configurations."""

from __future__ import annotations

import json
import os
import random
import subprocess
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from fakes import sglang_arguments, sglang_server

from sweep.engines.sglang import SGLang
from sweep.model.experiment import Axes, EngineSpec, Experiment, Prompt, Scalar, Workload
from sweep.model.plan import Configuration
from sweep.ports import EngineFacts, Judged

pytestmark = [
    pytest.mark.sglang,
    pytest.mark.skipif(sglang_server.missing() is not None, reason=str(sglang_server.missing())),
]
ENGINE = SGLang()
RELEASES = ("0.4.6.post5", "0.5.2", "0.5.9", "0.5.15.post1", "0.5.19", "0.5.23")
CASES = 60
"""Of each release."""
LLAMA, DEEPSEEK, KIMI = (
    "LlamaForCausalLM", "DeepseekV3ForCausalLM", "KimiK25ForConditionalGeneration",
)  # fmt: skip
LATENT = {
    "model_type": "deepseek_v3", "architectures": [DEEPSEEK], "hidden_size": 7168,
    "intermediate_size": 18432, "moe_intermediate_size": 2048, "num_hidden_layers": 61,
    "num_attention_heads": 128, "num_key_value_heads": 128, "vocab_size": 129280,
    "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8, "n_group": 8,
    "topk_group": 4, "first_k_dense_replace": 3, "kv_lora_rank": 512, "q_lora_rank": 1536,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "torch_dtype": "bfloat16",
    "max_position_embeddings": 4096, "num_nextn_predict_layers": 1, "rope_theta": 10000,
    "rope_scaling": {
        "type": "yarn", "factor": 40, "original_max_position_embeddings": 4096, "beta_fast": 32,
        "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0,
    },
}  # fmt: skip
CONFIGS: Mapping[str, Mapping[str, Any]] = {
    DEEPSEEK: LATENT,
    KIMI: {"model_type": "kimi_k25", "architectures": [KIMI], "text_config": LATENT},
}

LATER = {
    "attention backend fa3 cannot run": "an assertion, when the backend is made",
    "holds 2 to": "torch.topk, when the graphs are captured",
    "verifies chains only": "an error of the backend itself, when it is made or captured",
    "needs a draft model": "the target is loaded as its own draft, and crashes",
    "takes the target's own draft layers": "the same",
    "does not know Kimi-K2.5": "its class is looked up when the model is loaded",
    "hands no hidden states of Kimi-K2.5": "a missing method, when the draft is set up",
    "can do that with attention-backend": "never: only the backend for all is looked at, and "
    "another one for decoding would verify wrong trees without a word",
}
"""Words of the rules that the argument code knows nothing of → when SGLang fails instead."""


@dataclass(frozen=True)
class Case:
    """One server that is asked for."""

    configuration: Configuration
    architecture: str
    capability: str
    args: Mapping[str, Scalar]
    env: Mapping[str, str] = field(default_factory=dict)
    drafts: bool = True

    def experiment(self, models: Mapping[str, str]) -> Experiment:
        """The experiment that asks for it."""
        engine = EngineSpec(
            "sglang", models[self.architecture],
            draft_model=str(sglang_server.MODELS / "tiny-eagle3") if self.drafts else None,
            args={"device": "cuda", **self.args}, env=dict(self.env),
        )  # fmt: skip
        return Experiment("e", engine, (Workload("w", (Prompt("1", text="x"),)),), axes=Axes())


def configuration(
    algorithm: str | None, steps: int, topk: int, tokens: int | None
) -> Configuration:
    """A configuration with what its algorithm has of these."""
    if algorithm is None:
        return Configuration(None)
    if algorithm == "NGRAM":
        return Configuration(algorithm, None, 1, tokens or 4)
    return Configuration(algorithm, steps, topk, tokens)


def generated(release: str) -> list[Case]:
    """Servers of every kind, the same for a release each time, sorted by their GPUs."""
    draw = random.Random(release)

    def some(share: float, *values: Any) -> Any:
        return draw.choice(values) if draw.random() < share else None

    def case() -> Case:
        algorithm = draw.choice(["EAGLE3", "EAGLE3", "EAGLE", "NEXTN", "STANDALONE", "NGRAM", None])
        shape = (draw.randint(1, 4), draw.choice([1, 1, 2, 4]), some(0.4, 3, 5, 9))
        backends = (
            "triton", "triton", "fa3", "flashinfer", "flashmla", "trtllm_mla", "trtllm_mha",
            "cutlass_mla",
        )  # fmt: skip
        args = {
            "attention-backend": some(0.8, *backends),
            "decode-attention-backend": some(0.1, *backends),
            "page-size": some(0.4, 1, 16, 64),
            "enable-dp-attention": some(0.1, True),
            "speculative-use-rejection-sampling": some(0.1, True),
            "pp-size": some(0.05, 2),
            "cuda-graph-max-bs": some(0.1, 32),
            "max-running-requests": some(0.1, 64),
        }
        args |= {"dp-size": 2, "tp-size": 2} if args["enable-dp-attention"] else {}
        return Case(
            configuration(algorithm, *shape),
            draw.choice([LLAMA, LLAMA, DEEPSEEK, KIMI]),
            draw.choice(["9.0", "10.0", "12.0"]),
            {name: value for name, value in args.items() if value is not None},
            {"SGLANG_ENABLE_SPEC_V2": "1"} if draw.random() < 0.1 else {},
            drafts=draw.random() < 0.9,
        )

    return sorted((case() for _ in range(CASES)), key=lambda case: case.capability)


def ask(release: str, cases: list[Mapping[str, Any]]) -> dict[str, Any]:
    """What a release says of command lines."""
    done = subprocess.run(
        [str(sglang_server.PYTHON), "-W", "ignore", str(Path(sglang_arguments.__file__))],
        input=json.dumps(cases), capture_output=True, text=True, timeout=300, check=False,
        env={
            **os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(sglang_server.release(release)),
        },
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert answer["version"] == release
    return answer


def arguments(judged: Judged, subject: Experiment) -> list[str]:
    """The arguments that a server would be started with, whatever the rules say of them."""
    argv = list(ENGINE.server(judged.configuration, subject).argv)
    return argv[argv.index("--host") :]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A directory for each architecture, with its config."""
    found = {LLAMA: str(sglang_server.MODELS / "tiny-target")}
    for architecture, config in CONFIGS.items():
        directory = tmp_path_factory.mktemp(architecture)
        (directory / "config.json").write_text(json.dumps(config))
        found[architecture] = str(directory)
    return found


@pytest.fixture(scope="module")
def answers(models: dict[str, str]) -> dict[str, dict[str, Any]]:
    """What each release says, two of them asked at a time."""

    def of(release: str) -> dict[str, Any]:
        cases: list[Mapping[str, Any]] = []
        for case in generated(release):
            subject = case.experiment(models)
            argv = arguments(ENGINE.judge(case.configuration, subject, None), subject)
            cases.append({"capability": case.capability, "env": dict(case.env), "argv": argv})
        return ask(release, cases)

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(RELEASES, pool.map(of, RELEASES), strict=True))


@pytest.mark.parametrize("release", RELEASES)
def test_rules_and_argument_code_agree(
    release: str, models: dict[str, str], answers: dict[str, dict[str, Any]]
) -> None:
    """On what is refused, and on what is in effect of the rest."""
    answer = answers[release]
    disagreements = []
    for case, said in zip(generated(release), answer["answers"], strict=True):
        known = EngineFacts(
            f"sglang {release}", {"flags": answer["flags"]}, (case.capability,),
            {models[case.architecture]: case.architecture},
        )  # fmt: skip
        found = ENGINE.judge(case.configuration, case.experiment(models), known)
        if told := disagreement(case, found, said):
            disagreements.append(f"{case}: {told}")
    assert disagreements == []


def test_the_releases_refuse_some_and_run_some(answers: dict[str, dict[str, Any]]) -> None:
    """Neither would show anything if all cases were of one kind."""
    for answer in answers.values():
        refused = sum("refused" in said for said in answer["answers"])
        assert 0.2 * CASES < refused < 0.8 * CASES


def disagreement(case: Case, found: Judged, said: Mapping[str, Any]) -> str | None:
    """Where the rules and a release differ; None: they agree."""
    wanted = in_effect(found.configuration, case)
    differing = {name: said.get(name) for name in wanted if said.get(name) != wanted[name]}
    if found.reason is None:
        return f"rules {wanted}, SGLang {said.get('refused', differing)}" if differing else None
    if differing or any(words in found.reason for words in LATER):
        return None  # it refuses too, or would run something else than was asked
    return f"rules {found.reason!r}, SGLang nothing"


def in_effect(configuration: Configuration, case: Case) -> dict[str, Any]:
    """What SGLang must say of a server that can run: all that is asked for."""
    algorithm = "EAGLE" if configuration.algorithm == "NEXTN" else configuration.algorithm
    values = {
        "speculative_num_steps": configuration.num_steps,
        "speculative_eagle_topk": configuration.topk,
        "speculative_num_draft_tokens": configuration.num_draft_tokens,
        "max_running_requests": case.args.get("max-running-requests", 48),
        "page_size": case.args.get("page-size"),
        "attention_backend": case.args.get("attention-backend"),
    }
    known = {name: value for name, value in values.items() if value is not None}
    return {"speculative_algorithm": algorithm, **known}
