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
from engine.events import TaskAdded, WorkOverlapped
from engine.memory.graph import TaskGraph
from engine.memory.graph_tasks import GraphProducer, SimilarityLinker
from engine.memory.layer_sources import FactSource, GraphSource, LedgerSource, describe_task
from engine.memory.para import NewFact, Para
from engine.memory.transcript_import import MAX_LINE_BYTES, Importer, read_turn
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
from engine.storage.consumers import NotYet
from engine.storage.database import Database
from engine.storage.ledger import Ledger, LedgerEntry
from tests.memory.session_book import NOW, Book, ended, view


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
    def book(self) -> Book:
        return Book()

    @pytest.fixture
    def producer(self, graph: TaskGraph, book: Book) -> GraphProducer:
        return GraphProducer(graph, book)

    @pytest.mark.parametrize(
        ("state", "success"),
        [
            (SessionState.RUNNING, None),
            (SessionState.SUCCEEDED, True),
            (SessionState.FAILED, False),
            (SessionState.CANCELLED, None),
            (SessionState.INTERRUPTED, None),
        ],
    )
    def test_a_session_becomes_a_task_with_its_outcome(
        self, producer: GraphProducer, graph: TaskGraph, book: Book, state: SessionState, success: bool | None
    ) -> None:
        book.add(view(state=state))
        producer.handle(fact("SessionEnded", "session_1"))
        node = graph.get("session_1")
        assert node is not None
        assert (node.title, node.success, node.agent) == ("Fix the parser", success, "backend_builder")

    def test_again_changes_nothing(self, producer: GraphProducer, graph: TaskGraph, book: Book, tmp_path: Path) -> None:
        book.add(view(state=SessionState.FAILED))
        book.add(view("session_2"))
        for _ in range(2):
            producer.handle(fact("SessionEnded", "session_1"))
            producer.handle(fact("SessionEnded", "session_2"))
            tasks = json.loads((tmp_path / "graph/task_graph.json").read_text())["tasks"]
        assert [(task["task"]["task_id"], len(task["edges"])) for task in tasks] == [("session_1", 0), ("session_2", 1)]
        assert (tmp_path / "graph/task_graph.journal.jsonl").read_bytes() == b""  # all of it is in the one file

    @pytest.mark.parametrize(
        ("how", "outcome", "success"),
        [
            ({"check": CheckResult("pytest", 3, 1)}, "failed", False),
            ({"state": SessionState.CANNOT_RUN}, "cannot_run", None),
            ({"discarded_at": NOW}, "discarded", None),
        ],
    )
    def test_a_task_ends_as_its_session_says(
        self,
        producer: GraphProducer,
        graph: TaskGraph,
        book: Book,
        how: dict[str, Any],
        outcome: str,
        success: bool | None,
    ) -> None:
        book.add(view(**how))
        producer.handle(fact("ChangeSetDiscarded", "change_1", session_id="session_1"))
        node = graph.get("session_1")
        assert node is not None
        assert (node.outcome, node.success) == (outcome, success)
        assert describe_task(node) == f"Fix the parser ({outcome}): The parser reads dates again."

    def test_a_retry_and_a_continuation_come_from_what_was_before(
        self, producer: GraphProducer, graph: TaskGraph, book: Book
    ) -> None:
        book.add(view("session_1", state=SessionState.FAILED))
        book.add(view("session_2"))
        book.add(view("session_3", prompt="Go on"))
        book.add(view("session_4"))
        book.followed["session_3"] = "session_2"
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
        self, producer: GraphProducer, graph: TaskGraph, book: Book
    ) -> None:
        build = Task("task_1", "Build", "open", "", "/home/me/shop", "operator", NOW, NOW, "session_1")
        deploy = Task("task_2", "Deploy", "open", "", "/home/me/shop", "operator", NOW, NOW, needs=("task_1",))
        book.tasks = {"task_1": build, "task_2": deploy}
        book.add(view("session_1", prompt="Build", check=CheckResult("pytest", 3, 1)))  # red
        for kind, subject in (("TaskAdded", "task_1"), ("SessionEnded", "session_1"), ("TaskAdded", "task_2")):
            producer.handle(fact(kind, subject, title="x"))
        producer.handle(fact("TaskChanged", "task_1", state="open"))
        (edge,) = graph.neighbourhood("task_2").edges
        assert (edge.source, edge.relation, edge.invalidated) == ("session_1", Relation.BLOCKS, False)
        book.add(view("session_2", prompt="Build", state=SessionState.SUCCEEDED))
        book.tasks["task_1"] = replace(build, state="done", session_id="session_2")
        producer.handle(fact("SessionEnded", "session_2"))
        producer.handle(fact("TaskChanged", "task_1", state="done"))
        (edge,) = graph.neighbourhood("task_2").edges
        assert edge.invalidated

    def test_tasks_of_the_board_and_overlaps(self, producer: GraphProducer, graph: TaskGraph, book: Book) -> None:
        board = Task("task_1", "Tidy", "open", "", "/home/me/shop", "operator", NOW, NOW, "session_1")
        book.tasks["task_1"] = board
        book.add(view("session_1"))
        book.add(view("session_2", prompt="Other"))
        for name in ("session_1", "session_2"):
            producer.handle(fact("SessionEnded", name))
        producer.handle(fact(TaskAdded.__name__, "task_1", title="Tidy"))
        overlap = {"session_id": "session_2", "other_session_id": "session_1"}
        producer.handle(fact(WorkOverlapped.__name__, "change_2", **overlap))
        relations = {edge.relation for edge in graph.neighbourhood("session_1").edges}
        assert relations == {Relation.DERIVED_FROM, Relation.RELATED_TO}
        task = graph.get("task_1")
        assert task is not None
        assert task.success is None

    def test_what_never_began_or_nobody_knows_is_no_task(
        self, producer: GraphProducer, graph: TaskGraph, book: Book
    ) -> None:
        book.add(view(started_at=None))
        producer.handle(fact("SessionEnded", "session_1"))
        producer.handle(fact("SessionEnded", "nobody"))
        assert len(graph) == 0


