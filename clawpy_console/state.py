"""The state that screens draw: one frozen value, and how the engine is read for it, topic by topic.

`Console` keeps the value, and replaces the parts that the engine reports as changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from clawpy_console.fields import WORDS
from clawpy_console.formats import crop, workspace_name
from engine.frozen import frozen
from engine.model import (
    AgentView,
    AutonomyState,
    Card,
    ChainStep,
    ChangeSet,
    CostState,
    Hold,
    Layer,
    LayerState,
    PermissionRequest,
    RailDecision,
    RailState,
    SessionState,
    SessionView,
    SpendingWindow,
    StopLevel,
    Task,
    Waiting,
)

if TYPE_CHECKING:
    from engine import Engine


StateFields = dict[str, Any]
"""Fields of `AppState` by name."""


@frozen
class QuietHours:
    """Quiet hours and do-not-disturb."""

    is_in_force: bool = False
    """Whether one of the two holds now."""
    start_hour: int = 0
    end_hour: int = 0
    dnd_until: datetime | None = None


@frozen
class Autonomy:
    """The state of the engine's autonomy."""

    state: AutonomyState | None = None
    """None until it was read."""
    cause: str = ""
    since: datetime | None = None
    next_change: datetime | None = None
    next_cycle: datetime | None = None
    active_at: datetime | None = None
    """When the operator was active last, to the second."""
    inactivity_threshold_s: float = 1800.0
    """The operator counts as inactive after this."""
    no_cards_reason: str = ""
    """Why there may be no cards, "" for no reason."""
    last_checked: tuple[tuple[str, datetime], ...] = ()
    """The workspaces, each with the time of its last check."""
    is_checking: bool = False
    """Whether workspaces are being checked, or are about to be."""

    def compute_silence(self, now: datetime) -> timedelta:
        """The time for which the operator has been inactive at `now`."""
        return now - (self.active_at or now)


