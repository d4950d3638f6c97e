"""Events about the engine, its rails and its agents (SPEC 1, 3, 7, 10): its start, end, settings, gateway,
notifications and faults, the exchange with other machines, what a rail decided, and who reports to whom."""

from __future__ import annotations

from collections.abc import Mapping

from engine.events import Event
from engine.model.rails import split_reasons
from engine.wording import because, count, describe_first, money

# -- the engine


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

    template = "{before} → {after}: {cause}"


class SettingChanged(Event, topics="settings autonomy costs phase place"):
    """A setting changed. `subject` is its key, or "dnd" for do not disturb."""

    value: str

    def sentence(self) -> str:
        if self.subject == "dnd":
            return "do not disturb ended" if self.value == "off" else f"do not disturb until {self.value}"
        return f"setting {self.subject} is now {self.value or 'empty'}"


class WorkspaceAdded(Event, topics="place settings autonomy"):
    """A console was opened in a repository (`subject`), which the engine watches until it ends."""

    template = "{subject} is looked after too"


class GatewayOpened(Event, topics="place"):
    """The gateway listens at an address (`subject`). `words` say who can reach it and where its token comes from."""

    words: str

    template = "listening at {subject} ({words})"


class GatewayClosed(Event, topics="place"):
    """The gateway no longer listens at an address (`subject`)."""

    template = "no longer listening at {subject}"


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

    template = "fault in {where}: {message}"


class CloudSyncFailed(Event):
    """An exchange with the shared database failed (SPEC 1.8, 1.9, 4.5). `subject` is "leadership" or "summaries";
    `unsent` rows wait."""

    message: str
    unsent: int

    template = "{subject} not shared with other machines: {message}; {unsent} unsent"


class RowsLetGo(Event):
    """Rows older than the settings allow were deleted; `rows` has their number by table. Their sums by day stay
    (SPEC 4.2)."""

    rows: Mapping[str, int]

    def sentence(self) -> str:
        removed = [f"{number:,} {table.replace('_', ' ')}" for table, number in self.rows.items()]
        return f"deleted by age: {', '.join(removed) or 'nothing'}"


# -- rails


class TriggerBlocked(Event, topics="cards log"):
    """A rail did not allow a card (`subject`) to run."""

    rail: str
    verdict: str
    reason: str

    def sentence(self) -> str:
        return f"blocked by {self.rail}: {self.subject}, {describe_first(split_reasons(self.reason))}"


class PermitIssued(Event, topics="log"):
    """All rails allowed a card; `digest` is that of its assignment (SPEC 3.1)."""

    prediction_id: str
    digest: str


class LoopDetected(Event, topics="log"):
    """Channels started each other in a loop (SPEC 3.3)."""

    reason: str

    template = "loop: {reason}"


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

    template = "{subject}: {reason}"


class HoldLifted(Event, topics="costs autonomy"):
    """A hold ended. `subject` is its word (SPEC 3.7)."""

    reason: str

    template = "the {subject} ended: {reason}"


# -- agents


class AgentAdded(Event, topics="agents"):
    """An agent (`subject`) got a folder and a leader, "" for none."""

    reports_to: str

    def sentence(self) -> str:
        return f"{self.subject} was added under {self.reports_to or 'nobody'}"


class AgentMoved(Event, topics="agents"):
    """An agent has another leader, "" for none."""

    before: str
    after: str

    def sentence(self) -> str:
        return f"{self.subject} moved from {self.before or 'nobody'} to {self.after or 'nobody'}"


class AgentRetired(Event, topics="agents"):
    """An agent was retired. It does no more work; its folder stays."""

    template = "{subject} was retired"


class AgentFileChanged(Event, topics="agents memory"):
    """A file of an agent (`subject`) was edited (SPEC 4.1). `file` is "" if a folder without such files was added or
    removed. `how` is "in the console", "by the engine", or "on disk" for another program."""

    file: str
    how: str

    def sentence(self) -> str:
        if not self.file:
            return f"the folder of agent {self.subject} was added or removed {self.how}"
        return f"{self.file} of {self.subject} was edited {self.how}"


class TierAssigned(Event, topics="agents"):
    """The operator set the tier of an agent; None lets the rules decide again (SPEC 1.2)."""

    tier: int | None

    def sentence(self) -> str:
        if self.tier is None:
            return f"the rules decide the tier of {self.subject} again"
        return f"you set the tier of {self.subject} to {self.tier}"
