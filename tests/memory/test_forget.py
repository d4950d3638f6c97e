"""What is forgotten is in no file of the home any more, whenever the power goes (SPEC 4.10)."""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.clock import FakeClock
from engine.engine import Engine, open_engine
from engine.execution.model_calls import Caller
from engine.home import Home
from engine.memory.forget import Forgetting
from engine.memory.para import NewFact
from engine.model import (
    GraphNode,
    Layer,
    Learning,
    NewMemory,
    PromptLine,
    PromptPart,
    PromptSource,
    Refusal,
    Relation,
    Score,
    SourceKind,
)
from engine.services import Overrides
from engine.storage import erasing
from engine.storage.database import Database
from engine.storage.erasing import SearchTerms
from engine.storage.state import unfinished_intents
from tests.conftest import MONDAY_MORNING
from tests.hierarchy.guidance_world import edit_profile

SECRET = "Henrietta Vandersloot lives at 12 Ash Lane"
KEPT = "The service listens on port 8000"


def opened(root: Path) -> Engine:
    return open_engine(
        Home.locate(root),
        clock=FakeClock(MONDAY_MORNING),
        start_schedule=False,
        overrides=Overrides(unreachable=True, throw_away=True),
    )


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = opened(tmp_path / "home")
    fill(engine)
    yield engine
    engine.close()


