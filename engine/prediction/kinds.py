"""Every kind of card in one table: its tier, what it is called, the flow that → runs, its channel (SPEC 2.11). Pure.

The order of the rows is the order among cards of the same tier, confidence and freshness: what is about one thing you
can point at stands before what is about the whole project.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from engine.model import Tier
from engine.prediction.signals import Activity

HEARTBEAT: Final = "heartbeat"
"""How the kinds of cards begin that an agent's heartbeat made due: each of its items is a kind of its own."""

RUN: Final = "run"
"""The fact of a heartbeat's card that the operator wrote it to run by itself when it is due."""

SUGGESTED: Final = "suggested"
"""The kind of what an agent or a program put there: like each other, and like nothing that the engine predicts."""

HANDED_OVER: Final = "let_agent_fix"
"""What a flow found and an agent or a model may mend."""

BLOCKED_TASK: Final = "blocked_task"
STALE_TASK: Final = "stale_task"
OPEN_TASK: Final = "open_task"
"""The kinds of tasks of the board."""

NEVER_ALONE: Final = frozenset({SUGGESTED, BLOCKED_TASK, STALE_TASK, OPEN_TASK})
"""Kinds whose cards always wait for the operator, however many of them were approved: each says something else, and
others may have written it, into a file of `tasksDir` for example."""

MEETING: Final = "prepare_meeting"

OWN: Final = "own"
"""The kind of the operator's own prompts: approving one earns no prediction the right to run by itself (SPEC 2.5)."""

_FITS: Final = {
    Tier.BROKEN: (Activity.REPAIR,),
    Tier.BLOCKS: (Activity.REPAIR,),
    Tier.CHECK: (Activity.WORK, Activity.REVIEW),
    Tier.UPKEEP: (Activity.REVIEW, Activity.SUMMARY),
}
_USUAL_HOURS: Final = {Tier.BROKEN: 2.0, Tier.BLOCKS: 12.0, Tier.CHECK: 8.0, Tier.UPKEEP: 72.0}
_STRENGTH: Final = {Tier.BROKEN: 1.0, Tier.BLOCKS: 0.8, Tier.CHECK: 0.5, Tier.UPKEEP: 0.3}


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of card. `title` names it in lists. `flow` is what → runs, "" for the flow of the kind's own name.
    `continues`: kinds whose sessions it takes up again. `place` is its row."""

    name: str
    tier: Tier
    title: str
    flow: str = ""
    channel: str = "koji-core"
    continues: tuple[str, ...] = ()
    place: int = 0

    @property
    def fits(self) -> tuple[Activity, ...]:
        """What it is as far as the time of day is concerned."""
        return _FITS[self.tier]

    @property
    def usual_hours(self) -> float:
        """How long the like usually waits until somebody acts (> 0), before the operator's own habit is known."""
        return _USUAL_HOURS[self.tier]

    @property
    def strength(self) -> float:
        """How loudly git speaks for it, in [0, 1]."""
        return _STRENGTH[self.tier]


