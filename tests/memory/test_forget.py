"""Forgotten words are in no file of the home afterwards, even if the power fails in between (SPEC 4.10)."""

import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from clawpy_console.state import TOPICS, ReadScope, read_topics
from engine.clock import FakeClock
from engine.engine import Engine
from engine.events.learning import MemoryForgotten
from engine.execution.model_calls import CallerWithoutSession
from engine.home import Home
from engine.memory.captures import CaptureRow
from engine.memory.para import NewFact
from engine.model import (
    GraphNode,
    Layer,
    NewMemory,
    OfferedFinding,
    PromptLine,
    PromptPart,
    PromptSource,
    Relation,
    Score,
    SourceKind,
    Trust,
)
from engine.storage.database import Database
from engine.storage.state import read_unfinished_intents
from tests.hierarchy.guidance_world import edit_profile
from tests.support import MONDAY_MORNING
from tests.support.checks import refused
from tests.support.engines import open_idle_engine
from tests.support.repository import Repository

pytestmark = pytest.mark.slow

PRIVATE = "Henrietta Vandersloot lives at 12 Ash Lane"
KEPT = "The service listens on port 8000"


def open_home(root: Path) -> Engine:
    return open_idle_engine(Home.locate(root), clock=FakeClock(MONDAY_MORNING), unreachable=True, throw_away=True)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = open_home(tmp_path)
    write_everywhere(engine)
    yield engine
    engine.close()


