"""Events of the engine reach the console as a few messages, which update the screen and become toasts (SPEC 11.4)."""

import asyncio
import time

import pytest

from clawpy_console.app import BATCH_INTERVAL_S, Bridge, ConsoleApp, EngineChanged
from clawpy_console.state import TOPICS
from clawpy_console.toasts import Toast, make_toasts
from engine.events import Event, EventBus
from engine.events.engine import CostWarned, FaultReported, HoldLifted, HoldPlaced, NotificationsGivenUp
from engine.events.learning import TrainingMoved
from engine.events.work import ChangeSetReady, PermissionAsked, PredictionCreated, SessionOutput
from tests.console import stand_in_data
from tests.console.driving import read_screen, running, until, until_shown
from tests.console.stand_in import StandIn
from tests.console.stories import Until, carry_out, press
from tests.support.sessions import make_session_ended


async def test_many_events_at_once_are_a_few_messages_and_each_toast_comes_in_order():
    bus = EventBus()
    posted = list[EngineChanged]()
    toasts = list[str]()
    last = asyncio.Event()

    def post(message: EngineChanged):
        posted.append(message)
        toasts.extend(event.subject for event in message.toast_events)
        if len(toasts) == 3:
            last.set()

    bridge = Bridge(bus, post)

    def publish_many():
        for number in range(500):
            bus.publish(SessionOutput(subject="sess_1", last_line=number, text="x"))
            bus.publish(PredictionCreated(subject="p", flow="", channel="", confidence=0.0, source="template"))

    began = time.monotonic()
    await asyncio.gather(*(asyncio.to_thread(publish_many) for _ in range(4)))
    for subject in ("s0", "s1", "s2"):
        bus.publish(make_session_ended(subject, "failed"))
    await asyncio.wait_for(last.wait(), 10)
    assert toasts == ["s0", "s1", "s2"]
    max_messages = (time.monotonic() - began) / BATCH_INTERVAL_S + 2
    assert 1 <= len(posted) <= max_messages
    assert {session for message in posted for session in message.sessions} == {"sess_1"}
    assert {"cards", "sessions"} <= {topic for message in posted for topic in message.topics}
    bridge.close()


def test_a_session_that_ends_with_changes_has_one_toast():
    ready = ChangeSetReady(subject="change_1", session_id="s", files=2)
    ended = make_session_ended("s", summary="tidied")
    other = ChangeSetReady(subject="change_2", session_id="other", files=1)
    texts = [(item.text, item.severity) for item in make_toasts([ready, other, ended])]
    toast = ("Done: tidied · 2 changed files to land", "warning")
    assert texts == [("1 changed file to land", "warning"), toast]
    late = [item.text for item in make_toasts([ended, ready])]
    assert late == [toast[0]], "also if the changes of a session that was ended come after its end"
    [stopped] = make_toasts([ready, make_session_ended("s", "cancelled", summary="stopped by you")])
    assert (stopped.about, stopped.screen) == ("stop", "work"), "it takes the place of the toast about the stop"


TOASTS: dict[Event, Toast | None] = {
    make_session_ended("s", summary="all green"): Toast("Done: all green", "information"),
    make_session_ended("s", summary="1 red", result="failed"): Toast("Problem found: 1 red", "warning"),
    make_session_ended("s", "failed", summary="no disk"): Toast("Failed: no disk", "error"),
    make_session_ended("s", summary="no tool", result="cannot_run"): Toast("Could not run: no tool", "warning"),
    make_session_ended("s", "cancelled", summary="stopped by you"): Toast("Stopped by you", "warning", about="stop"),
    ChangeSetReady(subject="c", session_id="s", files=1, workspace="/shop"): Toast(
        "1 changed file to land", "warning", workspace="/shop", screen="work"
    ),
    ChangeSetReady(subject="c", session_id="s", files=3, refused=1): Toast(
        "2 changed files to land, 1 file that cannot be landed", "warning", screen="work"
    ),
    PermissionAsked(subject="p", session_id="s", tool="exec", title="run x"): Toast(
        "Permission needed: run x", "warning", screen="work"
    ),
    FaultReported(where="memory", message="the index is gone"): Toast("memory: the index is gone", "error"),
    NotificationsGivenUp(subject="phone", number=2, reason="no network"): Toast(
        "2 notifications not delivered to the phone: no network", "warning"
    ),
    CostWarned(subject="day", window="day", spent=1_700_000, cap=2_000_000): Toast(
        "cost: 85 % of the day cap ($1.70 of $2.00)", "warning"
    ),
    HoldPlaced(subject="pause", reason="3 dismissals"): Toast("pause: 3 dismissals", "warning", about="pause"),
    HoldLifted(subject="pause", reason="by you"): Toast("The pause ended.", "information", about="pause", alerts=False),
    TrainingMoved(subject="t", state="adopted", note="81 %"): Toast(
        "training: the new model is now used; 81 %", "information", screen="insights"
    ),
    TrainingMoved(subject="t", state="kept_old", note="60 %"): Toast(
        "training: the new model is not used; 60 %", "warning", screen="insights"
    ),
    TrainingMoved(subject="t", state="running", note=""): None,
}
"""The toast about each sort of event."""


