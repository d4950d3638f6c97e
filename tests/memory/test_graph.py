"""The task graph (SPEC 4.6): it has no circles, loses nothing in a restart, a crash or a damaged file, and links
sessions to what they retry, continue or resemble."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.clock import FakeClock
from engine.memory import graph as graph_module
from engine.memory.graph import TaskGraph
from engine.memory.graph_producer import GraphProducer
from engine.model import ACYCLIC, GraphEdge, GraphNode, Refusal, Relation
from engine.storage.ledger import LedgerEntry
from tests.memory.stand_in_work import NOW, StandInWork
from tests.support.helpers import refused

DOCUMENT, JOURNAL = "task_graph.json", "task_graph.journal.jsonl"


def open_graph(folder: Path, *names: str) -> TaskGraph:
    """The graph in a folder, with tasks of these names added."""
    graph = TaskGraph(folder, FakeClock(NOW))
    graph.load()
    for name in names:
        graph.put(GraphNode(name, f"Task {name}", NOW))
    return graph


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[TaskGraph]:
    graph = open_graph(tmp_path, *"abcd")
    yield graph
    graph.close()


def reopen(graph: TaskGraph, folder: Path) -> TaskGraph:
    graph.close()
    return open_graph(folder)


def read_contents(graph: TaskGraph) -> list[object]:
    return [graph.get_neighbourhood(node.task_id) for node in graph.find_newest(limit=10_000)]


def read_tasks(document: Path) -> list[Any]:
    return list(json.loads(document.read_text())["tasks"])


def has_circle(edges: set[tuple[str, str]]) -> bool:
    """Whether edges form a circle: something is left after removing, again and again, all to which no edge leads."""
    remaining = {name for edge in edges for name in edge}
    while remaining:
        targets = {target for source, target in edges if source in remaining}
        if remaining <= targets:
            return True
        remaining &= targets
    return False


class UntruncatableFile:
    """A journal whose truncation crashes."""

    def truncate(self, size: int):
        crash()


def crash(*_: object, **__: object):
    raise InterruptedError("the power went")


def test_tasks_and_edges_are_there_after_a_restart(graph: TaskGraph, tmp_path: Path):
    graph.relate("b", Relation.DERIVED_FROM, "a")
    graph.put(GraphNode("b", "Task b", NOW, success=False))
    before = read_contents(graph)
    graph = reopen(graph, tmp_path)
    assert read_contents(graph) == before
    graph.compact()
    graph = reopen(graph, tmp_path)
    assert read_contents(graph) == before
    first, second, *_ = read_tasks(tmp_path / DOCUMENT)
    assert {"task_id", "title", "timestamp", "success", "description"} <= first["task"].keys()
    assert second["edges"] == [["derived_from", "a", 1.0]]


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(st.integers(0, 7), st.sampled_from(sorted(ACYCLIC)), st.integers(0, 7), st.booleans()), max_size=60
    )
)
def test_an_edge_is_refused_exactly_if_it_closes_a_circle(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, Relation, int, bool]]
):
    graph = open_graph(tmp_path_factory.mktemp("graph"), *"01234567")
    edges = {relation: set() for relation in ACYCLIC}
    for source, relation, target, is_cut in steps:
        edge = (str(source), str(target))
        if is_cut and edge in edges[relation]:
            graph.cut(GraphEdge(edge[0], relation, edge[1]))
            edges[relation].discard(edge)
            continue
        closes_circle = has_circle(edges[relation] | {edge})
        try:
            graph.relate(edge[0], relation, edge[1])
        except Refusal:
            assert closes_circle
        else:
            assert not closes_circle
            edges[relation].add(edge)
    graph.close()


@pytest.mark.parametrize("torn", range(1, 40, 7))
def test_a_torn_last_line_is_cut_off(graph: TaskGraph, tmp_path: Path, torn: int):
    journal = tmp_path / JOURNAL
    whole = journal.read_bytes()
    journal.write_bytes(whole + whole[:torn])
    graph = reopen(graph, tmp_path)
    assert (len(graph), graph.faults) == (4, ())
    assert journal.read_bytes() == whole


@pytest.mark.parametrize("file", [DOCUMENT, JOURNAL])
def test_a_damaged_file_is_copied_aside_and_named_and_what_can_be_read_stays(
    graph: TaskGraph, tmp_path: Path, file: str
):
    graph.compact()
    graph.put(GraphNode("e", "Task e", NOW))
    graph.close()
    bad_lines = ["{broken", '{"task": {"task_id": "z"}}', '{"task": 3, "edges": []}', "[]", "[" * 100_000]
    path = tmp_path / file
    path.write_text("\n".join([*bad_lines, path.read_text()]))
    damaged = path.read_bytes()
    graph = open_graph(tmp_path)
    assert len(graph) == 5
    [fault] = graph.faults
    assert fault.startswith(f"{file}: ")
    assert "5 in all" in fault
    assert (tmp_path / f"{file}.damaged-1").read_bytes() == damaged
    graph = reopen(graph, tmp_path)
    assert (len(graph), graph.faults) == (5, ())


def test_a_document_that_is_a_folder_is_refused(tmp_path: Path):
    (tmp_path / DOCUMENT).mkdir()
    graph = TaskGraph(tmp_path, FakeClock(NOW))
    refusal = refused("unwritable_home", graph.load)
    assert graph.faults == (refusal.message,)


@pytest.mark.parametrize("step", ["write_atomic", "_encode", "truncate"])
def test_a_crash_at_any_step_of_compacting_loses_nothing(
    graph: TaskGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
):
    graph.relate("a", Relation.BLOCKS, "b")
    with monkeypatch.context() as patch:
        if step == "truncate":
            patch.setattr(graph._files, "_file", UntruncatableFile())
        else:
            patch.setattr(graph_module, step, crash)
        with pytest.raises(InterruptedError):
            graph.compact()
    graph.put(GraphNode("after", "Task after", NOW))
    before = read_contents(graph)
    assert read_contents(reopen(graph, tmp_path)) == before


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