def write_everywhere(engine: Engine):
    """Write the private words, and others, into every store and file."""
    home, para, graph = engine.home, engine.knowledge.para, engine.knowledge.graph
    engine.memory.remember([
        NewMemory(f"Ann said: {PRIVATE}.", speaker="Ann", ref="one"),
        NewMemory(f"Summary. {PRIVATE}. {KEPT}.", layer=Layer.CONTEXT, kind="summary"),
        NewMemory(KEPT),
    ])  # fmt: skip
    [private_fact] = para.add([NewFact(PRIVATE)])
    para.add([NewFact("She moved away", supersedes=private_fact.id), NewFact(KEPT)])
    graph.put(GraphNode("session_1", f"Write to {PRIVATE.upper()}", MONDAY_MORNING, success=True))
    graph.put(GraphNode("session_2", KEPT, MONDAY_MORNING))
    graph.add_edge("session_2", Relation.DERIVED_FROM, "session_1")
    engine.tasks.add(f"Call {PRIVATE}")
    engine.database.write(lambda tx: engine.knowledge.drafts.add(tx, "2026-01-05", [NewFact(f"Sure: {PRIVATE}")]))
    capture = CaptureRow(
        id="cap_1", kind="fact", text=PRIVATE, tags=[], digest="", session_id="", line=1, agent="", workspace="",
        at=MONDAY_MORNING, last_session="", trust=Trust.QUOTED,
    )  # fmt: skip
    engine.database.write(lambda tx: tx.insert(capture))
    for folder in (home.transcripts, home.cache):
        folder.mkdir(exist_ok=True)
    lines = [{"at": "2026-01-05T09:30:00+00:00", "kind": "say", "text": text} for text in (KEPT, PRIVATE, KEPT)]
    (home.transcripts / "session_1.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    memory = home.agents / "backend_builder" / "memory.md"
    memory.write_text(memory.read_text() + f"- {PRIVATE}\n- {KEPT}\n")
    (home.logs / "clawpy.log").write_text(f"2026 INFO {PRIVATE}\n2026 INFO {KEPT}\n")
    home.last_screen.write_text(json.dumps({"cards": [PRIVATE, KEPT]}))


def find_files(root: Path, words: str = "vandersloot") -> list[Path]:
    """The files below `root` that contain the words."""
    return [path for path in root.rglob("*") if path.is_file() and words.encode() in path.read_bytes().lower()]


def crash(*_: object, **__: object):
    raise KeyboardInterrupt


def crash_after_write(database: Database):
    database.write(lambda tx: None)
    raise KeyboardInterrupt


COUNT_TASKS = """
import sqlite3, sys
database = sqlite3.connect(sys.argv[1])
print(database.execute("SELECT count(*) FROM tasks").fetchone()[0])
database.close()
"""


def count_tasks_in_another_program(database: Path) -> int:
    """The number of tasks that a program outside of the engine reads, such as a backup."""
    command = [sys.executable, "-c", COUNT_TASKS, str(database)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def test_the_words_are_in_no_file_afterwards(engine: Engine, tmp_path: Path):
    forgetting = engine.knowledge.forgetting
    assert len(find_files(tmp_path)) >= 6
    preview = forgetting.preview(PRIVATE)
    assert {store for store, _ in preview.counts} == {
        "memories",
        "captures",
        "drafts",
        "facts",
        "tasks",
        "files",
        "records",
    }
    assert dict(forgetting.forget(preview.wanted).counts)["memories"] == 2
    assert find_files(tmp_path) == []
    assert len(find_files(tmp_path, "port 8000")) >= 4
    assert forgetting.preview(PRIVATE).total == 0


def test_a_console_reads_again_what_showed_it(engine: Engine, repository: Repository):
    engine.cards.propose(f"Write to {PRIVATE}", workspace=str(repository.path))
    showing = {topic for topic in TOPICS if "Vandersloot" in repr(read_topics(engine, [topic], ReadScope()))}
    assert {"cards", "tasks"} <= showing <= set(MemoryForgotten.topics)


def test_a_card_is_forgotten_by_its_id_with_its_prompt(engine: Engine, repository: Repository):
    card = engine.cards.propose(f"Write to {PRIVATE}", workspace=str(repository.path))
    engine.knowledge.forgetting.forget(card.id)
    engine.knowledge.forgetting.forget("Write to")
    refused("nothing_found", lambda: engine.knowledge.forgetting.preview(card.id))
    assert "Vandersloot" not in engine.cards.get(card.id).assignment.prompt


def test_stubs_keep_graphs_and_chains_whole(engine: Engine):
    engine.knowledge.forgetting.forget(PRIVATE)
    stub = engine.knowledge.graph.get_neighbourhood("session_1")
    assert stub.node.title == ""
    assert stub.node.invalidated_at is not None
    assert [neighbour.task_id for neighbour in stub.neighbours] == ["session_2"]
    [forgotten] = [fact for fact in engine.knowledge.para.read_facts() if fact.forgotten]
    assert [fact.fact for fact in engine.knowledge.para.read_corrections(forgotten.id)] == ["", "She moved away"]


def test_what_was_forgotten_does_not_come_back_when_it_is_remembered_again(engine: Engine):
    engine.knowledge.forgetting.forget(PRIVATE)
    [id] = engine.memory.remember([NewMemory(f"Ann said: {PRIVATE}.", speaker="Ann", ref="one")]).ids
    memory = engine.memory.store.get(id)
    assert (memory.text, memory.forgotten) == ("", True)


def test_patterns_findings_and_prompts_that_came_of_it_are_forgotten_too(engine: Engine):
    text = f"{PRIVATE} and wants every letter answered within the very same day that it came in"
    edit_profile(engine.profiles, "backend_lead", "patterns", value=text)
    edit_profile(engine.profiles, "backend_lead", "principles", value=[text, KEPT])
    quote = f"On koji-core the operator wants “{text[:50]}…” rather than “{KEPT}”"
    sure = Score(0.9, ())
    engine.bubbles.offer(
        OfferedFinding("corrected:pred_1", quote, "letters", "backend_builder", "session_1", sure, sure)
    )
    engine.calls.begin(
        CallerWithoutSession("session_1", "backend_builder", ""), provider="openai", model="x", run_kind="task",
        messages=[PromptPart("recalled", (PromptLine(f"- {text[:60]}…", PromptSource(SourceKind.MEMORY)),), "user")],
    )  # fmt: skip
    assert PRIVATE in engine.cascade.guidance("backend_builder").block
    preview = engine.knowledge.forgetting.preview(text)
    assert dict(preview.counts)["profiles"] == 2
    engine.knowledge.forgetting.forget(preview.wanted)
    assert "vandersloot" not in engine.cascade.guidance("backend_builder").block.lower(), "at once, not after 300 s"
    assert engine.profiles.read("backend_lead").principles == (KEPT,)
    assert not any("vandersloot" in bubble.learning.text.lower() for bubble in engine.bubbles.list_bubbles())
    [call] = engine.calls.list_for_session("session_1")
    assert "Vandersloot" not in "".join(part.text for part in engine.calls.read_prompt(call.id))
    with closing(sqlite3.connect(engine.home.database)) as database:
        for table in ("profile_entries", "pattern_uses", "bubbles", "memory_events", "engine_state"):
            rows = database.execute(f"SELECT * FROM {table}").fetchall()
            assert "henrietta_vandersloot" not in str(rows), "the name of the pattern"


@pytest.mark.long
@pytest.mark.parametrize(
    "step", ["memories", "captures", "facts", "tasks", "profiles", "files", "records", "scrub", "after scrub"]
)
def test_a_crash_at_any_step_is_finished_at_the_next_start(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
):
    stores = {store.name: type(store) for store in engine.knowledge.forgetting._stores}
    with monkeypatch.context() as patch:
        if step in stores:
            patch.setattr(stores[step], "erase", crash)
        else:
            patch.setattr(Database, "scrub", crash if step == "scrub" else crash_after_write)
        with pytest.raises(KeyboardInterrupt):
            engine.knowledge.forgetting.forget(PRIVATE)
    engine.close()
    with closing(open_home(tmp_path)) as reopened:
        assert find_files(tmp_path) == []
        assert read_unfinished_intents(reopened.database, "forget") == []
        assert len(reopened.knowledge.graph.get_neighbourhood("session_1").edges) == 1


def test_a_transcript_that_is_being_written_is_not_touched(engine: Engine, monkeypatch: pytest.MonkeyPatch):
    forgetting = engine.knowledge.forgetting
    monkeypatch.setattr(forgetting, "_list_running", lambda: ["session_1"])
    refused("session_running", lambda: forgetting.forget(PRIVATE))
    assert forgetting.preview(PRIVATE).total > 0


def test_what_is_written_after_a_search_is_in_the_file_even_if_another_program_opens_it(engine: Engine):
    engine.knowledge.forgetting.preview(PRIVATE)
    before = count_tasks_in_another_program(engine.home.database)  # without the engine's locks, it deletes the log
    engine.tasks.add("Water the plants")
    assert count_tasks_in_another_program(engine.home.database) == before + 1