@pytest.mark.parametrize(
    "event, toast", TOASTS.items(), ids=[f"{event.kind}-{number}" for number, event in enumerate(TOASTS)]
)
def test_each_sort_of_event_has_its_toast(event: Event, toast: Toast | None):
    assert list(make_toasts([event])) == ([toast] if toast is not None else [])


@pytest.mark.long
async def test_an_event_updates_the_screen_and_rings_without_the_focus(
    console: ConsoleApp, engine: StandIn, monkeypatch: pytest.MonkeyPatch
):
    alerts = []
    monkeypatch.setattr(type(console), "notify_in_terminal", lambda app, text: alerts.append(text))
    monkeypatch.setattr(type(console), "bell", lambda self: alerts.append("bell"))
    async with running(console, size=(120, 60), notifications=True) as pilot:
        engine.cards.all["pred_new"] = stand_in_data.make_card(77, "Something new on the horizon")
        engine.bus.publish(
            PredictionCreated(subject="pred_new", flow="", channel="", confidence=0.5, source="template")
        )
        await until_shown(pilot, "Something new")
        engine.bus.publish(make_session_ended(summary="all green"))
        await until_shown(pilot, "Done: all green")
        assert alerts == []
        console.app_focus = False
        engine.bus.publish(make_session_ended(state="failed", summary="2 red"))
        await until(pilot, lambda: alerts == ["bell", "clawpy: Failed: 2 red"])


def test_the_topics_of_events_are_those_of_the_screens():
    topics = {topic for kind in Event.kinds.values() for topic in kind.topics}
    assert topics <= {*TOPICS, "training"}, "the insights screen reads trainings itself"


async def test_a_failing_topic_leaves_the_others(console: ConsoleApp, engine: StandIn):
    def broken():
        raise RuntimeError("no such table: agents")

    engine.agents.list_agents = broken
    async with running(console, notifications=True) as pilot:
        assert console.state.cards
        assert console.state.tasks
        await until_shown(pilot, "no such table")


@pytest.mark.long
@pytest.mark.parametrize("name", ["cards", "work"])
async def test_long_toasts_on_a_low_terminal_keep_their_beginning_and_all_messages_can_be_read_in_full(
    console: ConsoleApp, name: str
):
    console.NOTIFICATION_TIMEOUT = 60
    async with running(console, size=(80, 24), notifications=True) as pilot:

        def sees_on_screen(*texts: str) -> Until:
            return Until(f"{texts}", lambda app: all(text in read_screen(app) for text in texts))

        await carry_out(pilot, *([] if name == "cards" else [press("2")]))
        console.show_toast(f"first fault: {'and more of it ' * 25}end_of_first")
        await carry_out(pilot, sees_on_screen("first fault: and"))
        console.show_toast(f"second fault: {'and more of it ' * 25}end_of_second")
        await carry_out(pilot, sees_on_screen("first fault: and", "second fault: and"))
        await carry_out(pilot, press("M"), sees_on_screen("Messages", "end_of_second", "close"))
        await carry_out(pilot, press("end"), sees_on_screen("end_of_first"))
