"""The table of SPEC 10.2: which kind of event reaches which surface, in which form, and how urgent it is."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from pydantic.alias_generators import to_camel

from engine.config import Settings
from engine.config.notify import Surface


class NotificationKind(StrEnum):
    """The seven kinds of event that are notified, with the names of SPEC 10.2."""

    NEW_MEDIUM = "new card, medium"
    NEW_HIGH = "new card, high"
    ACTED = "auto-executed"
    COMPLETED = "completed"
    FAILED = "failed"
    COST = "cost near cap"
    PAUSED = "paused"


class Form(StrEnum):
    """The appearance of a notification."""

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
    """The timing of a notification: low ones are collected, urgent ones ignore quiet hours."""

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


FORMS: Mapping[NotificationKind, Mapping[Surface, Form]] = {
    #                          phone, web, desktop   watch         glasses      discord
    NotificationKind.NEW_MEDIUM: _row(Form.CARD, Form.BADGE, None, None),
    NotificationKind.NEW_HIGH: _row(Form.CARD, Form.HAPTIC_BADGE, Form.SPOKEN, Form.EMBED),
    NotificationKind.ACTED: _row(Form.SILENT, Form.REFRESH, None, Form.TICK),
    NotificationKind.COMPLETED: _row(Form.BANNER, Form.HAPTIC, Form.SPOKEN, Form.RESULT),
    NotificationKind.FAILED: _row(Form.BANNER, Form.HAPTIC, None, Form.CROSS),
    NotificationKind.COST: _row(Form.BANNER, None, None, None),
    NotificationKind.PAUSED: _row(Form.BANNER, Form.PAUSE, None, Form.STATUS),
}

URGENCY: Mapping[NotificationKind, Urgency] = {
    NotificationKind.NEW_MEDIUM: Urgency.LOW,
    NotificationKind.NEW_HIGH: Urgency.NORMAL,
    NotificationKind.ACTED: Urgency.LOW,
    NotificationKind.COMPLETED: Urgency.NORMAL,
    NotificationKind.FAILED: Urgency.NORMAL,
    NotificationKind.COST: Urgency.URGENT,
    NotificationKind.PAUSED: Urgency.URGENT,
}


_PUSH_SETTING = "push_notifications_enabled"
_SETTINGS = {Surface.WATCH: "watch_complications_enabled", Surface.GLASSES: "glasses_alerts_enabled"}


def setting_of(surface: Surface) -> str:
    """The setting that switches a surface on or off (SPEC 7.4), as it is written in the file."""
    return to_camel(_SETTINGS.get(surface, _PUSH_SETTING))


def is_switched_on(surface: Surface, settings: Settings) -> bool:
    """Whether the settings switch a surface on (SPEC 7.4)."""
    return bool(getattr(settings, _SETTINGS.get(surface, _PUSH_SETTING)))
