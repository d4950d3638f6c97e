"""Who puts tasks into the graph, what recall hears of it, and other agents' transcripts (SPEC 4.4, 4.6)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from engine.clock import FakeClock
from engine.memory.graph import TaskGraph
from engine.memory.graph_tasks import GraphProducer, SimilarityLinker
from engine.memory.para import NewFact, Para
from engine.memory.recall import FactSource, GraphSource, describe_task
from engine.memory.transcript_import import Importer
from engine.model import (
    RETENTION_BY_KIND,
    CheckResult,
    GraphNode,
    RecallQuery,
    Relation,
    Retention,
    SessionState,
    Task,
)
from engine.model.agent_turns import MAX_LINE_BYTES, read_turn
from engine.storage.database import Database
from engine.storage.ledger import LedgerEntry
from tests.memory.fake_work import NOW, FakeWork, view


def fact(kind: str, subject: str, **payload: Any) -> LedgerEntry:
    return LedgerEntry(1, NOW, kind, subject, "/home/me/shop", payload)


@pytest.fixture
def graph(tmp_path: Path, clock: FakeClock) -> Iterator[TaskGraph]:
    graph = TaskGraph(tmp_path / "graph", clock)
    graph.load()
    yield graph
    graph.close()


class TestProducer:
    @pytest.fixture
    def work(self) -> FakeWork:
        return FakeWork()

    @pytest.fixture
    def producer(self, graph: TaskGraph, work: FakeWork) -> GraphProducer:
        return GraphProducer(graph, work)

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
        self,
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
        self, producer: GraphProducer, graph: TaskGraph, work: FakeWork
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

    def test_a_failure_blocks_what_needs_it_until_that_is_done(
        self, producer: GraphProducer, graph: TaskGraph, work: FakeWork
    ) -> None:
        build = Task("task_1", "Build", "open", "", "/home/me/shop", "operator", NOW, NOW, "session_1")
        deploy = Task("task_2", "Deploy", "open", "", "/home/me/shop", "operator", NOW, NOW, needs=("task_1",))
        work.tasks = {"task_1": build, "task_2": deploy}
        work.add(view("session_1", prompt="Build", check=CheckResult("pytest", 3, 1)))  # red
        for kind, subject in (("TaskAdded", "task_1"), ("SessionEnded", "session_1"), ("TaskAdded", "task_2")):
            producer.handle(fact(kind, subject, title="x"))
        producer.handle(fact("TaskChanged", "task_1", state="open"))
        (edge,) = graph.neighbourhood("task_2").edges
        assert (edge.source, edge.relation, edge.invalidated) == ("session_1", Relation.BLOCKS, False)
        work.add(view("session_2", prompt="Build", state=SessionState.SUCCEEDED))
        work.tasks["task_1"] = replace(build, state="done", session_id="session_2")
        producer.handle(fact("SessionEnded", "session_2"))
        producer.handle(fact("TaskChanged", "task_1", state="done"))
        (edge,) = graph.neighbourhood("task_2").edges
        assert edge.invalidated


def near(*found: tuple[str, float]) -> Callable[[str, int], Sequence[tuple[str, float]]]:
    return lambda session_id, k: found


class TestLinker:
    def test_tasks_alike_are_linked_once(self, graph: TaskGraph) -> None:
        for name in "abc":
            graph.put(GraphNode(name, name, NOW))
        SimilarityLinker(graph, near(("b", 0.8), ("c", 0.795), ("gone", 1.0))).handle(fact("SessionEnded", "a"))
        SimilarityLinker(graph, near(("a", 0.8))).handle(fact("SessionEnded", "b"))
        (edge,) = graph.neighbourhood("a").edges
        assert (edge.target, edge.relation, edge.weight) == ("b", Relation.SIMILAR_TO, 0.8)
        assert graph.neighbourhood("c").edges == ()


class TestSources:
    def test_the_graph_tells_what_is_like_it_and_what_is_beside_that(self, graph: TaskGraph) -> None:
        graph.put(GraphNode("build", "Build it", NOW - timedelta(days=14), False))
        graph.put(GraphNode("deploy", "Deploy it", NOW, False))
        graph.put(GraphNode("old", "Old", NOW))
        graph.relate("build", Relation.BLOCKS, "deploy")
        graph.relate("old", Relation.RELATED_TO, "deploy")
        graph.put(GraphNode("old", "Old", NOW, invalidated_at=NOW, why="wrong"))
        source = GraphSource(graph, lambda text, k: [("deploy", 0.8)])
        found = source.find(RecallQuery("why did the deployment fail"), NOW, 1.0).items
        assert [one.id for one in found] == ["deploy", "build"]
        assert found[0].score == pytest.approx(0.7 * 0.8 + 0.3)
        assert "its failure blocked “Deploy it”" in found[1].reason
        elsewhere = RecallQuery("why", workspace="/home/me/other")
        assert source.find(elsewhere, NOW, 1.0).items == ()

    def test_half_of_the_telling_words_are_enough(self, tmp_path: Path, database: Database, clock: FakeClock) -> None:
        para = Para(tmp_path / "para", database, clock)
        para.add([NewFact("The service listens on port 8000")])
        source = FactSource(para)
        assert len(source.find(RecallQuery("which port has the gateway"), NOW, 1.0).items) == 1  # of port, gateway
        assert source.find(RecallQuery("which port has the new gateway"), NOW, 1.0).items == ()
        assert source.find(RecallQuery("which kind of fruit is yellow"), NOW, 1.0).items == ()


def claude(number: int, speaker: str, text: str, **more: Any) -> str:
    line = {
        "type": speaker,
        "uuid": f"u{number}",
        "sessionId": "s1",
        "cwd": "/home/me/shop",
        "timestamp": "2026-01-05T09:30:00Z",
        "message": {"role": speaker, "content": [{"type": "text", "text": text}]},
    }
    return json.dumps(line | more) + "\n"


def importer_of(
    database: Database,
    work: FakeWork,
    folders: Callable[[], Sequence[str]],
    *,
    ours: Callable[[str], bool] = lambda folder: False,
    report: Callable[[str, str], None] = lambda where, problems: None,
) -> Importer:
    return Importer(
        database, work.remember, folders, workspace_of=lambda folder: folder, ours=ours, secrets=tuple, report=report
    )


class TestImporting:
    def test_turns_come_in_once_and_bad_lines_are_named(self, tmp_path: Path, database: Database) -> None:
        folder = tmp_path / "projects/shop"
        folder.mkdir(parents=True)
        file = folder / "s1.jsonl"
        tool = {"role": "assistant", "content": [{"type": "tool_use", "name": "Bash", "input": {}}]}
        file.write_text(
            claude(1, "user", "Fix the parser")
            + "{broken\n"
            + claude(2, "assistant", "x", message=tool)
            + json.dumps({"type": "summary", "summary": "x"})
            + "\n"
            + claude(3, "assistant", "The key is sk-" + "a1" * 15)
            + claude(4, "user", "half a li")[:-1]
        )
        work = FakeWork()
        folders = [str(tmp_path / "projects"), str(tmp_path / "none")]
        reports: list[str] = []
        importer = importer_of(database, work, lambda: folders, report=lambda where, problems: reports.append(problems))
        assert importer.run() == 2
        assert "s1.jsonl line 2: not JSON" in reports[0]
        assert "is not a folder" in reports[0]
        first = work.remembered["claude-code:s1:u1"]
        assert (first.speaker, first.session, first.workspace) == ("user", "claude-code:s1", "/home/me/shop")
        assert first.source.endswith("s1.jsonl:1")
        assert first.retention is None  # as its kind: for a month
        assert RETENTION_BY_KIND[first.kind] is Retention.MONTH
        assert "a1a1" not in work.remembered["claude-code:s1:u3"].text
        times = work.times
        assert importer.run() == 0
        assert work.times == times
        file.write_text(file.read_text() + "\n" + claude(5, "user", "and then?"))
        assert importer.run() == 2

    def test_codex_is_read_too(self) -> None:
        payload = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello"}]}
        line = json.dumps({"timestamp": "2026-01-05T09:30:00Z", "type": "response_item", "payload": payload}).encode()
        turn = read_turn(line, "rollout-1")
        assert turn is not None
        assert (turn.agent, turn.session, turn.text) == ("codex", "codex:rollout-1", "Hello")

    def test_our_own_sessions_are_not_read_and_a_folder_said_once_counts(
        self, tmp_path: Path, database: Database
    ) -> None:
        (tmp_path / "ours.jsonl").write_text(claude(1, "user", "Do it", cwd="/ours/ses_1"))
        payload = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello"}]}
        meta = json.dumps({"type": "session_meta", "payload": {"cwd": "/home/me/shop"}}) + "\n"
        file = tmp_path / "rollout-1.jsonl"
        file.write_text(meta)
        work = FakeWork()
        importer = importer_of(database, work, lambda: [str(tmp_path)], ours=lambda folder: folder.startswith("/ours"))
        assert importer.run() == 0
        file.write_text(meta + json.dumps({"type": "response_item", "payload": payload}) + "\n")
        assert importer.run() == 1
        assert [one.workspace for one in work.remembered.values()] == ["/home/me/shop"]

    @pytest.mark.parametrize(
        "line", [b"[]", b"nope", b"x" * (MAX_LINE_BYTES + 1), b'{"type": "user", "message": 3}', b'"text"']
    )
    def test_what_is_malformed_is_said(self, line: bytes) -> None:
        with pytest.raises(ValueError):
            read_turn(line, "s")
