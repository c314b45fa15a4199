"""Tests of redaction: secrets go, ordinary names stay."""

from __future__ import annotations

import pytest

from sweep.model.redaction import (
    is_secret_name,
    redact_argv,
    redact_env,
    redact_text,
    redact_values,
    secrets_in,
)


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("HF_TOKEN", True),
        ("AWS_SECRET_ACCESS_KEY", True),
        ("--api-key", True),
        ("api_key", True),
        ("PGPASSWORD", True),
        ("OPENAI_APIKEY", True),
        ("TOKENIZERS_PARALLELISM", False),
        ("--num-draft-tokens", False),
        ("--tokenizer-path", False),
        ("NCCL_PROTO", False),
        ("keep-alive", False),
    ],
)
def test_secret_names(name: str, secret: bool) -> None:
    """Tokens and keys are secret, counts of tokens and tokenizers are not."""
    assert is_secret_name(name) is secret


def test_command_lines() -> None:
    """Both forms of an option lose their value and nothing else."""
    argv = ("serve", "--api-key", "s3cret", "--hf-token=abcd", "--num-draft-tokens", "4")
    assert redact_argv(argv) == (
        "serve", "--api-key", "[redacted]", "--hf-token=[redacted]", "--num-draft-tokens", "4"
    )  # fmt: skip
    assert redact_argv(("serve", "--api-key", "--port", "1")) == (
        "serve", "--api-key", "--port", "1"
    )  # fmt: skip


def test_environments() -> None:
    """Values of secret variables go; an unset variable stays unset."""
    env = {"HF_TOKEN": "abcd", "A": "1", "B_KEY": None, "P": "http://me:pw@proxy:1"}
    assert redact_env(env) == {
        "HF_TOKEN": "[redacted]", "A": "1", "B_KEY": None, "P": "http://me:[redacted]@proxy:1"
    }  # fmt: skip


def test_nested_values() -> None:
    """Secrets go at any depth, and types stay."""
    value = {"engine": {"args": {"api-key": "s3cret", "tp": 8}}, "argv": ["a", "--token", "x"]}
    assert redact_values(value) == {
        "engine": {"args": {"api-key": "[redacted]", "tp": 8}},
        "argv": ["a", "--token", "[redacted]"],
    }


def test_texts_lose_known_secrets() -> None:
    """A server that logs its own arguments does not leak them into the report."""
    secrets = secrets_in(("serve", "--api-key", "s3cret"), {"HF_TOKEN": "hf_abcd", "X_KEY": "no"})
    assert secrets == {"s3cret", "hf_abcd"}
    assert redact_text("api_key='s3cret', hf_abcd, no", secrets) == (
        "api_key='[redacted]', [redacted], no"
    )
