"""Cards (SPEC 2): from the state of a workspace to the work that is proposed to the operator.

| modules | subject |
|---|---|
| `context_reader`, `context`, `signals`, `workspace_watch` | what a workspace is like now |
| `templates`, `predictors` | what proposes cards: rules, the Twin model, other programs |
| `twin`, `routing`, `placing` | the confidence of a card, its channel and its agent |
| `card_rows`, `card_store`, `stack` | the table of cards, their transitions and places |
| `checks`, `selection`, `problems` | one check: new cards, cards that leave, and what is known to be wrong |
| `cards`, `approvals`, `dismissals` | the service: prompts, and the operator's decisions |
| `tasks`, `threads` | the task board, and conversations that cards continue |

Here is what all of them name, the kinds of card. `kinds.toml` is their table, with tier, title, flow and channel
(2.11), and `find_next_kinds` says which kinds may follow a session (2.10).

    bisect = { tier = 1, title = "Test that broke", continues = ["run_tests", …], yields_to = ["undo_landing"] }

Such a card is in the first tier of the stack, and → runs the flow `bisect`. Its WHY says how the last run of the tests
ended. It is not shown where a landing is known to have broken the tests. A template has the name of its kind.
`get_kind` has the kinds whose names are made elsewhere: of heartbeats and of learned flows.

It may import execution, safety, learning, memory, settings_store, api_keys, storage, config, git, events, model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.files import read_table
from engine.frozen import frozen
from engine.model import SessionState, SessionView, Tier

HEARTBEAT_PREFIX = "heartbeat"
"""Prefix of the kinds of heartbeat cards: each item of a heartbeat is a kind of its own."""

RUN_FACT = "run"
"""Key of a heartbeat card's facts: whether the operator ordered it to run by itself when it is due."""

REVIEWED_IN = "reviewed_in"
"""Key of a warning's facts: the session that found the same already."""

REVIEWED_STATE = "reviewed_state"
"""Key of a warning's facts: the digest of the state that this session read (`Status.digest`). While it is the same,
another session would find the same."""

SUGGESTED_KIND = "suggested"
"""The kind of cards that agents or programs suggest."""

FIX_BY_AGENT = "let_agent_fix"
"""The kind of cards for a problem that a flow found and an agent or a model may fix."""

BLOCKING_TASK = "blocked_task"  # it blocks others
STALE_TASK = "stale_task"
OPEN_TASK = "open_task"
"""The kinds of tasks of the board."""

ALWAYS_ASK = frozenset({SUGGESTED_KIND, BLOCKING_TASK, STALE_TASK, OPEN_TASK})
"""Kinds whose cards never run by themselves, however many were approved: their texts differ, and others may have
written them."""

MEETING_KIND = "prepare_meeting"
"""The kind of cards that prepare a meeting."""

OWN_PROMPT = "own"
"""The kind of the operator's own prompts: approving one earns no card the right to run by itself (SPEC 2.5)."""


_USUAL_HOURS = {Tier.AT_RISK: 2.0, Tier.BLOCKS: 12.0, Tier.CHECK: 8.0, Tier.UPKEEP: 72.0}
"""See `Kind.usual_hours`."""

_STRENGTH_OF_TIER = {Tier.AT_RISK: 1.0, Tier.BLOCKS: 0.8, Tier.CHECK: 0.5, Tier.UPKEEP: 0.3}
"""See `Kind.strength`."""


