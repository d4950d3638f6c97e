"""Operations, as verbs and the doors carry them out: checks of arguments (SPEC 11.2), whether they show that you are
present (SPEC 2.2), cards, sessions, notifications and learnings (SPEC 9.8).

The stand-in engine has two pending cards: `pred_abc1` in /srv/shop and `pred_abd2` in /srv/other.
"""

import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from clawpy_console.cli.printing import render_document
from engine import Home, open_engine
from engine.api.notify.delivery import DeliveryFailure
from engine.api.operations import dispatch
from engine.api.operations.memory import RESERVED_NAMES, parse_agent_name
from engine.clock import FakeClock
from engine.config.sections import Surface
from engine.events import EventBus, StateChanged
from engine.execution.runners.flows.documents import read_lessons
from engine.model import (
    ChangeState,
    FileChange,
    FilePart,
    SessionState,
)
from engine.storage.database import Database
from tests.api.notify.notify_world import NotifyWorld
from tests.api.stand_in import StandIn
from tests.conftest import Repository
from tests.hierarchy.guidance_world import make_learning
from tests.support.helpers import read_table, refused

TABLE = read_table(__file__)

Ask = Callable[..., dict[str, Any]]


@pytest.fixture
def ask(engine: StandIn) -> Ask:
    """Carries out a verb with its arguments through `dispatch`, as the control socket does."""

    def carry_out(verb: str, **arguments: Any) -> dict[str, Any]:
        document = dispatch(engine, verb, arguments)
        return json.loads(json.dumps(document))  # every document is JSON

    return carry_out


def test_only_a_deciding_verb_means_that_the_operator_is_there(engine: StandIn, ask: Ask):
    for verb in ("status", "cards", "work", "agents", "tasks", "config"):
        ask(verb)
    assert engine.autonomy.activity_count == 0
    ask("dismiss", id="pred_abc1")
    ask("tasks", action="add", title="x")
    assert engine.autonomy.activity_count == 2


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
    ],
)
def test_wrong_arguments_are_refused(engine: StandIn, verb: str, arguments: Any, code: str):
    refused(code, lambda: dispatch(engine, verb, arguments))


def test_only_what_a_person_sees_counts_as_shown(engine: StandIn, ask: Ask):
    ask("cards")
    assert engine.cards.shown == []
    ask("cards", shown=True)
    assert engine.cards.shown == ["pred_abc1", "pred_abd2"]


def test_a_card_is_snoozed_for_two_hours_or_as_long_as_is_asked(engine: StandIn, ask: Ask):
    ask("snooze", id="pred_abc1")
    ask("snooze", id="pred_abc1", seconds=60)
    assert engine.cards.spans == [timedelta(hours=2), timedelta(minutes=1)]


def test_propose_continues_a_session_in_its_workspace(engine: StandIn, ask: Ask):
    [session] = engine.sessions.list(limit=1)
    ask("propose", text="now the docs", continues=session.id)
    [proposed] = engine.cards.proposed
    assert (proposed["continues"], proposed["workspace"]) == (session.id, session.workspace)


# An agent has a name of its own. A name that carries authority is refused, however it is spelt.


@pytest.mark.parametrize("name", sorted(RESERVED_NAMES))
@pytest.mark.parametrize("spelling", ["{}", " {} ", "{}\n", "{}1", "{}.", "@{}"])
def test_a_name_of_authority_is_refused(name: str, spelling: str):
    refused("not_its_name", lambda: parse_agent_name(spelling.format(name)))


@pytest.mark.parametrize("name", TABLE["disguises"])
def test_a_disguised_name_is_refused(name: str):
    refused("not_its_name", lambda: parse_agent_name(name))


@pytest.mark.parametrize("name", TABLE["own_names"])
def test_a_name_of_its_own_is_kept(name: str):
    assert parse_agent_name(name) == name


@pytest.mark.parametrize("id", ["chg_x1", "sess_aaa", "sess_a", "chg_x", "x1", "aaa"])
def test_work_takes_a_session_or_a_change_set_and_the_beginning_of_either(ask: Ask, id: str):
    document = ask("work", id=id, lines=2, diff=True)
    assert document["session"]["id"] == "sess_aaa"
    assert document["prediction"]["id"] == "pred_abc1"
    assert document["changeSet"]["files"][0]["path"] == "a.py"
    assert [line["text"] for line in document["transcript"]] == ["line 2", "line 3"]
    [file] = document["diff"]
    assert (file["hunks"].count("@@ -"), file["landedHunks"]) == (2, [2])


