"""Operations, as verbs and the gateway carry them out: checks of arguments (SPEC 11.2), whether they show that you are
present (SPEC 2.2), cards, sessions and learnings (SPEC 9.8)."""

import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from clawpy_console.cli.main import render_document
from engine import Engine, Home
from engine.api.operations import dispatch
from engine.execution.runners.flows.documentation import read_lessons
from engine.model import ChangeState, LearningStatus, SessionState
from tests.execution.changesets.landing_world import LandingWorld
from tests.hierarchy.guidance_world import make_learning
from tests.learning.learnings.made_up_entries import make_entry
from tests.support import MONDAY_MORNING
from tests.support.checks import refused
from tests.support.engines import open_idle_engine
from tests.support.repository import Repository
from tests.support.sessions import make_session_view

Ask = Callable[..., dict[str, Any]]


@pytest.fixture
def ask(engine: Engine) -> Ask:
    """Carries out a verb with its arguments through `dispatch`, as the control socket does."""

    def carry_out(verb: str, **arguments: Any) -> dict[str, Any]:
        document = dispatch(engine, verb, arguments)
        return json.loads(json.dumps(document))  # every document is JSON

    return carry_out


def test_only_a_deciding_verb_means_that_the_operator_is_there(engine: Engine, ask: Ask):
    presence = engine.autonomy.presence
    before = presence.read_last_activity()
    for verb in ("status", "cards", "work", "agents", "tasks", "config"):
        ask(verb)
    assert presence.read_last_activity() == before
    ask("tasks", action="add", title="x")
    assert presence.read_last_activity() > before


@pytest.mark.parametrize(
    "verb, arguments, code",
    [
        ("fly", {}, "unknown_verb"),
        ("approve", {}, "bad_arguments"),
        ("approve", {"id": 3}, "bad_arguments"),
        ("approve", {"id": "x" * 200_000}, "bad_arguments"),
        ("approve", {"id": "pred_abc1", "force": True}, "bad_arguments"),
        ("snooze", {"id": "pred_abc1", "seconds": 0}, "bad_arguments"),
        ("status", None, "bad_arguments"),
        ("latest", {"channel": "nowhere"}, "unknown_channel"),
        ("config", {"action": "set", "key": "channels.koji-core.runner", "value": "acp:ghost"}, "unknown_agent"),
    ],
)
def test_wrong_arguments_are_refused(engine: Engine, verb: str, arguments: Any, code: str):
    refused(code, lambda: dispatch(engine, verb, arguments))


def test_the_status_names_what_was_spent_beside_its_caps(ask: Ask):
    document = ask("status")
    document["crossPollStatus"] |= {"costThisHour": 0.15, "costToday": 1.2, "costThisMonth": 9.0}
    assert "  cost  hour $0.15/2  day $1.20/20  month $9.00/200\n" in render_document("status", document)


def test_all_but_some_files_are_landed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def edit(folder: Path):
        for name in ("a.py", "b.py"):
            (folder / name).write_text("1\n")

    with closing(LandingWorld(tmp_path)) as world:
        world.repository.commit("begin", {"README.md": "x\n"})
        change = world.make_change(edit)
        shop = world.root
    with closing(open_idle_engine(world.home, shop)) as engine:
        session = make_session_view(id=change.session_id, workspace=str(shop))
        monkeypatch.setattr(engine.sessions, "get", lambda id: session)
        refused("unknown_file", lambda: dispatch(engine, "land", {"id": change.id, "without": ["c.py"]}))
        refused("nothing_to_land", lambda: dispatch(engine, "land", {"id": change.id, "without": ["a.py", "b.py"]}))
        dispatch(engine, "land", {"id": change.id, "without": ["b.py"]})
    assert sorted(path.name for path in shop.iterdir()) == [".git", "README.md", "a.py"]


@pytest.mark.long
def test_learnings_of_a_workspace_are_written_into_agents_md_by_a_card(tmp_path: Path):
    """From a discovery to a landed line of AGENTS.md (SPEC 1.12), with a real session and a real change set."""
    shop = Repository(tmp_path / "shop")
    shop.commit("begin", {"AGENTS.md": "Use tabs.\n"})
    here = str(shop.path)
    with closing(open_idle_engine(Home.locate(tmp_path / "home"), here)) as engine:
        refused("nothing_learnt", lambda: dispatch(engine, "learnings", {"action": "write", "workspace": here}))
        learning = make_learning(1, text="set foo=bar <!-- first", category="backend tests", agent="backend_builder")
        finding = replace(learning, workspace=here)
        engine.bubbles.offer(finding)
        engine.bubbles.offer(replace(finding, id="learning:2", text="elsewhere things differ", workspace="/elsewhere"))
        engine.bubbles.flush()
        document = dispatch(engine, "learnings", {"action": "write", "workspace": here})
        [card] = document["predictions"]
        assert finding.text in render_document("learnings", document)
        engine.cards.approve(card["id"])
        session = engine.sessions.find_of_card(card["id"])
        assert engine.sessions.wait(session.id, 30).state is SessionState.SUCCEEDED
        [change] = engine.changes.list_newest(state=ChangeState.WAITING)
        assert (shop.path / "AGENTS.md").read_text() == "Use tabs.\n"  # nothing lands by itself
        engine.changes.land(change.id)
        written = (shop.path / "AGENTS.md").read_bytes()
        assert written.startswith(b"Use tabs.\n\n<!-- clawpy:learnt -->\n")
        assert read_lessons(written) == [finding.text]


@pytest.mark.parametrize("length, written", [(9, 60), (2_990, 4)])
def test_a_card_that_writes_agents_md_has_the_newest_lessons_up_to_its_limits(length: int, written: int):
    entries = [make_entry(f"{n} {'x' * length}", created_at=MONDAY_MORNING + timedelta(n)) for n in range(61)]
    engine = Mock(**{"bubbles.list_accepted.return_value": (), "learnings.list_entries.return_value": entries})
    engine.cards.propose = lambda prompt, workspace: prompt
    document = dispatch(engine, "learnings", {"action": "write", "workspace": "/shop"})
    lessons = json.loads(document["predictions"][0].partition(" ")[2])["lessons"]
    assert (len(lessons), lessons[0][:2], document["leftOut"]) == (written, "60", 61 - written)


def test_retracted_learnings_take_no_place_in_a_list():
    entries = [make_entry("Use tabs", status=LearningStatus.RETIRED), make_entry("Use spaces")]
    engine = Mock(**{"bubbles.list_accepted.return_value": ()})
    engine.learnings.list_entries = lambda *_, limit, **__: entries[:limit]
    [shown] = dispatch(engine, "learnings", {"workspace": "/shop", "limit": 1})["learnings"]
    assert shown["text"] == "Use spaces"