@frozen
class AppState:
    """The state of the engine that screens draw. Empty until an engine has run in this home."""

    cards: tuple[Card, ...] = ()
    """The pending cards."""
    recent_cards: tuple[Card, ...] = ()
    """The latest cards of any status."""
    sessions: tuple[SessionView, ...] = ()
    """The newest sessions."""
    has_older_sessions: bool = False
    """Whether there are sessions before these."""
    changes: tuple[ChangeSet, ...] = ()
    tasks: tuple[Task, ...] = ()
    agents: tuple[AgentView, ...] = ()
    served_channels: tuple[tuple[str, str], ...] = ()
    """The channels that are served, each with its model or agent."""
    retired_agents: tuple[AgentView, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    """What needs the operator, of all kinds."""
    permissions: tuple[PermissionRequest, ...] = ()
    """The open permission requests."""
    autonomy: Autonomy = Autonomy()
    costs: CostState | None = None
    holds: tuple[Hold, ...] = ()
    latest_log: tuple[RailDecision, ...] = ()
    """The newest entry of the log of the rails, none before the first."""
    blocked_work: tuple[RailDecision, ...] = ()
    """The latest work that a rail blocked."""
    rails: tuple[RailState, ...] = ()
    spending: tuple[SpendingWindow, ...] = ()
    """The costs of the hour, the day and the month."""
    trigger_chain: tuple[ChainStep, ...] = ()
    """The latest triggers, each with what it came from."""
    levels: tuple[StopLevel, ...] = ()
    """The levels of the kill switch."""
    quiet: QuietHours = QuietHours()
    switch_values: tuple[tuple[str, bool], ...] = ()
    """The settings of `SWITCHES`, by their names."""
    workspace_autonomy: tuple[tuple[str, str], ...] = ()
    """The workspaces, each with its `autonomy` setting."""
    workspaces: tuple[str, ...] = ()
    """The workspaces of this console: those it was opened for, then those of the settings. If it was opened for none,
    all that are watched."""
    workspace_label: str = ""
    """The branch and changes of the first workspace, in words."""
    gateway_url: str = ""
    """The address of the gateway, "" while it does not listen."""
    twin_phase: str = ""
    """The phase of the Twin and its reason, in words."""
    twin_progress: str = ""
    """How far the Twin is from its first phase, in words."""
    settings_error: str = ""
    """Why the file of the settings cannot be read, "" when it can."""
    home_error: str = ""
    """That the files of the home are gone, "" while they are there."""
    missing_conditions: str = ""
    """The conditions that are not met yet for the engine to act by itself."""
    acts_by_itself: bool = False
    layers: tuple[LayerState, ...] = ()
    sandbox: str = ""
    has_candidates: bool = False
    has_learnings: bool = False
    used_screens: frozenset[str] = frozenset()
    """The screens that have something to show, and "costs"; see `find_used_screens`."""

    def make_place_prefix(self, workspace: str) -> str:
        """`blog: ` before a line about `workspace`, "" where that is none or the first of this console."""
        return "" if workspace in ("", *self.workspaces[:1]) else f"{crop(workspace_name(workspace), 20)}: "

    @property
    def is_autonomous(self) -> bool:
        """Whether cards may run by themselves while the operator is inactive."""
        return dict(self.switch_values).get("autonomousModeEnabled", False)

    @property
    def running(self) -> tuple[SessionView, ...]:
        """Sessions that are not over, newest first."""
        return tuple(session for session in self.sessions if not session.state.is_over)

    @property
    def newest_running(self) -> SessionView | None:
        """The session whose output mission control follows: the newest running, else the newest at all."""
        running = (session for session in self.sessions if session.state is SessionState.RUNNING)
        return next(running, None) or next(iter(self.sessions), None)

    def find_requests_of(self, session_id: str) -> tuple[PermissionRequest, ...]:
        """The permission requests of a session, the oldest first."""
        return tuple(request for request in self.permissions if request.session_id == session_id)

    def find_change_of(self, session: SessionView) -> ChangeSet | None:
        """The change set of `session`, if it left one."""
        return next((change for change in self.changes if change.session_id == session.id), None)


def find_used_screens(state: AppState) -> frozenset[str]:
    """The screens that have something to show, and "costs" once something costs money. What was used once stays.

    Files of agents and the event log exist from the first start, so these layers of memory do not count.
    """
    costs = state.costs
    is_used = {
        "hierarchy": state.served_channels
        or any(agent.activity.current_tokens or agent.activity.total_tokens or agent.broken for agent in state.agents),
        "memory": any(layer.count for layer in state.layers if layer.layer not in (Layer.MARKDOWN, Layer.LEDGER)),
        "learning": state.has_candidates or state.has_learnings,
        "safety": state.blocked_work or state.holds,
        "insights": any(card.decided_at for card in state.recent_cards),
        "costs": state.served_channels or (costs is not None and costs.month),
    }
    return state.used_screens | {name for name, used in is_used.items() if used}


SESSIONS_PER_PAGE = 60
"""Number of sessions, and of their changes, that are read at first, and with each request for older ones."""


@frozen
class ReadScope:
    """The part of the engine's state that one console reads."""

    session_limit: int = SESSIONS_PER_PAGE
    """Number of the newest sessions."""
    opened_for: tuple[str, ...] = ()
    """The workspaces that the console was opened for."""


def _read_sessions(engine: Engine, scope: ReadScope) -> StateFields:
    sessions = engine.sessions.list_newest(limit=scope.session_limit + 1)
    return {"sessions": sessions[: scope.session_limit], "has_older_sessions": len(sessions) > scope.session_limit}


def _select_console_workspaces(engine: Engine, scope: ReadScope) -> tuple[str, ...]:
    """See `AppState.workspaces`. One that is switched off is left out, unless no other is left."""
    watched = engine.workspaces
    chosen = scope.opened_for
    if not chosen:
        return tuple(watched)
    return tuple(path for path in dict.fromkeys((*chosen, *engine.configured_workspaces)) if path in watched) or chosen


HOME_GONE_MESSAGE = "the home is gone, and nothing is recorded: quit, and start `clawpy` again"


def _read_autonomy(engine: Engine, scope: ReadScope) -> StateFields:
    autonomy = engine.autonomy
    current = engine.settings.current
    view = autonomy.update_state()
    next_cycle = autonomy.find_next_cycle()
    workspaces = _select_console_workspaces(engine, scope)
    all_remarks = engine.checks.read_remarks()
    remarks = (f"{workspace_name(path)}: {remark}" for path, remark in all_remarks.items() if path in workspaces)
    return {
        "home_error": "" if engine.home.database.exists() else f"{HOME_GONE_MESSAGE} ({engine.home.database})",
        "holds": engine.safety.kill_switch.list_holds(),
        "quiet": QuietHours(
            bool(autonomy.find_quiet_reason()),
            current.quiet_hours_start,
            current.quiet_hours_end,
            autonomy.find_dnd_end(),
        ),
        "autonomy": Autonomy(
            state=view.state,
            cause=view.cause,
            since=view.since,
            next_change=view.next_change,
            next_cycle=next_cycle,
            active_at=(engine.clock.now() - autonomy.measure_silence()).replace(microsecond=0),
            inactivity_threshold_s=current.silence_threshold_ms / 1000,
            no_cards_reason=next(remarks, ""),
            last_checked=tuple(sorted(engine.checks.read_last_checked().items())),
            is_checking=engine.checks.is_checking or (next_cycle is not None and next_cycle <= engine.clock.now()),
        ),
    }


@frozen
class Switch:
    """A setting that the safety screen shows as a switch."""

    attribute: str
    """Its name in the engine's settings."""
    question: str
    """What it means to turn it on."""


SWITCHES = {name: Switch(*cells) for name, cells in WORDS["switch"].items()}
"""The switches by the name of the setting in its file."""


def _read_settings(engine: Engine, _: ReadScope) -> StateFields:
    current = engine.settings.current
    workspaces = dict.fromkeys([*map(str, engine.workspaces), *current.workspaces])
    return {
        "workspace_autonomy": tuple((path, str(current.get_workspace(path).autonomy)) for path in workspaces),
        "switch_values": tuple((name, bool(getattr(current, switch.attribute))) for name, switch in SWITCHES.items()),
        "settings_error": engine.settings.fault,
        "served_channels": tuple(
            (channel, by) for channel in current.channels if (by := engine.channel_setup.find_executor(channel))
        ),
        "sandbox": _describe_sandbox(engine),
    }


def _describe_sandbox(engine: Engine) -> str:
    """The sandbox of this machine, and the workspaces that may run without one."""
    sandbox = engine.sessions.sandbox
    description = sandbox.describe(network=False)
    if sandbox.confines:
        return description
    exempt = [path for path, workspace in engine.settings.current.workspaces.items() if workspace.without_sandbox]
    from engine.installed import SANDBOX_FIX  # not before the first frame

    effect = f"you confirm each approval, and nothing runs by itself; {SANDBOX_FIX} to get a sandbox"
    exception = f"; no confirmation needed in {', '.join(exempt)}" if exempt else ""
    return f"{description}: {effect}{exception}"


def _read_place(engine: Engine, scope: ReadScope) -> StateFields:
    workspaces = _select_console_workspaces(engine, scope)
    return {
        "workspaces": workspaces,
        "workspace_label": engine.make_workspace_label(workspaces[0]) if workspaces else "",
        "gateway_url": engine.gateway.state().url,
    }


def _read_phase(engine: Engine, _: ReadScope) -> StateFields:
    phase = engine.embedded_twin.read_phase()
    earned = engine.autonomy.describe_requirements(engine.workspaces)
    return {
        "twin_phase": f"phase {phase.number}: {phase.reason}",
        "twin_progress": phase.progress_words,
        "missing_conditions": earned.words,
        "acts_by_itself": not earned.missing,
    }


TOPICS: Mapping[str, Callable[[Engine, ReadScope], StateFields]] = {
    "cards": lambda engine, _: {
        "cards": engine.cards.list_pending(),
        "recent_cards": engine.cards.list_recent(limit=30),
    },
    "permissions": lambda engine, _: {
        "permissions": engine.permissions.list_waiting(),
        "waiting": engine.list_waiting(),
    },
    "autonomy": _read_autonomy,
    "costs": lambda engine, _: {"costs": engine.safety.costs.read_state()},
    "sessions": _read_sessions,
    "changes": lambda engine, scope: {
        "changes": engine.changes.list_newest(limit=scope.session_limit),
        "waiting": engine.list_waiting(),
    },
    "tasks": lambda engine, _: {"tasks": engine.tasks.list(limit=60)},
    "agents": lambda engine, _: {"agents": engine.agents.list_agents(), "retired_agents": engine.agents.list_retired()},
    "place": _read_place,
    "log": lambda engine, _: {
        "latest_log": engine.safety.read_log(limit=1),
        "blocked_work": engine.safety.read_log(limit=200, blocked_only=True),
    },
    "settings": _read_settings,
    "rails": lambda engine, _: {
        "rails": engine.safety.read_rail_states(),
        "spending": engine.safety.costs.read_spending(),
        "trigger_chain": engine.safety.list_chain(limit=30),
        "levels": engine.safety.kill_switch.list_levels(),
    },
    "phase": _read_phase,
    "memory": lambda engine, _: {"layers": engine.read_layers()},
    "adaptation": lambda engine, _: {"has_candidates": bool(engine.adaptation.list_candidates())},
    "learnings": lambda engine, _: {"has_learnings": bool(engine.learnings.list_entries(limit=1))},
}
"""The topics, each with the function that reads it, in the order in which the first screen needs them."""


def read_topics(
    engine: Engine, topics: Iterable[str], scope: ReadScope
) -> tuple[StateFields, list[tuple[str, Exception]]]:
    """The fields of `AppState` for `topics`, and the topics that could not be read. Blocking: call it in a thread."""
    values: StateFields = {}
    failed: list[tuple[str, Exception]] = []
    for topic in topics:
        try:
            values |= TOPICS[topic](engine, scope)
        except Exception as error:
            failed.append((topic, error))
    return {name: tuple(item) if isinstance(item, list) else item for name, item in values.items()}, failed