def test_xray_of_a_session_without_calls_says_why(engine: StandIn, ask: Ask):
    engine.calls = SimpleNamespace(for_session=lambda id: [])  # type: ignore[attr-defined]
    assert "no model calls: a flow runs without a model" in render_document("xray", ask("xray", id="sess_aaa"))


def test_all_but_some_files_are_landed(engine: StandIn, ask: Ask):
    files = tuple(
        FileChange(path, "added", 1, 0, refused="a link" * (path == "evil")) for path in ("a.py", "b.py", "evil")
    )
    engine.changes.by_id["chg_x1"] = replace(engine.changes.by_id["chg_x1"], files=files)
    ask("land", id="chg_x1", without=["b.py", "evil"])
    assert engine.changes.landed_parts == [FilePart("a.py")]
    refused("unknown_file", lambda: ask("land", id="chg_x1", without=["c.py"]))
    refused("nothing_to_land", lambda: ask("land", id="chg_x1", without=["a.py", "b.py"]))


def test_what_changed_no_file_is_not_landed(engine: StandIn, ask: Ask):
    assert "has not run yet" in refused("no_change_set", lambda: ask("land", id="pred_abd2")).message
    engine.changes.by_id.clear()
    assert "changed no files" in refused("no_change_set", lambda: ask("land", id="sess_aaa")).message


@pytest.fixture
def world(database: Database, clock: FakeClock, bus: EventBus) -> NotifyWorld:
    return NotifyWorld(database, clock, bus)


def carry_out_notify(world: NotifyWorld, **arguments: Any) -> dict[str, Any]:
    """The document of the verb `notify`."""
    engine = SimpleNamespace(
        notify=world.notifications,
        settings=world.settings,
        autonomy=SimpleNamespace(
            find_quiet_reason=lambda: world.quiet, dnd_until=lambda: None, note_activity=lambda: None
        ),
    )
    return dispatch(engine, "notify", arguments)


def test_a_test_notification_says_how_it_went(world: NotifyWorld):
    refused("no_surface", lambda: carry_out_notify(world, action="test"))
    world.set_addresses(phone="ntfy://topic")
    world.courier.failures[Surface.PHONE] = DeliveryFailure("it cannot be reached")
    shown = render_document("notify", carry_out_notify(world, action="test"))
    assert shown == "✗ phone    it cannot be reached  is its address right? clawpy notify set phone"
    world.courier.failures.clear()
    assert carry_out_notify(world, action="test")["tested"][0]["delivered"]


def test_an_undelivered_notification_is_shown_retried_and_dismissed(world: NotifyWorld):
    world.set_addresses(phone="ntfy://topic")
    world.courier.failures[Surface.PHONE] = DeliveryFailure("the server answers 401", lasting=True)
    world.record_events(StateChanged(before="WATCHING", after="PAUSED", cause="3 dismissals in a row"))
    world.deliver()
    shown = render_document("notify", carry_out_notify(world))
    assert "1 not delivered: the server answers 401; clawpy notify retry phone" in shown
    assert carry_out_notify(world, action="retry", surface="phone")["retried"] == 1
    world.deliver()
    assert carry_out_notify(world, action="dismiss")["dismissed"] == 1
    assert carry_out_notify(world)["surfaces"][0]["undelivered"] == 0


@pytest.mark.long
def test_learnings_of_a_workspace_are_written_into_agents_md_by_a_card(tmp_path: Path):
    """From a discovery to a landed line of AGENTS.md (SPEC 1.12), with a real session and a real change set."""
    shop = Repository(tmp_path / "shop")
    shop.commit("begin", {"AGENTS.md": "Use tabs.\n"})
    here = str(shop.path)
    with closing(open_engine(Home.locate(tmp_path / "home"), workspaces=[here], start_schedule=False)) as engine:
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
        session = engine.sessions.of_card(card["id"])
        assert engine.sessions.wait(session.id, 30).state is SessionState.SUCCEEDED
        [change] = engine.changes.list(state=ChangeState.WAITING)
        assert (shop.path / "AGENTS.md").read_text() == "Use tabs.\n"  # nothing lands by itself
        engine.changes.land(change.id)
        written = (shop.path / "AGENTS.md").read_bytes()
        assert written.startswith(b"Use tabs.\n\n<!-- clawpy:learnt -->\n")
        assert read_lessons(written) == [finding.text]
