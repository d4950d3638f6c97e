"""Operations, as verbs and the doors carry them out: checks of arguments (SPEC 11.2), whether they show that you are
present (SPEC 2.2), cards, sessions, notifications and learnings (SPEC 9.8)."""

import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from clawpy_console.cli.main import render_document
from engine import Engine, Home
from engine.api.notify.delivery import DeliveryFailure
from engine.api.operations import dispatch
from engine.api.operations.memory import RESERVED_NAMES, parse_agent_name
from engine.clock import FakeClock
from engine.config.sections import Surface
from engine.events import EventBus
from engine.execution.runners.flows.agents_md import read_lessons
from engine.model import ChangeState, SessionState
from engine.storage.database import Database
from tests.api.notify.notify_world import PAUSED_EVENT, NotifyWorld
from tests.execution.changesets.landing_world import LandingWorld
from tests.hierarchy.guidance_world import make_learning
from tests.support import read_table
from tests.support.checks import refused
from tests.support.engines import open_idle_engine
from tests.support.repository import Repository
from tests.support.sessions import make_session_view

TABLE = read_table(__file__)

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
        ("config", {"action": "set", "key": "channels.koji-core.runner", "value": "acp:ghost"}, "unknown_agent"),
    ],
)
def test_wrong_arguments_are_refused(engine: Engine, verb: str, arguments: Any, code: str):
    refused(code, lambda: dispatch(engine, verb, arguments))


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
    world.record_events(PAUSED_EVENT)
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
        [change] = engine.changes.list(state=ChangeState.WAITING)
        assert (shop.path / "AGENTS.md").read_text() == "Use tabs.\n"  # nothing lands by itself
        engine.changes.land(change.id)
        written = (shop.path / "AGENTS.md").read_bytes()
        assert written.startswith(b"Use tabs.\n\n<!-- clawpy:learnt -->\n")
        assert read_lessons(written) == [finding.text]