_ROWS: Final = (
    # Broken or about to be lost
    Kind("secret", Tier.BROKEN, "Secret about to be pushed", "review_unpushed"),
    Kind("unfinished_operation", Tier.BROKEN, "Unfinished merge or rebase"),
    Kind("lost_commits", Tier.BROKEN, "Commits on no branch", "keep_commits"),
    Kind("large_file", Tier.BROKEN, "Large file about to be pushed", "review_unpushed"),
    Kind("undo_landing", Tier.BROKEN, "Landing that broke the tests", continues=("run_tests",)),
    Kind("rehearse_revert", Tier.BROKEN, "Revert of the commit that broke a test", continues=("bisect",)),
    Kind("bisect", Tier.BROKEN, "Test that broke", continues=("run_tests", "check_clean_head")),
    Kind("reclaim_space", Tier.BROKEN, "Disk nearly full"),
    # Blocks the operator or others soon
    Kind(MEETING, Tier.BLOCKS, "Meeting to prepare", "summarise_day", "chronicle-hub"),
    Kind("prepare_environment", Tier.BLOCKS, "Environment to prepare", continues=("run_tests",)),
    Kind("update_lock", Tier.BLOCKS, "Lock file out of step"),
    Kind("apply_fix", Tier.BLOCKS, "Failure that was fixed before", continues=("run_tests",)),
    Kind("still_red", Tier.BLOCKS, "Tests that still fail", "narrow_failures", continues=("run_tests", "bisect")),
    Kind("rerun_failing", Tier.BLOCKS, "Failed tests to run again", "run_tests", continues=("bisect", "fix_lint")),
    Kind("rehearse_merge", Tier.BLOCKS, "Branch behind its base", continues=("forecast_conflicts",)),
    Kind("pull_request", Tier.BLOCKS, "Pull request that waits for you", "look_at_pull_request"),
    Kind("failing_ci", Tier.BLOCKS, "CI that fails", "run_tests"),
    Kind("forecast_conflicts", Tier.BLOCKS, "Branches that collide", channel="research", continues=("rehearse_merge",)),
    Kind("waiting_work", Tier.BLOCKS, "Work that waits for days", "review_unpushed"),
    Kind(STALE_TASK, Tier.BLOCKS, "Task that nobody touched for a week"),
    Kind(BLOCKED_TASK, Tier.BLOCKS, "Task that others wait for"),
    # Cheap checks of what was just done
    Kind("leftovers", Tier.CHECK, "Debugging left in", "look_for_leftovers"),
    Kind("remove_leftovers", Tier.CHECK, "Debugging to remove", continues=("look_for_leftovers",)),
    Kind("autosquash", Tier.CHECK, "Fixup commits to squash", "rehearse_autosquash"),
    Kind("changes_together", Tier.CHECK, "File that usually changes too", "look_together"),
    Kind("stale_docs", Tier.CHECK, "Documentation of what is gone", "look_at_mentions"),
    Kind("update_docs", Tier.CHECK, "Documentation to update", continues=("look_at_mentions",)),
    Kind("fix_lint", Tier.CHECK, "Lint to fix", continues=("lint",)),
    Kind("run_tests", Tier.CHECK, "Tests of what changed", continues=("bisect", "fix_lint")),
    Kind("lint", Tier.CHECK, "Lint of what changed", continues=("fix_lint",)),
    Kind("check_clean_head", Tier.CHECK, "HEAD without uncommitted files", continues=("run_tests",)),
    Kind("uncovered_lines", Tier.CHECK, "Changed lines that no test runs"),
    Kind(OPEN_TASK, Tier.CHECK, "Open task"),
    Kind(HANDED_OVER, Tier.CHECK, "Finding for your agent or model"),
    Kind(SUGGESTED, Tier.CHECK, "Suggestion of an agent or a program"),
    Kind(OWN, Tier.CHECK, "Your own prompt"),
    # Upkeep
    Kind("hunt_flakes", Tier.UPKEEP, "Unreliable tests", continues=("run_tests",)),
    Kind("quarantine", Tier.UPKEEP, "Unreliable tests to skip for a while", continues=("hunt_flakes",)),
    Kind("slower_tests", Tier.UPKEEP, "Tests that got slower", "time_tests"),
    Kind("old_stash", Tier.UPKEEP, "Old stash", "look_at_stash"),
    Kind("release_due", Tier.UPKEEP, "Release due", "look_at_release", "chronicle-hub"),
    Kind("draft_changelog", Tier.UPKEEP, "Change log", channel="chronicle-hub"),
    Kind("report_branches", Tier.UPKEEP, "Branches to tidy up", channel="research"),
    Kind("summarise_day", Tier.UPKEEP, "Summary of the day", channel="chronicle-hub"),
    Kind("first_run", Tier.UPKEEP, "First run of the tests", "run_tests"),
)

KINDS: Final[Mapping[str, Kind]] = MappingProxyType(
    {
        kind.name: Kind(kind.name, kind.tier, kind.title, kind.flow or kind.name, kind.channel, kind.continues, place)
        for place, kind in enumerate(_ROWS)
    }
)
"""Every kind by its name."""


SEEN_BY: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "unfinished": ("unfinished_operation",),
        "lost": ("lost_commits",),
        "fixups": ("autosquash",),
        "stashes": ("old_stash",),
        "merges": ("rehearse_merge",),
        "collisions": ("forecast_conflicts",),
        "unpushed": ("secret", "large_file", "waiting_work"),
        "own": ("leftovers", "remove_leftovers", "stale_docs", "update_docs", "uncovered_lines"),
        "quarantined": ("hunt_flakes", "quarantine"),
    }
)
"""The kinds that each of `engine.git.looks` tells of: where that look fails, their cards stay."""


def is_heartbeat(name: str) -> bool:
    """Whether cards of this kind come from a heartbeat."""
    return name.startswith(f"{HEARTBEAT}-")


def is_ordered(name: str) -> bool:
    """Whether the operator ordered cards of this kind, by a heartbeat or an entry of the calendar. They are no guess:
    they are shown whatever their confidence, and take no place."""
    return is_heartbeat(name) or name == MEETING


def kind_title(name: str) -> str:
    """What people call cards of this kind: "Test that broke", not `bisect`."""
    return kind_of(name).title


def kind_of(name: str) -> Kind:
    """The kind of that name. What a heartbeat made due was ordered, so it blocks; any other name is learned work."""
    if name in KINDS:
        return KINDS[name]
    tier, title = (Tier.BLOCKS, "Due by a heartbeat") if is_heartbeat(name) else (Tier.CHECK, name.replace("_", " "))
    return Kind(name, tier, title, name, place=len(KINDS))
