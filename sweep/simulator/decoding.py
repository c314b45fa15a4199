"""The cycles of one answer: what each yields and what it costs, drawn by seed."""

from __future__ import annotations

import random
import zlib
from typing import Iterator, Sequence

WORDS = (
    "node", "key", "tree", "page", "leaf", "split", "when", "full", "and", "the", "root", "holds",
    "a", "sorted", "run", "of", "keys", "so", "that", "search", "is", "short",
)  # fmt: skip


def generator(*parts: object) -> random.Random:
    """Return a random generator that depends on the given values alone."""
    return random.Random("|".join(map(str, parts)))


class AcceptedDrafts:
    """How many draft tokens each cycle of an answer accepts.

    `conditional[k-1]` is the probability that the kth is accepted when those before it are. Of
    the n times that a position is reached, floor(n·p + u) are accepted, with u drawn once from
    [0, 1) by the seed: right on average, and within one of n·p in every answer. Independent draws
    would need thousands of cycles to come so near, and short simulated answers would be mostly
    noise. The same seed gives the same counts.
    """

    def __init__(self, conditional: Sequence[float], seed: object) -> None:
        start = generator("accepted", seed)
        self._conditional = conditional
        self._due = [start.random() for _ in conditional]

    def draw(self) -> int:
        """Return the accepted draft tokens of the next cycle, the bonus token not counted."""
        for position, probability in enumerate(self._conditional):
            self._due[position] += probability
            if self._due[position] < 1.0:
                return position
            self._due[position] -= 1.0
        return len(self._conditional)


def noise_factor(percent: float, *seed: object) -> float:
    """Return the factor on the cycle times of one request: 1 on average."""
    return max(0.5, generator("noise", *seed).gauss(1.0, percent / 100.0))


def words(prompt: str) -> Iterator[str]:
    """Yield the tokens of the answer to a prompt, whatever the configuration."""
    state = zlib.crc32(prompt.encode("utf-8", "surrogatepass"))
    while True:
        state = (state * 1103515245 + 12345) & 0x7FFFFFFF
        yield " " + WORDS[(state >> 8) % len(WORDS)]


def count_tokens(text: str) -> int:
    """Return the tokens of a prompt: words, at least one."""
    return max(1, len(text.split()))
