"""What the console's tests share: an app over a still engine, in a home of its own, at a fixed time in UTC."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pytest_textual_snapshot import SVGImageExtension
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet
from textual.pilot import Pilot

from clawpy_console.app import ConsoleApp
from engine.home import Home
from tests.console.stand_in import StandIn
from tests.console.stand_in_data import NOW

SVGImageExtension.file_extension = "svg"  # syrupy 7 renamed it


@pytest.fixture(autouse=True)
def _plain_terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("TMUX", raising=False)
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture(scope="session", autouse=True)
def _style_sheets_are_parsed_once() -> Iterator[None]:
    """The same text with the same variables gives the same rules; Textual forgets them with each app."""
    parse, known = Stylesheet._parse_rules, dict[tuple[Any, ...], list[RuleSet]]()

    def parse_once(self: Stylesheet, *what: Any, **how: Any) -> list[RuleSet]:
        key = (what, *sorted(how.items()), *sorted(self._variables.items()))
        if key not in known:
            known[key] = parse(self, *what, **how)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stylesheet, "_parse_rules", parse_once)
        yield


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home.locate(tmp_path / "home")


@pytest.fixture
def engine() -> StandIn:
    return StandIn()


@pytest.fixture
def console(home: Home, engine: StandIn) -> ConsoleApp:
    """The app over the still engine. Run it with `async with console.run_test() as pilot`."""
    app = ConsoleApp(lambda: engine, home, [], now=lambda: NOW)  # type: ignore[arg-type, return-value]
    app.animation_level = "none"
    return app


async def until(pilot: Pilot, condition: Callable[[], object], what: str = "") -> None:
    """Let the app run until `condition` holds; fails after five seconds."""
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain {what}"
        await pilot.pause(0.01)


async def live(pilot: Pilot) -> None:
    """Until the engine is open and everything was read once."""
    app = pilot.app
    await until(pilot, lambda: app.known.phase and not app._reading, "for the engine")  # type: ignore[attr-defined]
    await pilot.pause()


def screen_text(app: ConsoleApp) -> str:
    """What stands on the screen, as lines of text."""
    return "\n".join("".join(segment.text for segment in strip) for strip in app.screen._compositor.render_strips())
