"""Fixtures of the tests of the console: an app over the stand-in engine, in its own home, at a fixed time in UTC."""

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pytest_textual_snapshot import SVGImageExtension
from textual._styles_cache import StylesCache

from clawpy_console.app import ConsoleApp
from engine.home import Home
from tests.console import fast_textual
from tests.console.driving import make_console
from tests.console.snapshots import make_comparison
from tests.console.stand_in import StandIn
from tests.console.stand_in_organisation import serve_organisation, write_organisation
from tests.hierarchy.guidance_world import Organisation

SVGImageExtension.file_extension = "svg"  # syrupy 7 renamed it


@pytest.fixture(scope="package", autouse=True)
def _fast_textual() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        fast_textual.apply_all(patch)
        yield


@pytest.fixture(autouse=True)
def _forget_drawn_widgets() -> Iterator[None]:
    """Empty a cache of Textual that keeps what the last thousand widgets drew: it slows garbage collections down."""
    yield
    StylesCache.get_inner_outer.cache_clear()


@pytest.fixture(autouse=True)
def _plain_terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("TMUX", raising=False)
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def frames_at_60_hz(monkeypatch: pytest.MonkeyPatch):
    """Draw frames as in a terminal, for tests of the event loop."""
    monkeypatch.setattr("textual.screen.UPDATE_PERIOD", 1 / 60)


@pytest.fixture
def engine() -> StandIn:
    return StandIn()


@pytest.fixture
def console(home: Home, engine: StandIn) -> ConsoleApp:
    """The app over the stand-in engine. Run it with `async with console.run_test() as pilot`."""
    return make_console(home, lambda: engine)


@pytest.fixture
def plain_console(console: ConsoleApp, monkeypatch: pytest.MonkeyPatch) -> ConsoleApp:
    """The same on a terminal without colours."""
    monkeypatch.setenv("NO_COLOR", "1")
    return make_console(console.home, console._open_engine)


@pytest.fixture
def compare_snapshot(snap_compare: Callable[..., bool]) -> object:
    """See `tests.console.snapshots.CompareSnapshot`."""
    return make_comparison(snap_compare)


@pytest.fixture(scope="package")
def organisation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders of the agents, which each test copies."""
    folder = tmp_path_factory.mktemp("world")
    write_organisation(folder)
    return folder


@pytest.fixture
def world(engine: StandIn, organisation: Path, tmp_path: Path) -> Iterator[Organisation]:
    """The real services of the hierarchy, which the stand-in engine gets."""
    folder = shutil.copytree(organisation, tmp_path / "people")
    world = serve_organisation(engine, folder)
    yield world
    world.database.close()
