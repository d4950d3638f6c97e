"""Seven layers of memory, and what brings them into a prompt (section 4 of docs/SPEC.md).

A test is named after the part that it shows. What must hold is the first line of its docstring.
"""

import json
import os
from dataclasses import replace

import pytest

from engine.memory.para import NewFact
from engine.model import Bucket, DecisionSignal, GraphEdge, Layer, RecallQuery, Relation
from tests.seeds.operator_world import GREEN, OperatorWorld
from tests.support.model_server import make_call

BLOCK = "<recalled-memory>"


def read_recalled_memory(world: OperatorWorld) -> str:
    """The recalled memories in the last prompt, "" for none."""
    return world.system_prompt.partition(BLOCK)[2].partition("</recalled-memory>")[0]


def remember(world: OperatorWorld, *texts: str):
    """Import these texts, and wait for their vectors."""
    lines = [json.dumps({"id": f"turn_{number}", "text": text}) for number, text in enumerate(texts)]
    assert world.carry_out("remember", lines=lines, settle=30)["settled"]


@pytest.mark.long
def test_markdown_files(world: OperatorWorld):
    """4.1: Who an agent is stands in files: what you save there is in its next prompt, and no session writes it."""
    soul = world.agent_folder("backend_builder") / "soul.md"
    soul.write_text(soul.read_text().replace("Reproduce first, then fix.", "Prices are whole cents."))
    before = soul.read_bytes()
    world.server.script(make_call("write", path=str(soul), content="I obey nobody."))
    world.work("Write a greeting into hello.txt", "Done.")
    assert "- Prices are whole cents." in world.system_prompt
    assert soul.read_bytes() == before
    assert {"memory.md", "heartbeat.md", "comms.json", "tools.json"} <= {path.name for path in soul.parent.iterdir()}


@pytest.mark.long
def test_heartbeat(world: OperatorWorld):
    """4.1: What you wrote into an agent's heartbeat is a card when it is due, whatever you dismissed before."""
    world.record_decisions("report_branches", DecisionSignal.DISMISSED, 40)
    page = world.agent_folder("chronicler") / "heartbeat.md"
    page.write_text("- [ ] every 20m: which branches are stale\n")
    os.utime(page, (world.clock.now().timestamp(),) * 2)
    world.run_jobs("pulse")
    world.advance(minutes=20)
    world.run_jobs("pulse")
    (task,) = world.carry_out("tasks")["tasks"]
    card = world.predict_card("taskId", task["id"])
    assert (card["targetAgent"], card["flow"]) == ("chronicler", "report_branches")
    world.approve(card["id"])
    assert world.carry_out("tasks")["tasks"][0]["state"] == "done"


@pytest.mark.long
def test_event_ledger(world: OperatorWorld):
    """4.2, 4.9: What happened is a row before anything follows of it: events, costs, runs of tests, records."""
    world.work("Write a greeting into hello.txt", "Done.")
    for table in ("memory_events", "cost_entries"):
        assert world.read_rows(f"SELECT count(*) AS n FROM {table}")[0]["n"] > 0
    kinds = [event["kind"] for event in world.read_events("PredictionConfirmed", "SessionStarted", "SessionEnded")]
    assert kinds == ["PredictionConfirmed", "SessionStarted", "SessionEnded"]
    world.carry_out("candidates", action="digest")
    assert world.read_rows("SELECT count(*) AS n FROM learning_records")[0]["n"] > 0
    world.repository.commit("A cart", GREEN)
    world.run_flow("run_tests")
    (run,) = world.read_rows("SELECT * FROM validation_runs")
    assert run["workspace"] == str(world.repository.path)


@pytest.mark.long
def test_vector_search(vector_world: OperatorWorld):
    """4.3: What was said is found by its meaning, in other words, with the layer that knew it and the reason."""
    remember(vector_world, "We moved the shop's database from MySQL to PostgreSQL last spring", "Lunch is at noon")
    results = vector_world.carry_out("recall", query="which engine stores our orders now", k=3)["results"]
    assert "PostgreSQL" in results[0]["text"]
    assert results[0]["layer"] == "C"
    assert results[0]["reason"]


@pytest.mark.long
def test_auto_capture(world: OperatorWorld):
    """4.4: Decisions, facts and corrections in what an agent says are kept by themselves, with their place."""
    answer = (
        "Decision: we keep the old parser for good.\n"
        "The service listens on port 8000.\n"
        "Correction: the cap is 20 dollars, not 10."
    )
    view = world.work("Look at the parser", answer)
    world.update_memory()
    captures = {row["kind"]: row for row in world.read_rows("SELECT * FROM captures ORDER BY line")}
    assert set(captures) == {"decision", "fact", "correction"}
    assert "old parser" in captures["decision"]["text"]
    assert captures["decision"]["session_id"] == view.id
    assert world.engine.sessions.read_transcript(view.id)[captures["decision"]["line"] - 1].text.startswith("Decision")


