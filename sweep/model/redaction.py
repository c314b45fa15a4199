"""Secrets out of what people see: environments, command lines, texts. Pure functions.

A value is secret when the name that it stands under looks so: SECRET, PASSWORD, PASSWD or
CREDENTIAL anywhere in it, or a part of it that ends in TOKEN or KEY (`HF_TOKEN`, `--api-key`, but
neither `--num-draft-tokens` nor `TOKENIZERS_PARALLELISM`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

REDACTED = "[redacted]"
_SECRET_NAME = re.compile(
    r"SECRET|PASSWORD|PASSWD|CREDENTIAL|(?:TOKEN|KEY)(?=[^A-Z0-9]|$)", re.IGNORECASE
)
_URL_PASSWORD = re.compile(r"(?<=://)([^/\s:@]*):[^/\s@]+(?=@)")
_ASSIGNMENT = re.compile(r"""\b([A-Za-z_]\w*)=("[^"]*"|'[^']*'|[^\s;&|]+)""")
_SHORTEST_SECRET = 4
"""Shorter values are not searched in texts: they would blank out ordinary words."""


def is_secret_name(name: str) -> bool:
    """Whether a value under this name (variable, argument, key) must not be shown."""
    return _SECRET_NAME.search(name) is not None


def redact_env(env: Mapping[str, str | None]) -> dict[str, str | None]:
    """Return the environment with secret values replaced; None (unset) stays None."""
    return {
        name: REDACTED if value is not None and is_secret_name(name) else _redact_urls(value)
        for name, value in env.items()
    }


def redact_argv(argv: Sequence[str]) -> tuple[str, ...]:
    """Return the command line with the values of secret options replaced.

    Both forms are known: `--api-key VALUE` and `--api-key=VALUE`; so is `NAME=VALUE`.
    """
    shown: list[str] = []
    for index, word in enumerate(argv):
        name, equals, _ = word.partition("=")
        if equals and is_secret_name(name):
            shown.append(f"{name}={REDACTED}")
        elif index > 0 and _takes_secret(argv[index - 1]) and not word.startswith("--"):
            shown.append(REDACTED)
        else:
            shown.append(redact_shell(word))
    return tuple(shown)


def redact_values(value: Any) -> Any:
    """Return JSON-like `value` with everything under a secret name replaced, at any depth."""
    if isinstance(value, Mapping):
        return {
            key: REDACTED
            if item is not None and is_secret_name(str(key)) and not isinstance(item, Mapping)
            else redact_values(item)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        if all(isinstance(item, str) for item in value):
            return list(redact_argv(value))
        return [redact_values(item) for item in value]
    return _redact_urls(value) if isinstance(value, str) else value


def secrets_in(argv: Sequence[str], env: Mapping[str, str | None]) -> frozenset[str]:
    """Return the secret values of a command line and its environment, to look for in texts."""
    found = {value for name, value in env.items() if value and is_secret_name(name)}
    for index, word in enumerate(argv):
        name, equals, value = word.partition("=")
        if equals and is_secret_name(name):
            found.add(value)
        elif index > 0 and _takes_secret(argv[index - 1]) and not word.startswith("--"):
            found.add(word)
    return frozenset(value for value in found if len(value) >= _SHORTEST_SECRET)


def redact_text(text: str, secrets: Collection[str] = ()) -> str:
    """Return `text` (a log line, a message) without the given values and without URL passwords."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, REDACTED)
    return _redact_urls(text) or ""


def redact_shell(text: str) -> str:
    """Return shell text without the values that it gives to secret variables."""
    blanked = _ASSIGNMENT.sub(
        lambda found: f"{found[1]}={REDACTED}" if is_secret_name(found[1]) else found[0], text
    )
    return redact_text(blanked)


def _takes_secret(word: str) -> bool:
    return word.startswith("-") and "=" not in word and is_secret_name(word)


def _redact_urls(text: str | None) -> str | None:
    return None if text is None else _URL_PASSWORD.sub(rf"\1:{REDACTED}", text)