def near(*found: tuple[str, float]) -> Callable[[str, int], Sequence[tuple[str, float]]]:
    return lambda session_id, k: found


class TestLinker:
    def test_tasks_alike_are_linked_once(self, graph: TaskGraph) -> None:
        for name in "abc":
            graph.put(GraphNode(name, name, NOW))
        SimilarityLinker(graph, near(("b", 0.4), ("c", 0.41), ("gone", 0.0))).handle(fact("SessionEnded", "a"))
        SimilarityLinker(graph, near(("a", 0.4))).handle(fact("SessionEnded", "b"))
        (edge,) = graph.neighbourhood("a").edges
        assert (edge.target, edge.relation, edge.weight) == ("b", Relation.SIMILAR_TO, 0.8)
        assert graph.neighbourhood("c").edges == ()

    def test_it_waits_for_vectors(self, graph: TaskGraph) -> None:
        graph.put(GraphNode("a", "a", NOW))
        with pytest.raises(NotYet):
            SimilarityLinker(graph, lambda session_id, k: None).handle(fact("SessionEnded", "a"))


class TestSources:
    def test_the_graph_tells_what_is_like_it_and_what_is_beside_that(self, graph: TaskGraph) -> None:
        graph.put(GraphNode("build", "Build it", NOW - timedelta(days=14), False))
        graph.put(GraphNode("deploy", "Deploy it", NOW, False))
        graph.put(GraphNode("old", "Old", NOW))
        graph.relate("build", Relation.BLOCKS, "deploy")
        graph.relate("old", Relation.RELATED_TO, "deploy")
        graph.put(GraphNode("old", "Old", NOW, invalidated_at=NOW, why="wrong"))
        source = GraphSource(graph, lambda text, k: [("deploy", 0.4)])
        found = source.find(RecallQuery("why did the deployment fail"), NOW, 1.0).items
        assert [one.id for one in found] == ["deploy", "build"]
        assert found[0].score == pytest.approx(0.7 * 0.8 + 0.3)
        assert "its failure blocked “Deploy it”" in found[1].reason
        elsewhere = RecallQuery("why", workspace="/home/me/other")
        assert source.find(elsewhere, NOW, 1.0).items == ()

    def test_an_open_task_is_found_by_its_words_but_not_by_itself(self, graph: TaskGraph) -> None:
        graph.put(GraphNode("task_1", "Move the queue to Redis", NOW))
        source = GraphSource(graph)
        (one,) = source.find(RecallQuery("what of the Redis queue"), NOW, 1.0).items
        assert one.text == "Move the queue to Redis (open)"
        assert source.find(RecallQuery("move the queue to redis"), NOW, 1.0).items == ()

    def test_half_of_the_telling_words_are_enough(self, tmp_path: Path, database: Database, clock: FakeClock) -> None:
        para = Para(tmp_path / "para", database, clock)
        para.add([NewFact("The service listens on port 8000")])
        source = FactSource(para)
        assert len(source.find(RecallQuery("which port has the gateway"), NOW, 1.0).items) == 1  # of port, gateway
        assert source.find(RecallQuery("which port has the new gateway"), NOW, 1.0).items == ()
        assert source.find(RecallQuery("which kind of fruit is yellow"), NOW, 1.0).items == ()

    def test_facts_that_hold_are_told_and_counted(self, tmp_path: Path, database: Database, clock: FakeClock) -> None:
        para = Para(tmp_path / "para", database, clock)
        old = para.add([NewFact("The service listens on port 8000")])[0]
        new = para.supersede(old.id, "The service listens on port 8001")
        (one,) = FactSource(para).find(RecallQuery("which port does the service use"), NOW, 1.0).items
        assert one.id == new.id
        para.flush()
        assert para.get(new.id).access_count == 1

    def test_the_ledger_tells_what_happened(self, database: Database) -> None:
        ended(database, view())
        (one,) = LedgerSource(Ledger(database)).find(RecallQuery("parser reads dates"), NOW, 1.0).items
        assert "reads dates again" in one.text
        assert one.source == "session_1"


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
        book = Book()
        importer = Importer(database, book.remember, lambda: [str(tmp_path / "projects"), str(tmp_path / "none")])
        report = importer.run()
        assert (report.files, report.turns, report.bad) == (1, 2, 1)
        assert any("s1.jsonl line 2: not JSON" in one for one in report.problems)
        assert any("is not a folder" in one for one in report.problems)
        first = book.remembered["claude-code:s1:u1"]
        assert (first.speaker, first.session, first.workspace) == ("user", "claude-code:s1", "/home/me/shop")
        assert first.source.endswith("s1.jsonl:1")
        assert first.retention is None  # as its kind: for a month
        assert RETENTION_BY_KIND[first.kind] is Retention.MONTH
        assert "a1a1" not in book.remembered["claude-code:s1:u3"].text
        times = book.times
        assert importer.run().turns == 0
        assert book.times == times
        file.write_text(file.read_text() + "\n" + claude(5, "user", "and then?"))
        assert importer.run().turns == 2

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
        book = Book()
        importer = Importer(
            database, book.remember, lambda: [str(tmp_path)], ours=lambda folder: folder.startswith("/ours")
        )
        assert importer.run().turns == 0
        file.write_text(meta + json.dumps({"type": "response_item", "payload": payload}) + "\n")
        assert importer.run().turns == 1
        assert [one.workspace for one in book.remembered.values()] == ["/home/me/shop"]

    @pytest.mark.parametrize(
        "line", [b"[]", b"nope", b"x" * (MAX_LINE_BYTES + 1), b'{"type": "user", "message": 3}', b'"text"']
    )
    def test_what_is_malformed_is_said(self, line: bytes) -> None:
        with pytest.raises(ValueError):
            read_turn(line, "s")
