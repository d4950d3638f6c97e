"""An engine's life, its settings, its doors, and what goes wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.events.event import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStarted(Event):
    version: str
    recovered: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStopped(Event):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChanged(Event):
    """The state machine of SPEC 7.1 moved."""

    before: str
    after: str
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingChanged(Event):
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorActed(Event):
    """The operator did something outside the console: files, index or HEAD moved (SPEC 2.2)."""

    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayOpened(Event):
    """The gateway listens at an address (`subject`); `words` say who reaches it and where its token comes from."""

    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayClosed(Event):
    """The gateway at an address (`subject`) listens no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationsGivenUp(Event):
    """So many notifications for a surface (the subject) were not delivered and are tried no further (SPEC 10.2)."""

    number: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultReported(Event):
    """Something went wrong that work can go on without: said once, with what, where and how to mend it."""

    where: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsLetGo(Event):
    """Rows that were kept for the days of the settings went, so many by table; their sums by day stay (SPEC 4.2)."""

    rows: Mapping[str, int]
