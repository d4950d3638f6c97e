"""What sessions learn, from the narrowest scope to the widest (section 6 of docs/SPEC.md).

A test is named after the part that it shows. What must hold is the first line of its docstring.
"""

import pytest

from engine.model import Refusal
from tests.seeds.operator_world import Document, OperatorWorld
from tests.support.model_server import Reply

pytestmark = pytest.mark.long

RULE = "Never touch the changelog by hand"


def teach(world: OperatorWorld, times: int, rule: str = RULE) -> list[str]:
    """Add a rule to the prompts of `times` sessions. Returns their ids."""
    return world.work_corrected(rule, *(f"part{number}" for number in range(times)))


def read_entries(world: OperatorWorld, scope: str, **arguments: object) -> list[Document]:
    """The entries of a scope that say the rule."""
    where = {} if scope == "global" else {"workspace": str(world.repository.path)}
    learnings = world.carry_out("learnings", scope=scope, **where, **arguments)["learnings"]
    return [entry for entry in learnings if RULE in entry["text"]]


def answer_questions(world: OperatorWorld, answer: str):
    """Let the model finish sessions at once, and answer everything else with `answer`."""
    world.server.answer = lambda request: Reply(text="Done." if request.tools else answer)


def test_scopes(world: OperatorWorld):
    """6.1: What a session taught is an entry in a Markdown file of its own scope, which you can edit."""
    (session,) = teach(world, 1)
    assert read_entries(world, "project") == read_entries(world, "global") == []
    (entry, *_) = read_entries(world, "session", session=session)
    page = world.home.data / entry["path"]
    text = page.read_text()
    assert text.startswith("---\n")
    assert RULE in text
    page.write_text(text.replace("by hand", "by hand, ever"))
    assert read_entries(world, "session", session=session)[0]["text"].endswith("by hand, ever")


def test_session_to_project(world: OperatorWorld):
    """6.2: What three sessions of a project say becomes the project's by itself, once; the next prompt has it."""
    teach(world, 2)
    assert read_entries(world, "project") == []
    teach(world, 1)
    (entry,) = read_entries(world, "project")
    assert len(entry["promotedFrom"]) >= 3
    world.work("Write a greeting into hello.txt", "Done.")
    assert RULE in world.system_prompt
    teach(world, 1)
    (again,) = read_entries(world, "project")
    assert again["id"] == entry["id"]
    assert again["reinforcementCount"] > entry["reinforcementCount"], "said again it counts more, and stands once"


def test_proxy_exclusion(world: OperatorWorld):
    """6.3: What is about you stays where it was said, however often it is said."""
    teach(world, 4, "I prefer short answers in the morning")
    assert world.carry_out("learnings", scope="project", workspace=str(world.repository.path))["learnings"] == []


def test_project_to_global(closed_world: OperatorWorld):
    """6.4: What holds in one project goes to all only by a judge's clear yes, when you ask; else by your own word."""
    closed_world.append_config('[memory]\nmodel = "openai:gpt-5-mini"\n')
    with closed_world.opened():
        answer_questions(closed_world, '{"learnings": []}')
        teach(closed_world, 3)
        (entry,) = read_entries(closed_world, "project")
        for unclear in ("It probably does.", '{"generalises": false, "reason": "one shop only"}'):
            answer_questions(closed_world, unclear)
            closed_world.carry_out("learnings", action="chain", judge=True)
            assert read_entries(closed_world, "global") == []
        promoted = closed_world.carry_out("learnings", action="promote", id=entry["id"])["promoted"]
        assert read_entries(closed_world, "global")[0]["id"] == promoted["id"]


def test_provenance(world: OperatorWorld):
    """6.5: An entry says which sessions it came from; retract it, and all that came from it is named for review."""
    sessions = teach(world, 3)
    (entry,) = read_entries(world, "project")
    promoted = world.carry_out("learnings", action="promote", id=entry["id"])["promoted"]
    learning = world.carry_out("learnings", action="show", id=entry["id"])["learning"]
    assert set(learning["sessions"]) == set(sessions)
    assert entry["promotedAt"]
    report = world.carry_out("learnings", action="retract", id=entry["id"], reason="not true any more")
    assert promoted["id"] in report["queued"]
    assert set(report["sessions"]) == set(sessions)
    assert promoted["id"] in [waiting.id for waiting in world.engine.list_waiting()]
    with pytest.raises(Refusal):
        world.carry_out("learnings", action="promote", id=entry["id"])


def test_extraction_scopes(world: OperatorWorld):
    """6.6, 6.7: A session is read for what was assumed while it ran and what you corrected; each says how sure."""
    prompt = "Write a greeting into hello.txt"
    view = world.work(prompt, "I assume that greetings are English. Done.", edit=f"{prompt}. {RULE}")
    world.engine.learnings.catch_up()
    learnings = world.carry_out("learnings", session=view.id)["learnings"]
    phases = {entry["phase"]: entry["text"] for entry in learnings}
    assert phases["in-flight"] == "I assume that greetings are English."
    assert RULE in phases["intent-alignment"]
    corrective = next(entry for entry in learnings if RULE in entry["text"])
    assert (corrective["type"], corrective["confidence"]) == ("corrective", 0.9)
    assert corrective["reasons"], "both scores say what they come from"
