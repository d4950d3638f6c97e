"""Engine events reach the screen coalesced; the last screen survives a restart, and nothing else of it matters."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest

from clawpy_console import state
from clawpy_console.app import ConsoleApp
from clawpy_console.bridge import BATCH_INTERVAL_S, Bridge, EngineChanged
from clawpy_console.state import TOPICS, AppState, ReadScope, read_topics
from engine.events import Event, EventBus, PredictionCreated, SessionEnded, SessionOutput
from engine.home import Home
from tests.console import stand_in
from tests.console.conftest import running, until, wait_for_text
from tests.console.stand_in import StandIn
from tests.console.stand_in_data import NOW


def test_the_topics_of_events_are_those_of_the_screens() -> None:
    assert {topic for kind in Event.kinds.values() for topic in kind.topics} <= {
        *TOPICS,
        "training",
    }  # the insights screen reads trainings itself


async def test_a_burst_from_many_threads_is_a_handful_of_messages() -> None:
    bus, posted, last = EventBus(), list[EngineChanged](), asyncio.Event()

    def post(message: EngineChanged) -> None:
        posted.append(message)
        if message.toast_events:
            last.set()

    bridge = Bridge(bus, post)

    def burst() -> None:
        for number in range(500):
            bus.publish(SessionOutput(subject="sess_1", last_line=number, text="x"))
            bus.publish(PredictionCreated(subject="p", flow="", channel="", confidence=0.0, source="template"))

    began = time.monotonic()
    await asyncio.gather(*(asyncio.to_thread(burst) for _ in range(4)))
    bus.publish(SessionEnded(subject="s", prediction_id="", state="failed", summary="", cost=0))
    await last.wait()
    each = (time.monotonic() - began) / BATCH_INTERVAL_S + 2
    assert 1 <= len(posted) <= each
    assert {session for message in posted for session in message.sessions} == {"sess_1"}
    assert {"cards", "sessions"} <= {topic for message in posted for topic in message.topics}
    bridge.close()


async def test_after_it_is_closed_nothing_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clawpy_console.bridge.BATCH_INTERVAL_S", 0.0)
    bus, posted = EventBus(), list[EngineChanged]()
    bridge = Bridge(bus, posted.append)
    counts = []
    for turn in range(3):
        if turn == 2:
            bridge.close()
        bus.publish(SessionOutput(subject="sess_1", last_line=turn, text="x"))
        for _ in range(3):
            await asyncio.sleep(0)
        counts.append(len(posted))
    assert counts == [1, 2, 2]


async def test_facts_worth_a_word_come_one_by_one_in_order() -> None:
    bus, posted = EventBus(), asyncio.Queue[EngineChanged]()
    bridge = Bridge(bus, posted.put_nowait)
    for number in range(3):
        bus.publish(SessionEnded(subject=f"s{number}", prediction_id="", state="failed", summary=f"{number}", cost=0))
    told: list[str] = []
    while len(told) < 3:
        message = await asyncio.wait_for(posted.get(), 10)
        told += [event.subject for event in message.toast_events]
    assert told == ["s0", "s1", "s2"]
    bridge.close()


@pytest.mark.long
async def test_an_event_brings_the_screen_up_to_date_and_rings_when_nobody_looks(
    console: ConsoleApp, engine: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr("clawpy_console.app.notify_in_terminal", lambda app, text: said.append(text))
    monkeypatch.setattr(type(console), "bell", lambda self: said.append("bell"))
    async with running(console, size=(120, 60), notifications=True) as pilot:
        engine.cards.all["pred_new"] = stand_in.card(77, "Something new on the horizon")
        engine.bus.publish(
            PredictionCreated(subject="pred_new", flow="", channel="", confidence=0.5, source="template")
        )
        await wait_for_text(pilot, "Something new")
        engine.bus.publish(SessionEnded(subject="s", prediction_id="", state="succeeded", summary="all green", cost=0))
        await wait_for_text(pilot, "Done: all green")
        assert said == []
        console.app_focus = False
        engine.bus.publish(SessionEnded(subject="s", prediction_id="", state="failed", summary="2 red", cost=0))
        await until(pilot, lambda: said == ["bell", "clawpy: Failed: 2 red"])


async def test_one_port_that_fails_takes_away_its_own_part_only(console: ConsoleApp, engine: StandIn) -> None:
    def broken() -> None:
        raise RuntimeError("no such table: agents")

    engine.agents.list = broken
    async with running(console, notifications=True) as pilot:
        assert console.state.cards
        assert console.state.tasks
        await wait_for_text(pilot, "no such table")


def known() -> AppState:
    values, failed = read_topics(StandIn(), TOPICS, ReadScope())  # type: ignore[arg-type]
    assert failed == []
    return AppState(**values)


def test_what_was_known_survives_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "cache" / "last_screen.json"
    screen = state.LastScreen(known(), "clawpy-light", {"work.land": "l"}, False, True, NOW)
    state.save(file, screen)
    again = state.load(file)
    assert again == state.trim(screen)
    assert again.state.cards == known().cards
    assert again.state.sessions == known().sessions
    assert [item.name for item in file.parent.iterdir()] == ["last_screen.json"]


@pytest.mark.parametrize(
    "change",
    [
        lambda text: "",
        lambda text: text[: len(text) // 2],
        lambda text: "[]",
        lambda text: "null",
        lambda text: text.replace(f'"version": {state.VERSION}', '"version": 999'),
        lambda text: text.replace('"status": "pending"', '"status": "levitating"'),
        lambda text: text.replace('"theme"', '"themes"'),
        lambda text: json.dumps(json.loads(text) | {"state": {"cards": "none"}}),
        lambda text: json.dumps(json.loads(text) | {"state": 7}),
        lambda text: "[" * 100_000,
    ],
)
def test_a_bad_cache_counts_as_none(tmp_path: Path, change) -> None:
    file = tmp_path / "last_screen.json"
    state.save(file, state.LastScreen(known()))
    file.write_text(change(file.read_text()))
    assert state.load(file) == state.LastScreen()


@pytest.mark.long
async def test_leaving_keeps_the_screen_and_asks_when_sessions_run(console: ConsoleApp, home: Home) -> None:
    async with running(console, "ctrl+q") as pilot:
        await wait_for_text(pilot, "1 running session")
        await pilot.press("enter", "escape")
        assert len(console.screen_stack) == 1
        await pilot.press("ctrl+q", "Q")
    assert state.load(home.last_screen).state.cards == tuple(stand_in.cards())
