"""Events about the engine: its start, end and state, settings, workspaces, gateway, notifications, deleted rows and
faults; and what its rails decided: blocks, permits, loops, costs and holds (SPEC 3, 7, 10)."""

from __future__ import annotations

from collections.abc import Mapping

from engine.events.event import Event
from engine.model.text import because, count, money


class EngineStarted(Event):
    """The engine started. `recovered` lists in words what a crash had left unfinished."""

    version: str
    recovered: tuple[str, ...] = ()

    def sentence(self) -> str:
        return "; ".join([f"engine {self.version} started", *self.recovered])


class EngineStopped(Event):
    """The engine ended without a crash."""


class StateChanged(Event, topics="autonomy"):
    """The state of SPEC 7.1 changed."""

    before: str
    after: str
    cause: str

    def sentence(self) -> str:
        return f"{self.before} → {self.after}: {self.cause}"


class SettingChanged(Event, topics="settings autonomy costs phase"):
    """A setting changed. `subject` is its key, or "dnd" for do not disturb."""

    value: str

    def sentence(self) -> str:
        if self.subject == "dnd":
            return "do not disturb ended" if self.value == "off" else f"do not disturb until {self.value}"
        return f"setting {self.subject} is now {self.value or 'empty'}"


class WorkspaceAdded(Event, topics="place settings autonomy"):
    """A console was opened in a repository (`subject`), which the engine watches until it ends."""

    def sentence(self) -> str:
        return f"{self.subject} is looked after too"


class GatewayOpened(Event, topics="place"):
    """The gateway listens at an address (`subject`). `words` say who can reach it and where its token comes from."""

    words: str

    def sentence(self) -> str:
        return f"listening at {self.subject} ({self.words})"


class GatewayClosed(Event, topics="place"):
    """The gateway no longer listens at an address (`subject`)."""

    def sentence(self) -> str:
        return f"no longer listening at {self.subject}"


class NotificationsGivenUp(Event, topics="changes"):
    """Notifications for a surface (`subject`) were not delivered, and are not tried again (SPEC 10.2)."""

    number: int
    reason: str

    def sentence(self) -> str:
        return f"{count(self.number, 'notification')} to your {self.subject} not delivered{because(self.reason)}"


class FaultReported(Event, topics="settings"):
    """A fault that does not stop work was reported. `message` says what is wrong and how to fix it."""

    where: str
    message: str

    def sentence(self) -> str:
        return f"fault in {self.where}: {self.message}"


class RowsLetGo(Event):
    """Rows older than the settings allow were deleted; `rows` has their number by table. Their sums by day stay
    (SPEC 4.2)."""

    rows: Mapping[str, int]

    def sentence(self) -> str:
        removed = [f"{number:,} {table.replace('_', ' ')}" for table, number in self.rows.items()]
        return f"deleted by age: {', '.join(removed) or 'nothing'}"


class TriggerBlocked(Event, topics="cards log"):
    """A rail did not allow a card (`subject`) to run."""

    rail: str
    verdict: str
    reason: str

    def sentence(self) -> str:
        return f"blocked by {self.rail}: {self.subject}, {self.reason}"


class PermitIssued(Event, topics="log"):
    """All rails allowed a card; `digest` is that of its assignment (SPEC 3.1)."""

    prediction_id: str
    digest: str


class LoopDetected(Event, topics="log"):
    """Channels started each other in a loop (SPEC 3.3)."""

    reason: str

    def sentence(self) -> str:
        return f"loop: {self.reason}"


class CostReserved(Event, topics="costs"):
    """`amount` micro-dollars were reserved for work on a channel (SPEC 3.4)."""

    amount: int
    channel: str


class CostSettled(Event, topics="costs"):
    """A reservation was settled with a price of `amount` micro-dollars."""

    amount: int
    channel: str


class CostWarned(Event, topics="costs"):
    """The spending in a window passed 80 % of its cap, or reached the cap."""

    window: str
    spent: int
    cap: int

    def sentence(self) -> str:
        return f"cost: {money(self.spent)} of {money(self.cap)} this {self.window}"


class BudgetExceeded(Event):
    """An agent (`subject`) passed, or would have passed, its own budget of the day (SPEC 3.4)."""

    spent: int
    budget: int

    def sentence(self) -> str:
        return f"budget of {self.subject}: {money(self.spent)} of {money(self.budget)}"


class HoldPlaced(Event, topics="costs autonomy"):
    """A hold was placed. `subject` is its word: "stop", "pause" or "month" (SPEC 3.7)."""

    reason: str

    def sentence(self) -> str:
        return f"{self.subject}: {self.reason}"


class HoldLifted(Event, topics="costs autonomy"):
    """A hold ended. `subject` is its word (SPEC 3.7)."""

    reason: str

    def sentence(self) -> str:
        return f"the {self.subject} ended: {self.reason}"
