"""An engine's life, its settings, its doors, and what goes wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from engine.events.event import Event, because, event
from engine.model.text import count


@event
class EngineStarted(Event):
    version: str
    recovered: tuple[str, ...] = ()

    def sentence(self) -> str:
        return "; ".join([f"engine {self.version} started", *self.recovered])


@event
class EngineStopped(Event):
    pass


@event
class StateChanged(Event):
    """The state machine of SPEC 7.1 moved."""

    topics: ClassVar = ("autonomy",)

    before: str
    after: str
    cause: str

    def sentence(self) -> str:
        return f"{self.before} → {self.after}: {self.cause}"


@event
class SettingChanged(Event):
    topics: ClassVar = ("settings", "autonomy", "costs", "phase")
    value: str

    def sentence(self) -> str:
        if self.subject == "dnd":
            return "do not disturb ended" if self.value == "off" else f"do not disturb until {self.value}"
        return f"setting {self.subject} is now {self.value or 'empty'}"


@event
class WorkspaceAdded(Event):
    """A repository (`subject`) is looked after from now on, until the engine ends: a console was opened in it."""

    topics: ClassVar = ("place", "settings", "autonomy")

    def sentence(self) -> str:
        return f"{self.subject} is looked after too"


@event
class GatewayOpened(Event):
    """The gateway listens at an address (`subject`); `words` say who reaches it and where its token comes from."""

    topics: ClassVar = ("place",)

    words: str

    def sentence(self) -> str:
        return f"listening at {self.subject} ({self.words})"


@event
class GatewayClosed(Event):
    """The gateway at an address (`subject`) listens no more."""

    topics: ClassVar = ("place",)

    def sentence(self) -> str:
        return f"no longer listening at {self.subject}"


@event
class NotificationsGivenUp(Event):
    """A number of notifications for a surface (the subject) were not delivered and are tried no further (SPEC 10.2)."""

    topics: ClassVar = ("changes",)

    number: int
    reason: str

    def sentence(self) -> str:
        return f"{count(self.number, 'notification')} to your {self.subject} not delivered{because(self.reason)}"


@event
class FaultReported(Event):
    """Something went wrong that work can go on without: said once, with what, where and how to mend it."""

    topics: ClassVar = ("settings",)

    where: str
    message: str

    def sentence(self) -> str:
        return f"fault in {self.where}: {self.message}"


@event
class RowsLetGo(Event):
    """Rows that were kept for the days of the settings went, so many by table; their sums by day stay (SPEC 4.2)."""

    rows: Mapping[str, int]

    def sentence(self) -> str:
        removed = [f"{number:,} {table.replace('_', ' ')}" for table, number in self.rows.items()]
        return f"deleted by age: {', '.join(removed) or 'nothing'}"