def fill(engine: Engine) -> None:
    """Put the words into every place that there is."""
    home = engine.home
    engine.memory.remember([
        NewMemory(f"Ann said: {SECRET}.", speaker="Ann", ref="one"),
        NewMemory(f"Summary. {SECRET}. {KEPT}.", layer=Layer.CONTEXT, kind="summary"),
        NewMemory(KEPT),
    ])  # fmt: skip
    first = engine.knowledge.para.add([NewFact(SECRET)])[0]
    engine.knowledge.para.add([NewFact("She moved away", supersedes=first.id), NewFact(KEPT)])
    graph = engine.knowledge.graph
    graph.put(GraphNode("session_1", f"Write to {SECRET.upper()}", MONDAY_MORNING, True))
    graph.put(GraphNode("session_2", KEPT, MONDAY_MORNING))
    graph.relate("session_2", Relation.DERIVED_FROM, "session_1")
    engine.tasks.add(f"Call {SECRET}")
    home.transcripts.mkdir(exist_ok=True)
    lines = [{"at": "2026-01-05T09:30:00+00:00", "kind": "say", "text": text} for text in (KEPT, SECRET, KEPT)]
    (home.transcripts / "session_1.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    memory = home.agents / "backend_builder" / "memory.md"
    memory.write_text(memory.read_text() + f"- {SECRET}\n- {KEPT}\n")
    (home.logs / "clawpy.log").write_text(f"2026 INFO {SECRET}\n2026 INFO {KEPT}\n")
    home.cache.mkdir(exist_ok=True)
    home.last_screen.write_text(json.dumps({"cards": [SECRET, KEPT]}))


def holders(root: Path, words: str = "vandersloot") -> list[str]:
    found = []
    for path in sorted(root.rglob("*")):
        if path.is_file() and words.encode() in path.read_bytes().lower():
            found.append(str(path.relative_to(root)))
    return found


def test_the_words_are_in_no_file_afterwards(engine: Engine, tmp_path: Path) -> None:
    assert len(holders(tmp_path / "home")) >= 6
    preview = engine.knowledge.forgetting.preview(SECRET)
    assert {store for store, _ in preview.counts} == {"memories", "facts", "tasks", "files", "records"}
    report = engine.knowledge.forgetting.forget(preview.wanted)
    assert dict(report.counts)["memories"] == 2
    assert holders(tmp_path / "home") == []
    assert len(holders(tmp_path / "home", "port 8000")) >= 4
    assert engine.knowledge.forgetting.preview(SECRET).total == 0


def test_stubs_keep_graphs_and_chains_whole(engine: Engine) -> None:
    engine.knowledge.forgetting.forget(SECRET)
    stub = engine.knowledge.graph.neighbourhood("session_1")
    assert stub.node.title == ""
    assert stub.node.invalidated_at is not None
    assert [neighbour.task_id for neighbour in stub.neighbours] == ["session_2"]
    facts = engine.knowledge.para.facts()
    gone = next(fact for fact in facts if fact.forgotten)
    assert [fact.fact for fact in engine.knowledge.para.corrections(gone.id)] == ["", "She moved away"]
    ids = engine.memory.remember([NewMemory(f"Ann said: {SECRET}.", speaker="Ann", ref="one")]).ids
    memory = engine.memory.store.get(ids[0])
    assert memory is not None
    assert (memory.text, memory.forgotten) == ("", True)  # and saying it again does not bring it back


def test_what_else_was_there_is_as_it_was(engine: Engine) -> None:
    file = engine.home.transcripts / "session_1.jsonl"
    before = file.read_bytes().split(b"\n")
    engine.knowledge.forgetting.forget(SECRET)
    after = file.read_bytes().split(b"\n")
    assert [len(line) for line in after] == [len(line) for line in before]
    assert (after[0], after[2]) == (before[0], before[2])
    assert [json.loads(line)["text"] for line in after if line] == [KEPT, "", KEPT]
    assert (engine.home.logs / "clawpy.log").read_text().count(KEPT) == 1
    assert [entry.text for entry in engine.memory.entries(Layer.VECTORS, words="port")] == [KEPT]


def test_what_came_of_it_goes_too_patterns_bubbles_and_prompts(engine: Engine, tmp_path: Path) -> None:
    told = f"{SECRET} and wants every letter answered within the very same day that it came in"
    edit_profile(engine.profiles, "backend_lead", "patterns", value=told)
    edit_profile(engine.profiles, "backend_lead", "principles", value=[told, KEPT])
    quoted = f"On koji-core the operator wants “{told[:50]}…” rather than “{KEPT}”"
    learning = Learning(
        "corrected:pred_1", quoted, "letters", "backend_builder", "session_1", Score(0.9, ()), Score(0.9, ())
    )
    engine.bubbles.offer(learning)
    engine.calls.begin(
        Caller("session_1", "backend_builder", ""), provider="openai", model="x", run_kind="task",
        messages=[PromptPart("recalled", (PromptLine(f"- {told[:60]}…", PromptSource(SourceKind.MEMORY)),), "user")],
    )  # fmt: skip
    assert SECRET in engine.cascade.guidance("backend_builder").block
    preview = engine.knowledge.forgetting.preview(told)
    assert dict(preview.counts)["profiles"] == 2
    engine.knowledge.forgetting.forget(preview.wanted)
    assert "vandersloot" not in engine.cascade.guidance("backend_builder").block.lower(), "at once, not after 300 s"
    assert engine.profiles.get("backend_lead").principles == (KEPT,)
    assert not any("vandersloot" in bubble.learning.text.lower() for bubble in engine.bubbles.list())
    call = engine.calls.for_session("session_1")[0]
    assert "Vandersloot" not in "".join(part.text for part in engine.calls.prompt(call.id))
    with closing(sqlite3.connect(engine.home.database)) as database:
        for table in ("profile_entries", "pattern_uses", "bubbles", "memory_events", "guidance_findings"):
            rows = database.execute(f"SELECT * FROM {table}").fetchall()
            assert "henrietta_vandersloot" not in str(rows), "the name of the pattern"


def test_too_little_is_refused(engine: Engine) -> None:
    for what in ("", "ab", " . "):
        with pytest.raises(Refusal) as refusal:
            engine.knowledge.forgetting.forget(what)
        assert refusal.value.code == "too_short"


@pytest.mark.long
@pytest.mark.parametrize("step", range(8))
def test_a_crash_at_any_step_is_finished_at_the_next_start(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    forget = engine.knowledge.forgetting
    stores = forget._stores
    with monkeypatch.context() as patch:
        if step < len(stores):
            patch.setattr(type(stores[step]), "erase", crash)
        elif step == len(stores):
            patch.setattr(type(engine.database), "scrub", crash)
        else:
            patch.setattr(Database, "scrub", finished)
        with pytest.raises(KeyboardInterrupt):
            engine.knowledge.forgetting.forget(SECRET)
    engine.close()
    again = opened(tmp_path / "home")
    try:
        assert holders(tmp_path / "home") == []
        assert unfinished_intents(again.database, "forget") == []
        assert len(again.knowledge.graph.neighbourhood("session_1").edges) == 1
    finally:
        again.close()


def finished(database: Database) -> bool:
    """The file is rebuilt, and then the power goes."""
    database.write(lambda tx: None)
    raise KeyboardInterrupt


def crash(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_a_transcript_that_is_being_written_is_not_touched(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine.knowledge.forgetting, "_running", lambda: ["session_1"])
    with pytest.raises(Refusal) as refusal:
        engine.knowledge.forgetting.forget(SECRET)
    assert refusal.value.code == "session_running"
    assert engine.knowledge.forgetting.preview(SECRET).total > 0


class TestWanted:
    def test_whole_words_in_any_case_and_space(self) -> None:
        wanted = SearchTerms(["Bob Lee"])
        assert wanted.match("so BOB\n  lee said")
        assert not wanted.match("Bob Leeson")
        assert wanted.remove_from("hi Bob  Lee!") == "hi !"

    def test_what_was_quoted_and_cut_is_found(self) -> None:
        text = "The operator of this shop lives in Utrecht and never answers before noon"
        wanted = SearchTerms([text])
        quoted = f"wants “{text[:50]}…” instead"
        assert wanted.match(quoted)
        assert wanted.remove_from(quoted) == "wants “” instead"
        assert not wanted.match(f"wants “{text[:40]}…” instead"), "seven words may be anybody's"
        assert not wanted.match("The operator of this shop lives in Utrecht, as one does"), "no quote"

    @given(st.text(), st.text(min_size=1))
    def test_what_was_removed_is_not_held(self, text: str, needle: str) -> None:
        try:
            wanted = SearchTerms([needle])
        except Refusal:
            return
        again = wanted.remove_from(f"{text} {needle} {text}")
        assert len(again) < len(text) * 2 + len(needle) + 2


class TestErasing:
    def test_json_and_compressed_values_are_looked_into(self, tmp_path: Path) -> None:
        path = tmp_path / "any.db"
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE notes (id INTEGER PRIMARY KEY, payload JSON, body BLOB, said TEXT)")
            packed = zlib.compress(json.dumps({"a": "by Zoë Müller"}).encode())
            connection.execute(
                "INSERT INTO notes VALUES (1, ?, ?, ?)", (json.dumps(["Zoë Müller", 1]), packed, "zoë müller!")
            )
            connection.execute("INSERT INTO notes VALUES (2, '[1]', ?, 'other')", (b"\x78\x9cvector",))
            assert len(list(erasing.find(connection, SearchTerms(["Zoë Müller"])))) == 3
            assert erasing.erase(connection, SearchTerms(["Zoë Müller"])) == 3
            payload, body, said = connection.execute("SELECT payload, body, said FROM notes WHERE id = 1").fetchone()
            assert (json.loads(payload), json.loads(zlib.decompress(body)), said) == (["", 1], {"a": "by "}, "!")
            assert erasing.erase(connection, SearchTerms(["Zoë Müller"])) == 0


def test_what_was_made_of_the_rest_meanwhile_is_erased_once_more(database: Database) -> None:
    """A session that ends between two stores is written down from what the later one still held."""
    order: list[str] = []

    class Kept:
        def __init__(self, name: str) -> None:
            self.name = name

        def find(self, wanted: SearchTerms, /) -> Iterator[tuple[str, str]]:
            return iter(())

        def erase(self, wanted: SearchTerms, /) -> int:
            order.append(self.name)
            return 0

    made, source = Kept("learnings"), Kept("files")
    Forgetting(database, [made, source], text_of=lambda id: None, second_pass=[made]).forget("Jan Vandersloot")
    assert order == ["learnings", "files", "learnings"]
