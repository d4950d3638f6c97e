"""Which event reaches which surface, and in which form (SPEC 10.2), as a table."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from engine.config import Settings
from engine.config.notify import Surface


class Happening(StrEnum):
    """The seven kinds of event that are notified."""

    NEW_MEDIUM = "new card, medium"
    NEW_HIGH = "new card, high"
    ACTED = "auto-executed"
    COMPLETED = "completed"
    FAILED = "failed"
    COST = "cost near cap"
    PAUSED = "paused"


class Form(StrEnum):
    """How a notification appears."""

    CARD = "banner + card"  # with approve, reject, snooze
    BANNER = "banner"
    SILENT = "silent"  # it is there, and nothing rings
    BADGE = "badge"  # the number alone: nothing rings or taps
    HAPTIC = "haptic"  # a tap that tells success from failure
    HAPTIC_BADGE = "haptic + badge"
    REFRESH = "refresh"
    PAUSE = "⏸"
    SPOKEN = "spoken"
    EMBED = "embed"
    TICK = "✅"
    CROSS = "❌"
    RESULT = "result"
    STATUS = "status"


class Urgency(StrEnum):
    """How a notification is timed: low ones are collected, urgent ones ignore quiet hours."""

    LOW = "low"
    NORMAL = "normal"
    URGENT = "urgent"


def _row(screen: Form, watch: Form | None, glasses: Form | None, discord: Form | None) -> Mapping[Surface, Form]:
    """A row of the table; web and desktop are like the phone."""
    forms = {
        Surface.PHONE: screen,
        Surface.WATCH: watch,
        Surface.GLASSES: glasses,
        Surface.DISCORD: discord,
        Surface.WEB: screen,
        Surface.DESKTOP: screen,
    }
    return {surface: form for surface, form in forms.items() if form is not None}


MATRIX: Mapping[Happening, Mapping[Surface, Form]] = {
    #                          phone, web, desktop   watch         glasses      discord
    Happening.NEW_MEDIUM: _row(Form.CARD, Form.BADGE, None, None),
    Happening.NEW_HIGH: _row(Form.CARD, Form.HAPTIC_BADGE, Form.SPOKEN, Form.EMBED),
    Happening.ACTED: _row(Form.SILENT, Form.REFRESH, None, Form.TICK),
    Happening.COMPLETED: _row(Form.BANNER, Form.HAPTIC, Form.SPOKEN, Form.RESULT),
    Happening.FAILED: _row(Form.BANNER, Form.HAPTIC, None, Form.CROSS),
    Happening.COST: _row(Form.BANNER, None, None, None),
    Happening.PAUSED: _row(Form.BANNER, Form.PAUSE, None, Form.STATUS),
}

URGENCY: Mapping[Happening, Urgency] = {
    Happening.NEW_MEDIUM: Urgency.LOW,
    Happening.NEW_HIGH: Urgency.NORMAL,
    Happening.ACTED: Urgency.LOW,
    Happening.COMPLETED: Urgency.NORMAL,
    Happening.FAILED: Urgency.NORMAL,
    Happening.COST: Urgency.URGENT,
    Happening.PAUSED: Urgency.URGENT,
}


def form_of(happening: Happening, surface: Surface) -> Form | None:
    """The form of an event on a surface, None when it is not sent there."""
    return MATRIX[happening].get(surface)


def is_allowed(surface: Surface, settings: Settings) -> bool:
    """Whether the flags of SPEC 7.4 allow notifications on a surface."""
    if surface is Surface.WATCH:
        return settings.watch_complications_enabled
    if surface is Surface.GLASSES:
        return settings.glasses_alerts_enabled
    return settings.push_notifications_enabled
