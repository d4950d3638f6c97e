"""The task graph (SPEC 4.6): it has no circles, and links sessions to what they retry, continue or resemble."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.clock import FakeClock
from engine.events import EventBus
from engine.memory.graph import GraphProducer, TaskGraph
from engine.model import ACYCLIC_RELATIONS, GraphEdge, GraphNode, Refusal, Relation
from engine.storage.database import Database
from engine.storage.ledger import LedgerEntry
from tests.memory.stand_in_work import NOW, StandInWork
from tests.support.checks import refused


@pytest.fixture
def graph(database: Database) -> TaskGraph:
    return make_graph(database, *"abcd")


def make_graph(database: Database, *names: str) -> TaskGraph:
    graph = TaskGraph(database)
    for name in names:
        graph.put(GraphNode(name, f"Task {name}", NOW))
    return graph


def has_circle(edges: set[tuple[str, str]]) -> bool:
    """Whether edges form a circle: something is left after removing, again and again, all to which no edge leads."""
    remaining = {name for edge in edges for name in edge}
    while remaining:
        targets = {target for source, target in edges if source in remaining}
        if remaining <= targets:
            return True
        remaining &= targets
    return False


def test_a_task_keeps_its_place_and_an_edge_is_added_once(graph: TaskGraph):
    assert graph.add_edge("b", Relation.DERIVED_FROM, "a", 0.12341)
    assert not graph.add_edge("b", Relation.DERIVED_FROM, "a")
    graph.put(GraphNode("b", "Task b", NOW, success=False))
    assert [node.task_id for node in graph.find_newest(words="TASK", limit=3)] == ["d", "c", "b"]
    around = graph.get_neighbourhood("a")
    assert around.edges == (GraphEdge("b", Relation.DERIVED_FROM, "a", 0.1234),)
    assert (around.neighbours[0].success, graph.find_latest_named("", "Task b")) == (False, around.neighbours[0])
    refused("unknown_task", lambda: graph.add_edge("a", Relation.BLOCKS, "z"))
    graph.put(GraphNode("e", "Über e", NOW))
    assert [node.task_id for node in graph.find_newest(words="über")] == ["e"]


def test_the_file_of_the_graph_has_each_task_with_its_edges(graph: TaskGraph, tmp_path: Path):
    graph.add_edge("b", Relation.DERIVED_FROM, "a", 0.5)
    graph.put(GraphNode("a", "Task a", NOW, success=True))
    graph.export(tmp_path / "task_graph.json")
    a, b, *_ = json.loads((tmp_path / "task_graph.json").read_text())["tasks"]
    assert (a["title"], a["success"], a["edges"], b["success"]) == ("Task a", True, [], None)
    assert b["edges"] == [{"relation": "derived_from", "target": "a", "weight": 0.5, "invalidated": False}]


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(st.integers(0, 7), st.sampled_from(sorted(ACYCLIC_RELATIONS)), st.integers(0, 7), st.booleans()),
        max_size=60,
    )
)
def test_an_edge_is_refused_exactly_if_it_closes_a_circle(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, Relation, int, bool]]
):
    database = Database(tmp_path_factory.mktemp("graph") / "clawpy.db", clock=FakeClock(NOW), bus=EventBus())
    graph = make_graph(database, *"01234567")
    edges = {relation: set() for relation in ACYCLIC_RELATIONS}
    for source, relation, target, is_cut in steps:
        edge = (str(source), str(target))
        if is_cut and edge in edges[relation]:
            graph.invalidate_edge(GraphEdge(edge[0], relation, edge[1]))
            edges[relation].discard(edge)
            continue
        closes_circle = has_circle(edges[relation] | {edge})
        try:
            graph.add_edge(edge[0], relation, edge[1])
        except Refusal:
            assert closes_circle
        else:
            assert not closes_circle
            edges[relation].add(edge)
    database.close()


# Sessions as tasks


def make_session_end(session: str) -> LedgerEntry:
    return LedgerEntry(1, NOW, "SessionEnded", session, "/home/me/shop", {})


def test_similar_sessions_are_linked_once(graph: TaskGraph):
    similar = {"a": {"a": 1.0, "gone": 1.0, "b": 0.8}, "b": {"b": 1.0, "a": 0.8}}
    asked_similarities = []

    def find_sessions_like(session: str, k: int, min_similarity: float) -> dict[str, float]:
        asked_similarities.append(min_similarity)
        return similar[session]

    producer = GraphProducer(graph, StandInWork(), find_sessions_like)
    for session in similar:
        producer.link_similar(make_session_end(session))
    (edge,) = graph.get_neighbourhood("a").edges
    assert (edge.target, edge.relation, edge.weight) == ("b", Relation.SIMILAR_TO, 0.8)
    assert asked_similarities == [0.8] * 2
