"""Sessions in the task graph (SPEC 4.6): each is a task with its outcome, linked to what it retries, continues or
resembles."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.clock import FakeClock
from engine.memory.graph import TaskGraph
from engine.memory.graph_producer import GraphProducer
from engine.memory.recall import describe_task
from engine.model import CheckResult, GraphNode, Relation, SessionState, label_outcome
from engine.storage.ledger import LedgerEntry
from tests.memory.stand_in_work import NOW, StandInWork, make_view


@pytest.fixture
def graph(tmp_path: Path, clock: FakeClock) -> Iterator[TaskGraph]:
    graph = TaskGraph(tmp_path, clock)
    yield graph
    graph.close()


@pytest.fixture
def work() -> StandInWork:
    return StandInWork()


@pytest.fixture
def producer(graph: TaskGraph, work: StandInWork) -> GraphProducer:
    return GraphProducer(graph, work, lambda session, k, cosine: {})


def make_session_end(session: str) -> LedgerEntry:
    return LedgerEntry(1, NOW, "SessionEnded", session, "/home/me/shop", {})


@pytest.mark.parametrize(
    "fields, outcome, success",
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
    work: StandInWork,
    fields: dict[str, Any],
    outcome: str,
    success: bool | None,
):
    work.add(make_view(**fields))
    producer.handle(make_session_end("session_1"))
    node = graph.get("session_1")
    assert (node.outcome, node.success) == (outcome, success)
    assert describe_task(node) == f"Fix the parser ({label_outcome(outcome)}): The parser reads dates again."


def test_a_retry_and_a_continuation_are_derived_from_what_was_before(
    producer: GraphProducer, graph: TaskGraph, work: StandInWork
):
    work.add(make_view("failed", state=SessionState.FAILED))
    work.add(make_view("retry"))
    work.add(make_view("continuation", prompt="Go on"))
    work.add(make_view("after success"))
    work.continued["continuation"] = "retry"
    for session in work.views:
        producer.handle(make_session_end(session))
    edges = {edge for session in work.views for edge in graph.get_neighbourhood(session).edges}
    assert {(edge.source, edge.relation.value, edge.target) for edge in edges} == {
        ("retry", "derived_from", "failed"),
        ("continuation", "derived_from", "retry"),
    }


def test_similar_sessions_are_linked_once(graph: TaskGraph, work: StandInWork):
    for name in ("a", "b"):
        graph.put(GraphNode(name, f"Task {name}", NOW))
    similar = {"a": {"a": 1.0, "gone": 1.0, "b": 0.8}, "b": {"b": 1.0, "a": 0.8}}
    asked_similarities = []

    def find_sessions_like(session: str, k: int, min_similarity: float) -> dict[str, float]:
        asked_similarities.append(min_similarity)
        return similar[session]

    producer = GraphProducer(graph, work, find_sessions_like)
    for session in similar:
        producer.link_similar(make_session_end(session))
    (edge,) = graph.get_neighbourhood("a").edges
    assert (edge.target, edge.relation, edge.weight) == ("b", Relation.SIMILAR_TO, 0.8)
    assert asked_similarities == [0.8] * 2
