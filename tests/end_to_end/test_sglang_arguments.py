"""SGLang's rules against the argument code of the installed version: generated configurations."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from fakes import sglang_arguments, sglang_server

from sweep.engines.sglang import SGLang
from sweep.model.experiment import EngineSpec, Experiment, Prompt, Scalar, Workload
from sweep.model.plan import Configuration
from sweep.ports import EngineFacts, Judged

pytestmark = [
    pytest.mark.sglang,
    pytest.mark.skipif(sglang_server.missing() is not None, reason=str(sglang_server.missing())),
]
ENGINE = SGLang()
KNOWN = EngineFacts("sglang 0.5.23")
MODELS = sglang_server.MODELS
BACKENDS = (None, "flashinfer", "triton", "fa3", "flashmla")
"""Those whose GPUs are not looked at before the server starts: there is none here."""


def experiment(**args: Scalar | None) -> Experiment:
    """An experiment on GPUs with these arguments; None: not given."""
    given = {name.replace("_", "-"): value for name, value in args.items() if value is not None}
    engine = EngineSpec(
        "sglang",
        str(MODELS / "tiny-target"),
        draft_model=str(MODELS / "tiny-eagle3"),
        args={"device": "cuda", **given},
    )
    return Experiment("e", engine, (Workload("w", (Prompt("1", text="x"),)),))


def cases() -> Iterator[tuple[Configuration, Experiment]]:
    """Chains and trees over backends and page sizes, and what excludes one another."""
    sizes = [
        (steps, topk, tokens) for steps, topk in product((1, 3), (1, 2)) for tokens in (None, 3)
    ]
    for (steps, topk, tokens), backend, page in product(sizes, BACKENDS, (None, 1, 16)):
        subject = experiment(attention_backend=backend, page_size=page)
        yield Configuration("EAGLE3", steps, topk, tokens), subject
    # Without a backend, pages are for whichever is installed: that is not judged.
    for backend, page in ((None, None), *product(BACKENDS[1:3], (None, 16))):
        subject = experiment(attention_backend=backend, page_size=page)
        yield Configuration("NGRAM", None, 1, 6), subject
    for algorithm in ("EAGLE", "NEXTN", "STANDALONE"):
        yield Configuration(algorithm, 2, 1, 3), experiment()
        parallel = experiment(enable_dp_attention=True, dp_size=2, tp_size=2)
        yield Configuration(algorithm, 2, 1, 3), parallel
        sampling = experiment(speculative_use_rejection_sampling=True)
        yield Configuration(algorithm, 2, 1, 3), sampling
        yield Configuration(algorithm, 2, 2, 4), sampling
    yield Configuration(None), experiment(page_size=16)


def ask(argvs: list[list[str]]) -> list[dict[str, Any] | None]:
    """What SGLang says of command lines."""
    done = subprocess.run(
        [str(sglang_server.PYTHON), str(Path(sglang_arguments.__file__))],
        input=json.dumps(argvs), capture_output=True, text=True, timeout=300, check=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )  # fmt: skip
    answers: list[dict[str, Any] | None] = json.loads(done.stdout.splitlines()[-1])
    return answers


def arguments(judged: Judged, subject: Experiment) -> list[str]:
    """The arguments that a server would be started with, whatever the rules say of them."""
    argv = list(ENGINE.server(judged.configuration, subject).argv)
    return argv[argv.index("--host") :]


def test_rules_and_argument_code_agree() -> None:
    """On what is refused, and on what is in effect of the rest."""
    given = list(cases())
    judged = [ENGINE.judge(configuration, subject, KNOWN) for configuration, subject in given]
    argvs = [arguments(found, subject) for found, (_, subject) in zip(judged, given, strict=True)]
    disagreements = []
    for found, argv, answer in zip(judged, argvs, ask(argvs), strict=True):
        wanted = None if found.reason else in_effect(found.configuration)
        said = answer and {name: answer[name] for name in wanted or answer}
        if said != wanted:
            disagreements.append((" ".join(argv), found.reason, answer))
    assert len(given) == 24 * 5 + 5 + 12 + 1
    assert disagreements == []


def in_effect(configuration: Configuration) -> dict[str, Any]:
    """What SGLang must say of a configuration that can run."""
    algorithm = "EAGLE" if configuration.algorithm == "NEXTN" else configuration.algorithm
    values = {
        "speculative_algorithm": algorithm,
        "speculative_num_steps": configuration.num_steps,
        "speculative_eagle_topk": configuration.topk,
        "speculative_num_draft_tokens": configuration.num_draft_tokens,
    }
    known = {name: value for name, value in values.items() if value is not None}
    return {"speculative_algorithm": algorithm, **known, "max_running_requests": 48}
