"""The task graph: what it keeps, refuses and recovers (SPEC 4.6)."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.clock import FakeClock
from engine.memory import graph_file
from engine.memory.graph import TaskGraph, recency, similar
from engine.model import ACYCLIC, GraphEdge, GraphNode, Refusal, Relation

NOW = datetime(2026, 1, 5, 9, 30, tzinfo=UTC)


def node(name: str, **more: object) -> GraphNode:
    return GraphNode(**{"task_id": name, "title": f"Task {name}", "timestamp": NOW} | more)  # type: ignore[arg-type]


def opened(folder: Path) -> TaskGraph:
    graph = TaskGraph(folder, FakeClock(NOW))
    graph.load()
    return graph


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[TaskGraph]:
    graph = opened(tmp_path)
    yield graph
    graph.close()


def everything(graph: TaskGraph) -> list[object]:
    return [graph.neighbourhood(one.task_id) for one in graph.newest(limit=10_000)]


class TestKeeping:
    def test_what_was_put_is_there_after_a_restart(self, graph: TaskGraph, tmp_path: Path) -> None:
        graph.put(node("a", success=True, description="built it"))
        graph.put(node("b"))
        graph.relate("b", Relation.DERIVED_FROM, "a")
        graph.put(node("b", success=False))
        before = everything(graph)
        graph.close()
        again = opened(tmp_path)
        assert everything(again) == before
        assert again.get("b").success is False  # type: ignore[union-attr]
        again.close()

    def test_the_snapshot_is_one_json_document_with_the_seeds_fields(self, graph: TaskGraph, tmp_path: Path) -> None:
        graph.put(node("a", success=True, description="built it"))
        graph.put(node("b"))
        graph.relate("a", Relation.BLOCKS, "b")
        graph.compact()
        document = json.loads((tmp_path / "task_graph.json").read_text())
        first = document["tasks"][0]
        assert {"task_id", "title", "timestamp", "success", "description"} <= first["task"].keys()
        assert first["edges"] == [["blocks", "b", 1.0]]

    def test_one_hop_goes_both_ways_and_no_further(self, graph: TaskGraph) -> None:
        for name in "abcd":
            graph.put(node(name))
        graph.relate("a", Relation.BLOCKS, "b")
        graph.relate("c", Relation.RELATED_TO, "a")
        graph.relate("b", Relation.BLOCKS, "d")
        assert {found.task_id for _, found in graph.neighbours(["a"])} == {"b", "c"}


class TestAcyclic:
    @pytest.mark.parametrize("relation", sorted(ACYCLIC))
    def test_a_circle_is_refused(self, graph: TaskGraph, relation: Relation) -> None:
        for name in "abc":
            graph.put(node(name))
        graph.relate("a", relation, "b")
        graph.relate("b", relation, "c")
        with pytest.raises(Refusal) as refusal:
            graph.relate("c", relation, "a")
        assert refusal.value.code == "cycle"
        with pytest.raises(Refusal):
            graph.relate("a", relation, "a")

    @settings(max_examples=60, deadline=None)
    @given(
        st.lists(
            st.tuples(st.integers(0, 7), st.sampled_from(sorted(ACYCLIC)), st.integers(0, 7), st.booleans()),
            max_size=60,
        )
    )
    def test_however_arrows_are_drawn_and_cut_there_is_never_a_circle(
        self, tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, Relation, int, bool]]
    ) -> None:
        graph = opened(tmp_path_factory.mktemp("graph"))
        model: dict[Relation, set[tuple[str, str]]] = {relation: set() for relation in ACYCLIC}
        for number in range(8):
            graph.put(node(str(number)))
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


class TestScore:
    def test_recency_falls_by_e_in_14_days(self) -> None:
        assert recency(NOW, NOW) == 1.0
        assert recency(NOW - timedelta(days=14), NOW) == pytest.approx(math.exp(-1))
        assert recency(NOW - timedelta(days=28), NOW) == pytest.approx(math.exp(-2))
        assert recency(NOW + timedelta(days=3), NOW) == 1.0

    @settings(max_examples=40, deadline=None)
    @given(st.floats(-1000, 100_000))
    def test_recency_is_always_between_0_and_1(self, days: float) -> None:
        assert 0 <= recency(NOW - timedelta(days=days), NOW) <= 1

    def test_similar_begins_at_a_cosine_of_exactly_0_8(self) -> None:
        found = similar([("just", 0.8), ("not", 0.79995), ("close", 0.95), ("itself", 1.0)], "itself")
        assert [name for name, _ in found] == ["close", "just"]
        assert found[1][1] == 0.8


class TestFiles:
    def test_a_torn_last_line_is_cut_off(self, graph: TaskGraph, tmp_path: Path) -> None:
        graph.put(node("a"))
        graph.close()
        journal = tmp_path / "task_graph.journal.jsonl"
        whole = journal.read_bytes()
        for cut in range(1, 40, 7):
            journal.write_bytes(whole + whole[:cut])
            again = opened(tmp_path)
            assert len(again) == 1
            assert again.faults == ()
            again.put(node("b"))
            again.close()
            lines = journal.read_text().splitlines()
            assert [json.loads(line)["task"]["task_id"] for line in lines] == ["a", "b"]
            journal.write_bytes(whole)

    def test_a_line_that_cannot_be_read_is_named_and_kept(self, graph: TaskGraph, tmp_path: Path) -> None:
        graph.put(node("a"))
        graph.close()
        journal = tmp_path / "task_graph.journal.jsonl"
        lines = journal.read_text().splitlines()
        bad = [
            "{broken",
            '{"task": {"task_id": ""}}',
            lines[0].replace('"edges":[]', '"edges":[["adores","b",1]]'),
            '{"task": {"task_id": "z"}}',
        ]
        journal.write_text(journal.read_text() + "\n".join(bad) + "\n")
        again = opened(tmp_path)
        assert len(again) == 1
        assert len(again.faults) == len(bad)
        assert "line 2" in again.faults[0]
        again.compact()
        again.close()
        assert (tmp_path / graph_file.REJECTED_LINES).read_text().splitlines() == bad
        clean = opened(tmp_path)
        assert clean.faults == ()
        clean.close()

    def test_a_snapshot_in_another_layout_is_read_all_the_same(self, graph: TaskGraph, tmp_path: Path) -> None:
        graph.put(node("a"))
        graph.put(node("b"))
        graph.relate("a", Relation.BLOCKS, "b")
        graph.compact()
        before = everything(graph)
        graph.close()
        file = tmp_path / "task_graph.json"
        file.write_text(json.dumps(json.loads(file.read_text()), indent=2))
        again = opened(tmp_path)
        assert everything(again) == before
        again.close()

    def test_a_circle_drawn_by_hand_is_named_and_opened_and_the_rest_is_read(
        self, graph: TaskGraph, tmp_path: Path
    ) -> None:
        for name in "abcd":
            graph.put(node(name))
        graph.relate("a", Relation.BLOCKS, "b")
        graph.relate("b", Relation.BLOCKS, "c")
        graph.relate("c", Relation.RELATED_TO, "a")
        graph.relate("d", Relation.DERIVED_FROM, "a")
        graph.compact()
        graph.close()
        file = tmp_path / "task_graph.json"
        by_hand = file.read_text().replace('["related_to","a",1.0]', '["blocks","a",1.0]')
        file.write_text(by_hand)
        again = opened(tmp_path)
        assert len(again) == 4
        (fault,) = again.faults
        assert "a → b → c → a is a circle of `blocks`; c → a is treated as not valid" in fault
        assert "remove the wrong arrow from the file" in fault
        held = [(edge.source, edge.target) for edge, _ in again.neighbours(["c"])]
        assert held == [("b", "c")]
        assert again.neighbourhood("d").edges[0].relation is Relation.DERIVED_FROM
        with pytest.raises(Refusal, match="leads to"):
            again.relate("c", Relation.BLOCKS, "a")
        again.close()
        assert file.read_text() == by_hand, "the file is the operator's until he has fixed it, or it is compacted"

    def test_a_snapshot_that_is_no_json_is_kept_aside_and_named(self, graph: TaskGraph, tmp_path: Path) -> None:
        graph.put(node("a"))
        graph.close()
        (tmp_path / "task_graph.json").write_text("what?")
        again = opened(tmp_path)
        assert len(again) == 1  # the journal's
        assert "task_graph.damaged-1.json" in again.faults[0]
        assert (tmp_path / "task_graph.damaged-1.json").read_text() == "what?"
        again.close()

    @pytest.mark.parametrize("step", ["begin", "write", "empty"])
    def test_a_crash_at_any_step_of_compacting_loses_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
    ) -> None:
        graph = opened(tmp_path)
        for number in range(20):
            graph.put(node(str(number)))
            if number:
                graph.relate(str(number), Relation.DERIVED_FROM, str(number - 1))
        before = everything(graph)
        with monkeypatch.context() as patch:
            if step == "begin":
                patch.setattr(graph_file.GraphFiles, "replace", crash)
            elif step == "write":
                patch.setattr(graph_file, "write_atomic", crash)
            else:
                patch.setattr(os, "ftruncate", crash)
            with pytest.raises(InterruptedError):
                graph.compact()
        graph.put(node("after"))
        before = everything(graph)
        graph.close()
        again = opened(tmp_path)
        assert everything(again) == before
        again.compact()
        again.close()
        third = opened(tmp_path)
        assert everything(third) == before
        assert (tmp_path / "task_graph.journal.jsonl").read_bytes() == b""
        third.close()

    def test_a_long_journal_becomes_part_of_the_snapshot_by_itself(
        self, graph: TaskGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("engine.memory.graph.COMPACT_LINES", 10)
        for number in range(60):
            graph.put(node(str(number)))
        graph.flush()
        graph.close()
        assert (tmp_path / "task_graph.json").exists()
        again = opened(tmp_path)
        assert len(again) == 60
        again.close()


def crash(*_: object, **__: object) -> None:
    raise InterruptedError("the power went")