@pytest.mark.long
def test_auto_recall(vector_world: OperatorWorld):
    """4.4, 4.5: Another agent's prompt has what an earlier task left, within a budget, each line with its source."""
    vector_world.work("Write the prices module", "Decision: prices are whole cents, never floats. I wrote the module.")
    vector_world.update_memory()
    vector_world.engine.memory.settle(30)
    vector_world.advance(days=1)
    question = "How do we store the prices of articles, as cents or as floats?"
    view = vector_world.work(question, "As cents.", channel="research")
    recalled = read_recalled_memory(vector_world)
    lines_with_decision = [line for line in recalled.splitlines() if "whole cents, never floats" in line]
    assert len(lines_with_decision) == 1, "once, though several layers know it"
    assert question not in recalled, "nothing of its own task"
    prompt = vector_world.carry_out("xray", id=view.id, call=1)["prompt"]
    parts = [part for part in prompt if part["name"] == "recalled-memory"]
    assert any(line["ref"] for part in parts for line in part["lines"])
    assert sum(part["tokens"] for part in parts) <= 600
    vector_world.work("Which kind of fruit is yellow?", "A banana.", channel="research")
    assert read_recalled_memory(vector_world) == "", "what is not about the question stays away"


def find_blocks(world: OperatorWorld, task_id: str) -> list[GraphEdge]:
    """What blocks a task, or did so once, in the graph of all that happened."""
    world.update_memory()
    edges = world.engine.knowledge.graph.get_neighbourhood(task_id).edges
    return [edge for edge in edges if edge.relation is Relation.BLOCKS]


@pytest.mark.long
def test_task_graph(world: OperatorWorld):
    """4.6: Tasks and how they hang together are kept for good: what failed blocks what needs it, until it is done."""
    shop = {"workspace": str(world.repository.path)}
    world.repository.commit("A cart", GREEN | {"cart.txt": "4\n"})
    tests = world.carry_out("tasks", action="add", title="Run the tests", **shop)["task"]
    release = world.carry_out("tasks", action="add", title="Tag the release", needs=[tests["id"]], **shop)["task"]
    world.update_memory()
    failed = world.approve(world.predict_card("taskId", tests["id"])["id"])
    [block] = find_blocks(world, release["id"])
    assert (block.source, block.invalidated) == (failed.id, False)
    world.carry_out("tasks", action="done", id=tests["id"])
    assert all(edge.invalidated for edge in find_blocks(world, release["id"]))
    with world.restarted() as engine:
        assert engine.knowledge.graph.get(failed.id).success is False
    assert failed.id in (world.home.data / "task_graph.json").read_text()


def test_canonical_facts(world: OperatorWorld):
    """4.7: Facts are never deleted: a new one takes the old one's place, and the chain of corrections stays."""
    para = world.engine.knowledge.para
    fact = NewFact("The service listens on port 8000", "configuration", Bucket.PROJECTS, "shop", "operator")
    (old,) = para.add([fact])
    (new,) = para.add([replace(fact, fact="The service listens on port 9000", supersedes=old.id)])
    for fact_id in (old.id, new.id):
        assert [correction.id for correction in para.read_corrections(fact_id)] == [old.id, new.id]
    assert para.get(old.id).superseded_by == new.id
    recall = world.engine.memory.recall(RecallQuery("which port does the service listen on"))
    assert [item.id for item in recall.items if item.layer is Layer.PARA] == [new.id]
    pages = "\n".join(path.read_text() for path in (world.home.data / "para").rglob("*.md"))
    assert "port 9000" in pages
    items = [json.loads(path.read_text()) for path in (world.home.data / "para").rglob("*.json")]
    assert old.id in json.dumps(items), "as JSON beside the pages"


@pytest.mark.long
def test_nightly_extraction(world: OperatorWorld):
    """4.8: At night the day is summed up in memory.md, and its facts wait for your word; once a day, also late."""
    diary = world.agent_folder("backend_builder") / "memory.md"
    world.run_jobs("nightly")
    world.work("Look at the parser", "Decision: we keep the old parser for good.")
    world.update_memory()
    world.advance(days=2)
    world.run_jobs("nightly")
    summed_up = diary.read_text()
    assert summed_up.count("## 2026-01-05") == 1
    (draft,) = world.carry_out("drafts")["drafts"]
    assert "old parser" in draft["fact"]
    assert world.carry_out("drafts", action="promote", id=draft["id"])["fact"]["status"] == "active"
    world.run_jobs("nightly")
    assert diary.read_text() == summed_up
    assert world.carry_out("drafts")["drafts"] == []
