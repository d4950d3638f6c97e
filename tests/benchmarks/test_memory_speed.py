"""How fast memory is: remembering while a screen is drawn, recall compared with a bare index, a ledger of a million
rows.

    pytest tests/benchmarks/test_memory_speed.py -m benchmark -s

`CLAWPY_TURNS` (600), `CLAWPY_MEMORIES` (10000) and `CLAWPY_LEDGER` (1000000) set the sizes.
"""

from __future__ import annotations

import itertools
import os
import random
import statistics
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

import numpy

from engine.clock import FakeClock
from engine.config import FixedSettings
from engine.events import SettingChanged
from engine.memory.embedding import Embedding, LocalEmbedder, make_unit_vector
from engine.memory.helper import Helper
from engine.memory.helper_main import MiniLM
from engine.memory.memory import MemoryService
from engine.memory.vectors import cut_into_chunks
from engine.model import NewMemory, RecallQuery
from engine.storage.database import Database
from engine.storage.ledger import Ledger
from tests.benchmarks.measuring import StallMeter, p95, print_table, time_call, time_in_turns

TURNS = int(os.environ.get("CLAWPY_TURNS", "600"))
MEMORIES = int(os.environ.get("CLAWPY_MEMORIES", "10000"))
LEDGER = int(os.environ.get("CLAWPY_LEDGER", "1000000"))
QUESTIONS = 100
"""Number of questions, or queries of the ledger, that are timed."""

TURNS_BAR = 80.0
"""Minimum number of turns that are remembered a second, vectors included."""

LONG_MESSAGE, LONG_MESSAGES = 2_000, 20
"""The characters of a long message, and the number of such messages."""

LONG_BAR = 0.060
"""Maximum seconds for a long message, on an idle machine."""

LAG_BAR = 0.050
"""Maximum seconds by which a thread wakes up late at p95, as a screen would."""

RECALL_BAR, RERANKED_BAR = (1.5, 2.5) if MEMORIES <= 10_000 else (3.0, 4.0)
"""How many times as long as a bare index a search of vectors, and a whole recall, may take."""

LEDGER_BAR, EVENTS_BAR = 0.020, 2_000.0
"""Maximum seconds of a query of the ledger at p95, and minimum number of events that are written a second."""

TALK = (
    "the cart rounds prices to cents and Mel said that her sister went to Lisbon last summer with a red bicycle while "
    "our tests of the parser failed again because somebody changed a setting nobody knew about so we moved the meeting "
    "to Friday and bought bread cheese tomatoes for the picnic near the lake where it rained until evening"
)
WORDS = TALK.split(" ")

VOCABULARY = [*WORDS, *(f"{word[:4]}{other[-3:]}{number}" for number in range(3) for word in WORDS for other in WORDS)]
SHARES = list(itertools.accumulate(1 / (10 + rank) for rank in range(len(VOCABULARY))))
"""The cumulated frequencies of the words, the most common first (Zipf)."""


def make_conversation(
    number: int, *, words: Sequence[str] = VOCABULARY, shares: Sequence[float] | None = SHARES
) -> list[NewMemory]:
    """Turns of 8 to 32 words, 30 to a session."""
    chance = random.Random(1)
    return [
        NewMemory(
            " ".join(chance.choices(words, cum_weights=shares, k=chance.randint(8, 32))) + f" {turn}",
            ref=f"t{turn}",
            speaker=chance.choice(("Mel", "Caroline")),
            session=f"s{turn // 30}",
        )
        for turn in range(number)
    ]


def open_memory(
    database: Database, clock: FakeClock, folder: Path, embedder: LocalEmbedder | None = None
) -> MemoryService:
    return MemoryService(database, settings=FixedSettings(), clock=clock, folder=folder, embedder=embedder)


