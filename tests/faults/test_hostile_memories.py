"""10,000 hostile memories are remembered and recalled in bounded time and memory, and no prompt is broken (SPEC 4.4,
6.8).

pytest tests/faults/test_hostile_memories.py -m faults -s          (CLAWPY_HOSTILE=10000, one in fifty of a megabyte)

Closing tags, instructions, control characters, lines of a megabyte, look-alikes of our tags: through the real store,
full-text table, chunking, ranking and prompt; only the vectors are made up, which would take an hour.
"""

import os
import random
import re
import resource
import statistics
import time
from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree

import numpy
import pytest

from engine.config.settings import FixedSettings, MemorySettings, Settings
from engine.memory.embedding import Embedding
from engine.memory.memory import MemoryService
from engine.memory.recall_in_prompts import BLOCK_TAG, RecallPromptPart
from engine.memory.vectors import MAX_CHUNKS
from engine.model import Layer, NewMemory, PromptRequest, RecallQuery
from engine.text import sanitise
from tests.memory.hostile_pieces import HOSTILE_PIECES
from tests.memory.memory_services import MakeMemory
from tests.support.checks import wait_until

HOSTILE = int(os.environ.get("CLAWPY_HOSTILE", "10000"))
LONG_EVERY = 50
"""One memory in this number is a line of a megabyte."""

PROMPTS = 300
"""Number of prompts for which memories are recalled."""

WORDS = ("cart", "price", "round", "owner", "parser", "deploy", "branch", "commit", "secret", "token", "main", "push")

GROWTH_BAR = 500
"""MiB that remembering and recalling may add, the helper's libraries not counted."""

RECALL_BAR = 2.0
"""Seconds for nineteen of twenty: the deadline of recall. A layer that took longer would be left out."""

ACKNOWLEDGE_BAR = 2.0
"""Seconds until 50 memories are stored."""


class RandomEmbedder:
    """Gives each text a random unit vector, and counts the texts that are remembered."""

    name = "made-up"

    def __init__(self):
        self.chunks = 0

    def embed(self, texts: Sequence[str], *, starts: Sequence[int] = (), is_question: bool = False) -> list[Embedding]:
        self.chunks += 0 if is_question else len(texts)
        rows = numpy.random.default_rng(self.chunks).normal(size=(len(texts), 384)).astype("<f4")
        rows /= numpy.linalg.norm(rows, axis=1, keepdims=True)
        return [Embedding(row.tobytes()) for row in rows]


def make_hostile_text(number: int, chance: random.Random) -> str:
    """A short text of hostile pieces, or a line of a megabyte if `LONG_EVERY` divides the number."""
    text = "".join(chance.choices((*HOSTILE_PIECES, *(f" {word} " for word in WORDS)), k=chance.randint(1, 40)))
    if number % LONG_EVERY:
        return text if text.strip() else "x"
    size = 1_000_000
    piece = chance.choice(("<", "x ", f"{text} ", "</recalled-memory>", "\x1b[2J", "漢字", str(chance.random()) + " "))
    text = (f"{chance.choice(WORDS)} {piece}" + piece * (size // len(piece.encode(errors="replace"))))[:size]
    return text.translate(dict.fromkeys([0, 0xD800], "\ufffd")).encode()[:size].decode(errors="ignore")


def read_memory_peak() -> float:
    """The most MiB that this process has had so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def remember_all(memory: MemoryService, chance: random.Random) -> list[float]:
    """Remember `HOSTILE` memories, 50 at a time. Returns the seconds until each 50 were acknowledged."""
    acknowledged = []
    for start in range(0, HOSTILE, 50):
        sample = [
            NewMemory(
                make_hostile_text(n, chance),
                ref=f"h{n}",
                speaker=chance.choice(HOSTILE_PIECES),
                source=chance.choice(HOSTILE_PIECES),
            )
            for n in range(start, start + 50)
        ]
        began = time.perf_counter()
        assert memory.remember(sample).new == len(sample)
        acknowledged.append(time.perf_counter() - began)
    return acknowledged


def recall_for_prompts(memory: MemoryService, chance: random.Random) -> tuple[list[float], int]:
    """Recall for `PROMPTS` prompts, and check what gets into them. Returns the seconds of each recall, and the number
    of lines in all prompts."""
    part = RecallPromptPart(memory, FixedSettings(Settings(memory=MemorySettings(recall_tokens=2_000))))
    recalled, lines = [], 0
    for _ in range(PROMPTS):
        task = " ".join([*chance.choices(WORDS, k=5), *chance.choices(HOSTILE_PIECES, k=3)])
        began = time.perf_counter()
        recall = memory.recall(RecallQuery(task, k=40), deadline=60.0)
        recalled.append(time.perf_counter() - began)
        assert not recall.left_out, recall.left_out
        contribution = part.make_part(PromptRequest("backend_builder", "koji-core", "", task, session_id="s"))
        check_passages(
            [line.text for line in contribution.part.lines], read_prompt_texts(memory, contribution.provenance)
        )
        lines += len(contribution.part.lines)
    return recalled, lines


def check_passages(lines: list[str], texts: list[str]):
    """The block is one element with one child for each memory, whose text is part of the memory's."""
    root = ElementTree.fromstring("\n".join(lines))
    assert root.tag == BLOCK_TAG
    assert [child.tag for child in root] == ["evidence"] * len(texts)
    for child, text in zip(root, texts, strict=True):
        whole = sanitise(text).replace("\ufffe", "\ufffd").replace("\uffff", "\ufffd")
        assert _squeeze(child.text or "") in _squeeze(whole)


def _squeeze(text: str) -> str:
    """`text` with single spaces. The width of a tab depends on where its line begins, and a passage may begin
    within a line."""
    return re.sub(" +", " ", text)


def read_prompt_texts(memory: MemoryService, provenance: dict[str, Any]) -> list[str]:
    """The whole texts of the memories in a prompt, read from the store."""
    sources = provenance["memory_sources"]
    rows = [memory.find_entry(Layer(source["layer"]), source["id"]) for source in sources]
    return [row.text for row in rows if row is not None]


@pytest.mark.faults
def test_ten_thousand_hostile_memories_do_no_harm(make_memory: MakeMemory):
    chance = random.Random(4)
    embedder = RandomEmbedder()
    memory = make_memory(embedder=embedder)
    peak_before = read_memory_peak()
    acknowledged = remember_all(memory, chance)
    began = time.perf_counter()
    wait_until(lambda: memory.settle(10), 1800)
    settled = time.perf_counter() - began
    recalled, lines = recall_for_prompts(memory, chance)
    grown = read_memory_peak() - peak_before
    print(f"\n{HOSTILE} hostile memories, {HOSTILE // LONG_EVERY} of a megabyte")
    print(f"  acknowledging 50, p50 / worst    {statistics.median(acknowledged):7.3f} s {max(acknowledged):7.3f} s")
    print(f"  chunks with vectors              {embedder.chunks:9,} after {settled:.0f} s more")
    print(f"  recall, p50 / worst              {statistics.median(recalled):7.3f} s {max(recalled):7.3f} s")
    print(f"  lines in {PROMPTS} prompts             {lines:7}")
    print(f"  memory grew at most by           {grown:7.0f} MiB (bar {GROWTH_BAR})")
    assert max(acknowledged) < ACKNOWLEDGE_BAR
    assert statistics.quantiles(recalled, n=20)[18] < RECALL_BAR
    assert embedder.chunks <= 8 * HOSTILE + HOSTILE // LONG_EVERY * MAX_CHUNKS
    assert grown < GROWTH_BAR
