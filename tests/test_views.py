"""The operator's one queue: what is in it, and how each entry leaves it (SPEC 9.3)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from engine import views
from engine.values import ChangeSet, ChangeState, SessionState, SessionView

NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)


@dataclass
class Sessions:
    newest_first: list[SessionView]

    def list(self, *, workspace: str | None = None, limit: int = 50) -> list[SessionView]:
        return self.newest_first[:limit]


class Changes:
    def list(self, *, state: ChangeState | None = None, limit: int = 50) -> list[ChangeSet]:
        change = ChangeSet("change_1", "sess_0", "pred_0", "/shop", ChangeState.WAITING, (), "fix", NOW)
        return [change] if state is ChangeState.WAITING else []


def session(name: str, flow: str | None, state: SessionState, ended_at: datetime = NOW) -> SessionView:
    return SessionView(
        name, "pred_1", "do it", "/shop", "koji-core", "a", "flow", flow, state, "approved", "none", "/shop", ended_at,
        ended_at, ended_at, 0, 0, "",
    )  # fmt: skip


def waiting(*newest_first: SessionView, now: datetime = NOW) -> list[str]:
    return [one.id for one in views.waiting(Changes(), Sessions(list(newest_first)), now)]


def test_the_longest_waiting_first() -> None:
    early = session("sess_1", "lint", SessionState.INTERRUPTED, NOW - timedelta(hours=1))
    assert waiting(early) == ["sess_1", "change_1"]


def test_an_interruption_leaves_when_it_was_run_again_or_after_a_day() -> None:
    cut = session("sess_1", "lint", SessionState.INTERRUPTED)
    other = session("sess_2", "run_tests", SessionState.SUCCEEDED)
    assert "sess_1" in waiting(other, cut)
    assert "sess_1" not in waiting(replace(other, flow="lint"), cut)
    assert "sess_1" in waiting(cut, now=NOW + timedelta(hours=24) - timedelta(microseconds=1))
    assert "sess_1" not in waiting(cut, now=NOW + timedelta(hours=24))