def test_remembering_beside_a_live_screen(database: Database, clock: FakeClock, tmp_path: Path) -> None:
    memory = open_memory(database, clock, tmp_path / "chroma")
    try:
        memory.remember([NewMemory("warm")])
        assert memory.settle(120, indexed=True)
        # Words that people say: made-up ones are three times as many tokens.
        turns = make_conversation(TURNS, words=WORDS, shares=None)
        with StallMeter() as idle:
            time.sleep(1)
        with StallMeter() as busy:
            began = time.perf_counter()
            acknowledged = [time_call(lambda at=at: memory.remember(turns[at : at + 50])) for at in range(0, TURNS, 50)]
            assert memory.settle(1200)
            seconds = time.perf_counter() - began
        assert memory.index.wait(600)
        indexed = time.perf_counter() - began
    finally:
        memory.close()
    print(f"\nremembering {TURNS} turns, vectors included   {TURNS / seconds:8.1f} turns/s   (bar {TURNS_BAR:.0f})")
    print(f"  the index included                      {TURNS / indexed:8.1f} turns/s")
    print(f"  acknowledging 50 turns, p95             {p95(acknowledged) * 1e3:8.1f} ms")
    print(
        f"  a thread's wake-up is late, p95         {p95(busy.delays) * 1e3:8.1f} ms (bar {LAG_BAR * 1e3:.0f})",
        end="",
    )
    print(f"   idle {p95(idle.delays) * 1e3:.1f} ms, worst {max(busy.delays) * 1e3:.1f} ms")
    assert p95(busy.delays) < LAG_BAR
    assert TURNS / seconds >= TURNS_BAR


def test_remembering_a_long_message(database: Database, clock: FakeClock, tmp_path: Path) -> None:
    """It is compared with embedding the passages one after the other in this process, without storing them.

    That is done afterwards, because numpy's threads keep a core busy for a while, which the helper needs.
    """
    memory = open_memory(database, clock, tmp_path / "chroma")
    chance = random.Random(2)
    texts = [f"{number} {' '.join(chance.choices(WORDS, k=500))}"[:LONG_MESSAGE] for number in range(LONG_MESSAGES)]

    def remember(text: str) -> None:
        memory.remember([NewMemory(text, speaker="user")])
        assert memory.settle(60)

    try:
        remember("warm")
        remembered = [time_call(lambda text=text: remember(text)) for text in texts]
    finally:
        memory.close()
    model = MiniLM()
    model.embed_question("warm")
    embedded = []
    for text in texts:
        parts = [text[start:stop] for start, stop in cut_into_chunks(model.offsets(text), len(text))]
        embedded.append(time_call(lambda parts=parts: [model.embed_question(part) for part in parts]))
    median, alone = statistics.median(remembered), statistics.median(embedded)
    bar = f"(bar {LONG_BAR * 1e3:.0f})"
    print(f"\na message of {LONG_MESSAGE:,} characters, vectors included {median * 1e3:8.1f} ms {bar}")
    print(f"  reading its passages alone                    {alone * 1e3:8.1f} ms")
    assert median <= LONG_BAR


class FakePassageEmbedder(LocalEmbedder):
    """Gives questions their real vectors, and texts to remember random ones, because those would take minutes."""

    def embed(self, texts: Sequence[str], *, keep: Sequence[int] = (), now: bool = False) -> list[Embedding]:
        if now:
            return super().embed(texts, keep=keep, now=True)
        chance = numpy.random.default_rng(len(texts[0]))
        tokens = numpy.random.default_rng(1).integers(-60, 60, (24, 32), dtype=numpy.int8).tobytes()
        return [Embedding(make_unit_vector(chance.normal(size=384).tolist()), tokens) for _ in texts]