@frozen
class Kind:
    """One kind of card."""

    name: str
    tier: Tier
    title: str
    flow: str = ""
    """The flow that → runs. In the table, a kind without one has the flow of its own name."""
    channel: str = "koji-core"
    continues: tuple[str, ...] = ()
    """The kinds whose sessions a card of this kind continues."""
    signals: tuple[str, ...] = ("git",)
    """The signals that are evidence for its cards (SPEC 2.1). The other signals are the same for every card at that
    time, so they are not shown."""
    comes_back: bool = False
    """Whether it is a warning, which is shown again until its reason is gone."""
    inspections: tuple[str, ...] = ()
    """The fields of `engine.git.inspection` that it depends on. If such a check fails, its cards stay."""
    yields_to: tuple[str, ...] = ()
    """The kinds that say more about the same tests or files. Beside one of those, it is not proposed for a project."""
    during_operation: bool = False
    """Whether it is proposed even while a merge, a rebase or the like is unfinished. At that time the files belong to
    neither side and HEAD may be anywhere, so most findings about them are no reason for a card."""
    one_at_a_time: bool = False
    """Whether a workspace has only one such card at a time, as it has only one upkeep card."""
    place: int = 0
    """Its row in the table."""

    @property
    def usual_hours(self) -> float:
        """How many hours such cards usually wait before they are approved (> 0). It is used until the operator's own
        habit is known."""
        return _USUAL_HOURS[self.tier]

    @property
    def strength(self) -> float:
        """The relevance of the git signal for its cards, in [0, 1]."""
        return _STRENGTH_OF_TIER[self.tier]


def _read_kinds() -> Mapping[str, Kind]:
    """Read the table of kinds."""
    kinds = {}
    for place, (name, row) in enumerate(read_table(__file__, "kinds.toml").items()):
        columns: dict[str, Any] = {"name": name, "flow": name, **row, "tier": Tier(row["tier"]), "place": place}
        columns |= {key: tuple(value) for key, value in row.items() if isinstance(value, list)}
        kinds[name] = Kind(**columns)
    return kinds


KINDS = _read_kinds()
"""Every kind by its name, as `kinds.toml` has them."""


def is_heartbeat(name: str) -> bool:
    """Whether cards of this kind come from a heartbeat."""
    return name.startswith(f"{HEARTBEAT_PREFIX}-")


def is_ordered(name: str) -> bool:
    """Whether the operator ordered cards of this kind, with a heartbeat or an entry of the calendar. Such cards are not
    predictions: they are shown whatever their confidence is, and take no place."""
    return is_heartbeat(name) or name == MEETING_KIND


def kind_title(name: str) -> str:
    """The title for cards of this kind: "Test that broke", not `bisect`."""
    return get_kind(name).title


def get_kind(name: str) -> Kind:
    """The kind with this name. A name that is not in the table is that of a heartbeat item, which blocks because it was
    ordered, or else of a learned flow."""
    if name in KINDS:
        return KINDS[name]
    tier, title = (Tier.BLOCKS, "Due by a heartbeat") if is_heartbeat(name) else (Tier.CHECK, name.replace("_", " "))
    return Kind(name, tier, title, name, signals=() if is_heartbeat(name) else ("git",), place=len(KINDS))


FOLLOW_UPS_OF_FAILED_TESTS = (
    "undo_landing", "apply_fix", "rehearse_revert", "bisect", "hunt_flakes", "check_clean_head", "still_red",
    "rerun_failing", FIX_BY_AGENT,
)  # fmt: skip
"""Kinds of cards that may follow failed tests, the best first."""

WARNING_KINDS = tuple(kind.name for kind in KINDS.values() if kind.comes_back)
"""Kinds of cards that come back at once after their review, because that does not remove the reason."""

LEADING_TO_AGENT = ("fix_lint", "rehearse_merge", "unfinished_operation")
"""Flows after which an agent may do what the flow cannot."""


def find_next_kinds(view: SessionView) -> tuple[str, ...]:
    """The kinds of cards that may follow this session, the best first. None may unless the session succeeded. If its
    result names the next step, only that may follow."""
    if view.state is not SessionState.SUCCEEDED or view.flow is None:
        return ()
    if view.next_step:
        return (view.next_step,)
    if view.flow in {KINDS[kind].flow for kind in WARNING_KINDS}:
        return WARNING_KINDS if view.has_problem else ()
    tests_failed = view.check is not None and view.check.failed + view.check.errors > 0
    if tests_failed:  # without the flow itself: it would find the same again
        return tuple(kind for kind in FOLLOW_UPS_OF_FAILED_TESTS if kind != view.flow)
    return (FIX_BY_AGENT,) if view.flow in LEADING_TO_AGENT else ()
