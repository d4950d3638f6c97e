"""SPEC 10.2, cell by cell: seven happenings, six surfaces."""

from __future__ import annotations

import pytest

from engine.api.notify.forms import FORMS, Form, NotificationKind, is_switched_on
from engine.config import Settings
from engine.config.notify import Surface

H, S, F = NotificationKind, Surface, Form

TABLE = """
new card, medium | banner + card | badge          | –      | –
new card, high   | banner + card | haptic + badge | spoken | embed
auto-executed    | silent        | refresh        | –      | ✅
completed        | banner        | haptic         | spoken | result
failed           | banner        | haptic         | –      | ❌
cost near cap    | banner        | –              | –      | –
paused           | banner        | ⏸              | –      | status
"""

CELLS = [
    (row[0], surface, row[column])
    for line in TABLE.strip().splitlines()
    for row in [[cell.strip() for cell in line.split("|")]]
    for surface, column in (("phone", 1), ("web", 1), ("desktop", 1), ("watch", 2), ("glasses", 3), ("discord", 4))
]


@pytest.mark.parametrize(("happening", "surface", "form"), CELLS)
def test_a_cell(happening: str, surface: str, form: str) -> None:
    found = FORMS[NotificationKind(happening)].get(Surface(surface))
    assert found is (None if form == "–" else Form(form))


def test_the_table_is_whole() -> None:
    assert {(happening, surface) for happening, surface, _ in CELLS} == {(h.value, s.value) for h in H for s in S}
    assert set(FORMS) == set(NotificationKind)


@pytest.mark.parametrize("surface", list(Surface))
def test_the_flags(surface: Surface) -> None:
    """SPEC 7.4: pushes and complications unless switched off, glasses only when switched on."""
    assert is_switched_on(surface, Settings()) is (surface is not S.GLASSES)
    assert is_switched_on(surface, Settings(glasses_alerts_enabled=True))
    off = Settings(push_notifications_enabled=False)
    assert is_switched_on(surface, off) is (surface is S.WATCH)
    assert is_switched_on(surface, Settings(watch_complications_enabled=False)) is (surface not in (S.WATCH, S.GLASSES))
