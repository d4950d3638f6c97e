"""What the screens know: one frozen value, read from the engine's ports topic by topic.

Screens draw `AppState` and nothing else. The first frame draws the one that was kept at the last quit; afterwards the
app replaces parts of it as the engine reports that they moved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from clawpy_console import words
from engine.frozen import frozen
from engine.model import (
    AgentView,
    Burn,
    Card,
    ChainStep,
    ChangeSet,
    CostState,
    Hold,
    Layer,
    LayerState,
    LogEntry,
    PermissionRequest,
    RailState,
    SessionState,
    SessionView,
    StopLevel,
    Task,
    Waiting,
)

if TYPE_CHECKING:
    from engine import Engine


@frozen
class QuietHours:
    """QuietHours hours from `start`:00 to `end`:00, and do-not-disturb; `now` says that either is in force."""

    now: bool = False
    start: int = 0
    end: int = 0
    dnd_until: datetime | None = None


@frozen
class Autonomy:
    """The state machine as it stands; `silence` is what it was at `read_at`, which the app fills in."""

    state: str = ""
    cause: str = ""
    since: datetime | None = None
    next_change: datetime | None = None
    next_cycle: datetime | None = None
    silence: float = 0.0
    threshold: float = 1800.0
    read_at: datetime | None = None
    remark: str = ""
    """Why there may be no cards, "" where nothing is to be said."""
    looked: tuple[tuple[str, datetime], ...] = ()
    """When each workspace was looked at last."""

    def silence_at(self, now: datetime) -> timedelta:
        """How long the operator has been silent at `now`."""
        return timedelta(seconds=self.silence) + (now - self.read_at if self.read_at else timedelta())


@frozen
class AppState:
    """Everything a screen may draw. Empty before the first engine ever ran in this home.

    `older` says that there were sessions before these.
    `fault` is what keeps the settings from being read as they stand in their file.
    `served` are channels that a model or an agent serves, each with its name.
    `proposed` and `taught`: there are candidates, and learnings. `used` is what was used so far, see `in_use`.
    `by_itself` says in a line what is still needed before anything runs without the operator; `acts` that nothing is.
    """

    cards: tuple[Card, ...] = ()
    recent: tuple[Card, ...] = ()
    sessions: tuple[SessionView, ...] = ()
    older: bool = False
    changes: tuple[ChangeSet, ...] = ()
    tasks: tuple[Task, ...] = ()
    agents: tuple[AgentView, ...] = ()
    served: tuple[tuple[str, str], ...] = ()
    retired: tuple[AgentView, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    permissions: tuple[PermissionRequest, ...] = ()
    autonomy: Autonomy = Autonomy()
    costs: CostState | None = None
    holds: tuple[Hold, ...] = ()
    log: tuple[LogEntry, ...] = ()
    blocked: tuple[LogEntry, ...] = ()
    rails: tuple[RailState, ...] = ()
    burn: tuple[Burn, ...] = ()
    chain: tuple[ChainStep, ...] = ()
    levels: tuple[StopLevel, ...] = ()
    quiet: QuietHours = QuietHours()
    switches: tuple[tuple[str, bool], ...] = ()
    autonomies: tuple[tuple[str, str], ...] = ()
    workspaces: tuple[str, ...] = ()
    place: str = ""
    gateway: str = ""
    phase: str = ""
    learning: str = ""
    fault: str = ""
    by_itself: str = ""
    acts: bool = False
    layers: tuple[LayerState, ...] = ()
    sandbox: str = ""
    proposed: bool = False
    taught: bool = False
    used: frozenset[str] = frozenset()

    @property
    def running(self) -> tuple[SessionView, ...]:
        """Sessions that are not over, newest first."""
        return tuple(session for session in self.sessions if not session.state.over)

    @property
    def newest_running(self) -> SessionView | None:
        """The session whose output mission control follows: the newest running, else the newest at all."""
        begun = [session for session in self.sessions if session.state is SessionState.RUNNING]
        return begun[0] if begun else (self.sessions[0] if self.sessions else None)

    def asked_by(self, session_id: str) -> tuple[PermissionRequest, ...]:
        """What a session waits to be allowed, longest first."""
        return tuple(request for request in self.permissions if request.session_id == session_id)

    def change_of(self, session: SessionView) -> ChangeSet | None:
        """The change set of `session`, if it left one."""
        return next((change for change in self.changes if change.session_id == session.id), None)


def in_use(state: AppState) -> frozenset[str]:
    """What is not used yet stays out of sight: of the screens besides mission and work those that have something to
    show, and "costs" when something has cost or may cost money. Nothing that was used once goes out of sight again.

    Files of agents and the event log are there from the first start, so these layers of memory do not count."""
    costs = state.costs
    shown = {
        "hierarchy": state.served or any(agent.tokens or agent.used or agent.broken for agent in state.agents),
        "memory": any(layer.count for layer in state.layers if layer.layer not in (Layer.MARKDOWN, Layer.LEDGER)),
        "learning": state.proposed or state.taught,
        "safety": state.blocked or state.holds,
        "insights": any(card.decided_at for card in state.recent),
        "costs": state.served or (costs is not None and costs.month),
    }
    return state.used | {name for name, used in shown.items() if used}


NEWEST = 60
"""Sessions, and what they changed, that are read at first; as many more whenever the operator asks for older ones."""


@frozen
class ReadScope:
    """What a console wants to know: so many of the newest sessions, and changes of theirs; `workspace` comes first."""

    newest: int = NEWEST
    workspace: str = ""


def _sessions(engine: Engine, scope: ReadScope) -> dict[str, Any]:
    found = engine.sessions.list(limit=scope.newest + 1)
    return {"sessions": found[: scope.newest], "older": len(found) > scope.newest}


def _autonomy(engine: Engine, _: ReadScope) -> dict[str, Any]:
    view = engine.autonomy.state()
    return {
        "autonomy": Autonomy(
            state=str(view.state),
            cause=view.cause,
            since=view.since,
            next_change=view.next_change,
            next_cycle=engine.autonomy.next_cycle(),
            silence=engine.autonomy.silence().total_seconds(),
            threshold=engine.settings.current.silence_threshold_ms / 1000,
            remark=next(
                (f"{words.workspace_name(remark)}: {said}" for remark, said in engine.predictions.remarks().items()), ""
            ),
            looked=tuple(sorted(engine.predictions.last_checked().items())),
        )
    }


def _rails(engine: Engine, _: ReadScope) -> dict[str, Any]:
    current, autonomy = engine.settings.current, engine.autonomy
    return {
        "rails": engine.safety.rails(),
        "burn": engine.safety.costs.history(),
        "chain": engine.safety.chain(limit=30),
        "levels": engine.safety.levels(),
        "quiet": QuietHours(autonomy.quiet(), current.quiet_hours_start, current.quiet_hours_end, autonomy.dnd_until()),
    }


SWITCHES = {
    "crossPollEnabled": "cross_poll_enabled",
    "autonomousModeEnabled": "autonomous_mode_enabled",
    "twinModelEnabled": "twin_model_enabled",
    "dpoExportEnabled": "dpo_export_enabled",
}
"""Settings that the safety screen shows as switches, by the name in the file."""


def _settings(engine: Engine, _: ReadScope) -> dict[str, Any]:
    current = engine.settings.current
    places = dict.fromkeys([*map(str, engine.workspaces), *current.workspaces])
    return {
        "autonomies": tuple((place, str(current.workspace(place).autonomy)) for place in places),
        "switches": tuple((name, bool(getattr(current, attribute))) for name, attribute in SWITCHES.items()),
        "fault": engine.settings.fault,
        "served": tuple((channel, by) for channel in current.channels if (by := engine.agent_setup.served(channel))),
        "sandbox": _sandbox(engine),
    }


def _sandbox(engine: Engine) -> str:
    """What confines sessions here, and where the settings let work run without it."""
    sandbox = engine.sessions.sandbox
    said = sandbox.describe(network=False)
    if sandbox.confines:
        return said
    waived = [place for place, workspace in engine.settings.current.workspaces.items() if workspace.without_sandbox]
    how = "you confirm each approval, and nothing runs by itself; install bubblewrap to get a sandbox"
    return f"{said}: {how}" + (f"; no confirmation needed in {', '.join(waived)}" if waived else "")


def _place(engine: Engine, scope: ReadScope) -> dict[str, Any]:
    workspaces = sorted(engine.workspaces, key=lambda workspace: workspace != scope.workspace)
    return {
        "workspaces": workspaces,
        "place": engine.place(workspaces[0]) if workspaces else "",
        "gateway": engine.gateway.state().url,
    }


def _phase(engine: Engine, _: ReadScope) -> dict[str, Any]:
    phase = engine.predictions.phase()
    earned = engine.autonomy.earning(engine.workspaces)
    return {
        "phase": f"phase {phase.number}: {phase.reason}",
        "learning": phase.learning,
        "by_itself": "" if earned is None else earned.words,
        "acts": earned is not None and not earned.missing,
    }


TOPICS: Mapping[str, Callable[[Engine, ReadScope], dict[str, Any]]] = {
    "cards": lambda engine, _: {"cards": engine.cards.pending(), "recent": engine.cards.recent(limit=30)},
    "permissions": lambda engine, _: {"permissions": engine.permissions.waiting(), "waiting": engine.queue()},
    "autonomy": _autonomy,
    "costs": lambda engine, _: {"costs": engine.safety.costs.state(), "holds": engine.safety.holds()},
    "sessions": _sessions,
    "changes": lambda engine, scope: {"changes": engine.changes.list(limit=scope.newest), "waiting": engine.queue()},
    "tasks": lambda engine, _: {"tasks": engine.tasks.list(limit=60)},
    "agents": lambda engine, _: {"agents": engine.agents.list(), "retired": engine.agents.retired()},
    "place": _place,
    "log": lambda engine, _: {
        "log": engine.safety.log(limit=1),
        "blocked": engine.safety.log(limit=200, blocked_only=True),
    },
    "settings": _settings,
    "rails": _rails,
    "phase": _phase,
    "memory": lambda engine, _: {"layers": engine.layers()},
    "adaptation": lambda engine, _: {"proposed": bool(engine.adaptation.candidates())},
    "learnings": lambda engine, _: {"taught": bool(engine.learnings.entries(limit=1))},
}
"""What can be read again by itself, in the order in which it matters on the first screen."""


def read(engine: Engine, topics: Iterable[str], scope: ReadScope) -> tuple[dict[str, Any], list[tuple[str, Exception]]]:
    """The fields of `AppState` for `topics`, and what failed. Blocking: call it in a thread.

    One failing port takes away its own part only.
    """
    values: dict[str, Any] = {}
    failed: list[tuple[str, Exception]] = []
    for topic in topics:
        try:
            values |= TOPICS[topic](engine, scope)
        except Exception as error:
            failed.append((topic, error))
    return {name: tuple(item) if isinstance(item, list) else item for name, item in values.items()}, failed
