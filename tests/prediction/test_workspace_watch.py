"""Workspaces are checked some seconds after their files change (SPEC 2.9). Files and git are real."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from engine.clock import FakeClock
from engine.prediction import workspace_watch
from engine.prediction.workspace_watch import SETTLE_TIME, ChangedWorkspaces, WorkspaceWatch
from tests.support import MONDAY_MORNING
from tests.support.checks import wait_until
from tests.support.repository import Repository

INSTANT = timedelta(microseconds=1)


class Watched:
    """A watch over these repositories, and the workspaces that it checked."""

    def __init__(self, clock: FakeClock, *paths: Path):
        self.clock = clock
        self.workspaces = [str(path) for path in paths]
        self.checked: list[str] = []
        self.reports: list[str] = []
        self.watch = WorkspaceWatch(
            clock,
            list_workspaces=lambda: self.workspaces,
            check_workspaces=self.checked.extend,
            report=lambda subject, text: self.reports.append(f"{subject}: {text}"),
        )

    def check_after(self, change: Callable[[], object]) -> list[str]:
        """The workspaces that are checked after `change`, each once: a change may be noticed in two parts."""
        wait_until(self.watch.began.is_set)
        self.checked.clear()
        change()

        def is_checked() -> bool:
            self.clock.advance(SETTLE_TIME)
            return bool(self.checked)

        wait_until(is_checked)
        return list(dict.fromkeys(self.checked))


@pytest.fixture
def watch_over(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Watched]]:
    """Starts watches, and closes them at the end."""
    monkeypatch.setattr(workspace_watch, "POLL_MS", 20)
    started = []

    def start(*paths: Path) -> Watched:
        started.append(Watched(clock, *paths))
        started[-1].watch.start()
        return started[-1]

    yield start
    for watched in started:
        watched.watch.close()
        assert watched.reports == []


@pytest.fixture
def shop(tmp_path: Path) -> Repository:
    repository = Repository(tmp_path / "shop")
    repository.commit("Begin", {"src/cart.py": "TOTAL = 0\n", ".gitignore": "*.log\nbuild/\n"})
    return repository


def test_a_workspace_is_due_five_seconds_after_its_last_change():
    changed = ChangedWorkspaces()
    changed.add("shop", MONDAY_MORNING)
    changed.add("shop", last := MONDAY_MORNING + timedelta(seconds=3))
    assert changed.take_due(last + timedelta(seconds=5) - INSTANT) == []
    assert changed.take_due(last + timedelta(seconds=5)) == ["shop"]
    assert changed.take_due(last + timedelta(hours=1)) == []


def test_a_workspace_that_keeps_changing_is_due_a_minute_after_its_first_change():
    changed = ChangedWorkspaces()
    now = MONDAY_MORNING
    while now - MONDAY_MORNING < timedelta(seconds=60):
        changed.add("shop", now)
        assert changed.take_due(now) == []
        now += timedelta(seconds=4)
    changed.add("shop", now)
    assert changed.take_due(now) == ["shop"]


def test_a_changed_a_staged_and_a_committed_file_are_noticed(watch_over: Callable[..., Watched], shop: Repository):
    watched = watch_over(shop.path)
    cart = shop.path / "src" / "cart.py"
    assert watched.check_after(lambda: cart.write_text("TOTAL = 1\n")) == [str(shop.path)]
    assert watched.check_after(lambda: shop.git("add", "src/cart.py")) == [str(shop.path)]
    assert watched.check_after(lambda: shop.git("commit", "-qm", "Count")) == [str(shop.path)]
    assert watched.check_after(lambda: shop.git("branch", "fix")) == [str(shop.path)]


def test_only_the_workspace_that_changed_is_checked_and_ignored_files_are_no_change(
    watch_over: Callable[..., Watched], shop: Repository, tmp_path: Path
):
    site = Repository(tmp_path / "site")
    site.commit("Begin", {"index.html": "<p>\n"})
    watched = watch_over(shop.path, site.path)

    def change():
        (shop.path / "src" / "server.log").write_text("started\n")
        (shop.path / "build").mkdir()
        (site.path / "index.html").write_text("<p>hello\n")

    assert watched.check_after(change) == [str(site.path)]


def test_a_workspace_that_is_added_or_moved_away_is_noticed(
    watch_over: Callable[..., Watched], shop: Repository, tmp_path: Path
):
    watched = watch_over()
    watched.workspaces.append(str(shop.path))
    assert watched.check_after(lambda: (shop.path / "src" / "cart.py").write_text("TOTAL = 1\n")) == [str(shop.path)]
    assert watched.check_after(lambda: shop.path.rename(tmp_path / "elsewhere")) == [str(shop.path)]
