"""A session is summarised once for each outcome (SPEC 4.5)."""

from dataclasses import replace

import pytest

from engine.clock import FakeClock
from engine.memory.captures import Captures
from engine.memory.store import MemoryStore
from engine.memory.summaries import MAX_WORDS, SessionRecord, SessionSummariser
from engine.model import CheckResult, Layer
from engine.storage.database import Database
from engine.storage.ledger import Ledger
from tests.memory.stand_in_work import NOW, StandInWork, make_view, record_end
from tests.support.questions import NobodyAsks

# The summary of one session


@pytest.fixture
def work() -> StandInWork:
    return StandInWork()


@pytest.fixture
def summariser(database: Database, clock: FakeClock, work: StandInWork) -> SessionSummariser:
    store = MemoryStore(database)
    return SessionSummariser(
        work,
        Captures(database, work, store.remember),
        store,
        store.remember,
        model=NobodyAsks(),
        clock=clock,
        report=lambda where, words: None,
    )


def test_a_summary_by_rules_has_all_parts_and_at_most_120_words():
    words = " ".join(["word"] * 500)
    files = tuple(f"a/{number}.py" for number in range(200))
    summary = SessionRecord(
        make_view(prompt=words, summary=words), (f"keep {words}", words), files
    ).summarise_by_rules()
    assert len(summary.split()) <= MAX_WORDS == 120
    for part in ("Task:", "Outcome: finished", "Decided:", "Files: a/0.py", "more."):
        assert part in summary


def test_a_summary_is_remembered_once_for_each_outcome(
    summariser: SessionSummariser, work: StandInWork, database: Database
):
    session = work.add(make_view("session_2", check=CheckResult("pytest", 3, 1)))
    work.files["session_2"] = ("parser.py",)
    record_end(database, session)
    (entry,) = Ledger(database).read_newest(1)
    summariser.handle(entry)
    summariser.handle(entry)
    store = MemoryStore(database)
    (failed,) = store.read_entries(Layer.CONTEXT)
    assert (failed.session, failed.kind, failed.tags) == ("session_2", "summary", ("summary", "problem found"))
    assert "parser.py" in failed.text
    assert "Outcome: problem found. 3 tests passed, 1 failed." in failed.text
    work.add(replace(session, discarded_at=NOW))
    summariser.handle(
        replace(entry, kind="ChangeSetDiscarded", subject="change_1", payload={"session_id": "session_2"})
    )
    latest, earlier = store.read_entries(Layer.CONTEXT)
    assert latest.tags[1] == "discarded"
    assert earlier.superseded_by == latest.id