def test_recall_beside_a_bare_index(database: Database, clock: FakeClock, tmp_path: Path) -> None:
    import chromadb

    helper = Helper()
    memory = open_memory(database, clock, tmp_path / "chroma", FakePassageEmbedder(helper))
    memory.start()
    try:
        turns = make_conversation(MEMORIES)
        for at in range(0, MEMORIES, 500):
            memory.remember(turns[at : at + 500])
        assert memory.settle(3600, indexed=True)
        page = memory.store.read_vector_page(memory.vectoriser.model, 0, MEMORIES)
        bare = chromadb.EphemeralClient().create_collection(
            "bare", embedding_function=None, configuration={"hnsw": {"space": "l2"}}
        )
        for at in range(0, len(page), 1000):
            batch = page[at : at + 1000]
            matrix = numpy.frombuffer(b"".join(vector for *_, vector in batch), dtype="<f4").reshape(len(batch), -1)
            bare.add(ids=[str(chunk_id) for chunk_id, *_ in batch], embeddings=matrix)
        model = MiniLM()
        chance = random.Random(5)

        def make_question() -> str:
            return "when did " + " ".join(chance.choices(VOCABULARY, cum_weights=SHARES, k=9)) + "?"

        def by_index() -> None:
            vector = numpy.frombuffer(model.embed_question(make_question()).vector, dtype="<f4")
            bare.query(query_embeddings=[vector], n_results=10, include=["distances"])

        def by_recall() -> None:
            assert not memory.recall(RecallQuery(make_question()), deadline=60.0).left_out

        def by_vectors() -> None:
            embedding = memory.vectors.embed(make_question())
            memory.vectors.search(embedding.array, 10)

        ways = {
            "embedding + bare Chroma query": by_index,
            "dense search of memory": by_vectors,
            "recall, all layers, re-ranked": by_recall,
        }
        for ask in ways.values():
            ask()
        measured = time_in_turns(ways, QUESTIONS)
    finally:
        memory.close()
        helper.close()
    print_table(f"recall at {MEMORIES:,} memories", measured)
    bare, dense, recall = map(statistics.median, measured.values())
    print(f"  at p50: dense {dense / bare:.2f} × (bar {RECALL_BAR}), recall {recall / bare:.2f} × (bar {RERANKED_BAR})")
    assert dense / bare <= RECALL_BAR
    assert recall / bare <= RERANKED_BAR


def test_the_ledger_at_a_million_rows(database: Database, clock: FakeClock) -> None:
    begin = clock.now() - timedelta(days=90)
    kinds = [f"Kind{number}" for number in range(30)]
    step = timedelta(days=90) / LEDGER
    insert = "INSERT INTO memory_events (at, kind, subject, workspace, payload) VALUES (?, ?, ?, ?, ?)"
    for start in range(0, LEDGER, 50_000):
        rows = [
            (
                (begin + number * step).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
                kinds[number % len(kinds)],
                f"s{number % 5000}",
                f"/w{number % 3}",
                f'{{"n": {number}}}',
            )
            for number in range(start, min(start + 50_000, LEDGER))
        ]
        database.write(lambda tx, rows=rows: tx.session.connection().exec_driver_sql(insert, rows))
    ledger = Ledger(database)
    chance = random.Random(3)
    queries: dict[str, Callable[[], object]] = {
        "latest 50": lambda: ledger.latest(50),
        "latest 50 of one kind": lambda: ledger.latest(50, kinds=(chance.choice(kinds),)),
    }
    measured = time_in_turns(queries, QUESTIONS)
    print_table(f"ledger with {LEDGER:,} rows (bar {LEDGER_BAR * 1e3:.0f})", measured)
    groups = 80

    def write_groups() -> None:
        for _ in range(groups):
            database.write(lambda tx: [tx.record(SettingChanged(subject="x", value="y")) for _ in range(50)])

    seconds = time_call(write_groups)
    print(f"  durable events in groups of 50 {groups * 50 / seconds:10,.0f}/s   (bar {EVENTS_BAR:,.0f})")
    assert all(p95(values) < LEDGER_BAR for values in measured.values())
    assert groups * 50 / seconds >= EVENTS_BAR
