"""The task graph (SPEC 4.6): what it keeps, refuses and recovers, who writes it, and what recall hears of it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.clock import FakeClock
from engine.memory import graph as graph_module
from engine.memory.graph import TaskGraph, recency
from engine.memory.knowledge import SIMILAR, GraphProducer
from engine.memory.para import NewFact, Para
from engine.memory.recall import FactSource, GraphSource, describe_task
from engine.model import (
    ACYCLIC,
    CheckResult,
    GraphEdge,
    GraphNode,
    RecallQuery,
    Refusal,
    Relation,
    SessionState,
)
from engine.storage.database import Database
from engine.storage.ledger import LedgerEntry
from tests.memory.fake_work import FakeWork, view

NOW = datetime(2026, 1, 5, 9, 30, tzinfo=UTC)


def opened(folder: Path, *names: str) -> TaskGraph:
    """The graph of a folder, with tasks of these names in it."""
    graph = TaskGraph(folder, FakeClock(NOW))
    graph.load()
    for name in names:
        graph.put(GraphNode(name, f"Task {name}", NOW))
    return graph


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[TaskGraph]:
    graph = opened(tmp_path, *"abcd")
    yield graph
    graph.close()


def everything(graph: TaskGraph) -> list[object]:
    return [graph.neighbourhood(one.task_id) for one in graph.newest(limit=10_000)]


def reopened(graph: TaskGraph, folder: Path) -> TaskGraph:
    graph.close()
    return opened(folder)


# -- the graph and its files


def test_what_was_put_is_there_after_a_restart(graph: TaskGraph, tmp_path: Path) -> None:
    graph.relate("b", Relation.DERIVED_FROM, "a")
    graph.put(GraphNode("b", "Task b", NOW, success=False))
    before = everything(graph)
    again = reopened(graph, tmp_path)
    assert everything(again) == before
    again.compact()
    third = reopened(again, tmp_path)
    assert everything(third) == before
    document = json.loads((tmp_path / "task_graph.json").read_text())
    assert {"task_id", "title", "timestamp", "success", "description"} <= document["tasks"][0]["task"].keys()
    assert document["tasks"][1]["edges"] == [["derived_from", "a", 1.0]]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 7), st.sampled_from(sorted(ACYCLIC)), st.integers(0, 7), st.booleans()), max_size=60
    )
)
def test_however_arrows_are_drawn_and_cut_there_is_never_a_circle(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, Relation, int, bool]]
) -> None:
    graph = opened(tmp_path_factory.mktemp("graph"), *"01234567")
    model: dict[Relation, set[tuple[str, str]]] = {relation: set() for relation in ACYCLIC}
    for source, relation, target, cut in steps:
        arrow = (str(source), str(target))
        if cut and arrow in model[relation]:
            graph.cut(GraphEdge(arrow[0], relation, arrow[1]))
            model[relation].discard(arrow)
            continue
        circle = has_circle(model[relation] | {arrow})
        try:
            graph.relate(arrow[0], relation, arrow[1])
        except Refusal:
            assert circle
        else:
            assert not circle
            model[relation].add(arrow)
    graph.close()


def has_circle(arrows: set[tuple[str, str]]) -> bool:
    """By taking away what nothing points to, until nothing can be."""
    left = {one for arrow in arrows for one in arrow}
    while left:
        free = {one for one in left if not any(target == one and source in left for source, target in arrows)}
        if not free:
            return True
        left -= free
    return False


@pytest.mark.parametrize(("days", "left"), [(0, 1.0), (14, math.exp(-1)), (28, math.exp(-2)), (-3, 1.0)])
def test_recency_falls_by_e_in_14_days(days: int, left: float) -> None:
    assert recency(NOW - timedelta(days=days), NOW) == pytest.approx(left)


def test_a_torn_last_line_is_cut_off(graph: TaskGraph, tmp_path: Path) -> None:
    journal = tmp_path / "task_graph.journal.jsonl"
    whole = journal.read_bytes()
    for cut in range(1, 40, 7):
        journal.write_bytes(whole + whole[:cut])
        graph = reopened(graph, tmp_path)
        assert (len(graph), graph.faults) == (4, ())
        assert journal.read_bytes() == whole


@pytest.mark.parametrize("file", ["task_graph.json", "task_graph.journal.jsonl"])
def test_a_file_that_cannot_be_read_in_part_is_kept_aside_and_named(
    graph: TaskGraph, tmp_path: Path, file: str
) -> None:
    graph.compact()
    graph.put(GraphNode("e", "Task e", NOW))
    graph.close()
    bad = ["{broken", '{"task": {"task_id": "z"}}', '{"task": 3, "edges": []}', "[]", "[" * 100_000]
    path = tmp_path / file
    path.write_text("\n".join([*bad, path.read_text()]))
    damaged = path.read_bytes()
    again = opened(tmp_path)
    assert len(again) == 5
    assert [fault.partition(":")[0] for fault in again.faults] == [file]
    assert "5 in all" in again.faults[0]
    assert (tmp_path / f"{file}.damaged-1").read_bytes() == damaged
    clean = reopened(again, tmp_path)
    assert (len(clean), clean.faults) == (5, ())
    clean.close()


def test_a_folder_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    (tmp_path / "task_graph.json").mkdir()
    graph = TaskGraph(tmp_path, FakeClock(NOW))
    with pytest.raises(Refusal) as refusal:
        graph.load()
    assert refusal.value.code == "unwritable_home"
    assert [refusal.value.message] == list(graph.faults)


@pytest.mark.parametrize("step", ["write_atomic", "_line", "truncate"])
def test_a_crash_at_any_step_of_compacting_loses_nothing(
    graph: TaskGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    graph.relate("a", Relation.BLOCKS, "b")
    with monkeypatch.context() as patch:
        if step == "truncate":
            patch.setattr(graph._files, "_file", CannotTruncate())
        else:
            patch.setattr(graph_module, step, crash)
        with pytest.raises(InterruptedError):
            graph.compact()
    graph.put(GraphNode("after", "Task after", NOW))
    before = everything(graph)
    again = reopened(graph, tmp_path)
    assert everything(again) == before
    again.close()


class CannotTruncate:
    def truncate(self, size: int) -> None:
        crash()


def crash(*_: object, **__: object) -> None:
    raise InterruptedError("the power went")


@pytest.mark.parametrize("whole", [False, True])
def test_a_session_that_ends_leaves_one_document(graph: TaskGraph, tmp_path: Path, whole: bool) -> None:
    graph.flush(whole=whole)
    assert (tmp_path / "task_graph.json").exists() is whole
    assert (tmp_path / "task_graph.journal.jsonl").read_bytes().count(b"\n") == (0 if whole else 4)


def test_a_long_journal_becomes_part_of_the_document_by_itself(
    graph: TaskGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graph_module, "COMPACT_LINES", 4)
    graph.flush()
    assert not (tmp_path / "task_graph.json").exists()
    graph.put(GraphNode("e", "Task e", NOW))
    graph.flush()
    assert len(json.loads((tmp_path / "task_graph.json").read_text())["tasks"]) == 5


# -- who puts tasks into it


@pytest.fixture
def work() -> FakeWork:
    return FakeWork()


@pytest.fixture
def producer(graph: TaskGraph, work: FakeWork) -> GraphProducer:
    return GraphProducer(graph, work, lambda session, k, cosine: {})  # type: ignore[arg-type]


def fact(kind: str, subject: str, **payload: Any) -> LedgerEntry:
    return LedgerEntry(1, NOW, kind, subject, "/home/me/shop", payload)


@pytest.mark.parametrize(
    ("fields", "outcome", "success"),
    [
        ({}, "succeeded", True),
        ({"state": SessionState.FAILED}, "failed", False),
        ({"check": CheckResult("pytest", 3, 1)}, "problem found", False),
        ({"state": SessionState.CANNOT_RUN}, "cannot_run", None),
        ({"discarded_at": NOW}, "discarded", None),
    ],
)
def test_a_session_becomes_a_task_with_its_outcome(
    producer: GraphProducer,
    graph: TaskGraph,
    work: FakeWork,
    fields: dict[str, Any],
    outcome: str,
    success: bool | None,
) -> None:
    work.add(view(**fields))
    producer.handle(fact("SessionEnded", "session_1"))
    node = graph.get("session_1")
    assert node is not None
    assert (node.outcome, node.success) == (outcome, success)
    assert describe_task(node) == f"Fix the parser ({outcome}): The parser reads dates again."


def test_a_retry_and_a_continuation_come_from_what_was_before(
    producer: GraphProducer, graph: TaskGraph, work: FakeWork
) -> None:
    work.add(view("session_1", state=SessionState.FAILED))
    work.add(view("session_2"))
    work.add(view("session_3", prompt="Go on"))
    work.add(view("session_4"))
    work.followed["session_3"] = "session_2"
    for number in range(1, 5):
        producer.handle(fact("SessionEnded", f"session_{number}"))
    derived = {
        (edge.source, edge.target)
        for number in range(1, 5)
        for edge in graph.neighbourhood(f"session_{number}").edges
        if edge.relation is Relation.DERIVED_FROM
    }
    # The fourth is the second once more, which had succeeded: no retry.
    assert derived == {("session_2", "session_1"), ("session_3", "session_2")}


def test_tasks_alike_are_linked_once(graph: TaskGraph, work: FakeWork) -> None:
    similar = {"a": {"a": 1.0, "gone": 1.0, "b": 0.8}, "b": {"b": 1.0, "a": 0.8}}
    asked = []

    def sessions_like(session: str, k: int, cosine: float) -> dict[str, float]:
        asked.append(cosine)
        return similar[session]

    producer = GraphProducer(graph, work, sessions_like)  # type: ignore[arg-type]
    for session in ("a", "b"):
        producer.link_similar(fact("SessionEnded", session))
    (edge,) = graph.neighbourhood("a").edges
    assert (edge.target, edge.relation, edge.weight) == ("b", Relation.SIMILAR_TO, 0.8)
    assert asked == [SIMILAR] * 2 == [0.8] * 2


# -- what recall hears of it


def test_the_graph_tells_what_is_like_it_and_what_is_beside_that(graph: TaskGraph) -> None:
    graph.put(GraphNode("build", "Build it", NOW - timedelta(days=14), False))
    graph.put(GraphNode("deploy", "Deploy it", NOW, False))
    graph.put(GraphNode("old", "Old", NOW))
    graph.relate("build", Relation.BLOCKS, "deploy")
    graph.relate("old", Relation.RELATED_TO, "deploy")
    graph.put(GraphNode("old", "Old", NOW, invalidated_at=NOW, why="wrong"))
    source = GraphSource(graph, lambda text, k: {"deploy": 0.8})
    found = source.find(RecallQuery("why did the deployment fail"), NOW, 1.0).items
    assert [one.id for one in found] == ["deploy", "build"]
    assert found[0].score == pytest.approx(0.7 * 0.8 + 0.3)
    assert "its failure blocked “Deploy it”" in found[1].reason
    elsewhere = RecallQuery("why", workspace="/home/me/other")
    assert source.find(elsewhere, NOW, 1.0).items == ()


def test_half_of_the_telling_words_are_enough(tmp_path: Path, database: Database, clock: FakeClock) -> None:
    para = Para(tmp_path / "para", database, clock)
    para.add([NewFact("The service listens on port 8000")])
    source = FactSource(para)
    assert len(source.find(RecallQuery("which port has the gateway"), NOW, 1.0).items) == 1  # of port, gateway
    assert source.find(RecallQuery("which port has the new gateway"), NOW, 1.0).items == ()
    assert source.find(RecallQuery("which kind of fruit is yellow"), NOW, 1.0).items == ()
