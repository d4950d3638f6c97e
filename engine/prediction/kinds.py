"""Every kind of card in one table, `kinds.toml`: its tier, what it is called, the flow that → runs, its channel (SPEC
2.11)."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Final

from engine.frozen import frozen
from engine.model import Tier

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


class Activity(StrEnum):
    """What a proposal is, as far as the time of day is concerned."""

    REVIEW = "review"  # look over and plan
    WORK = "work"  # deep work: check, search, change
    SUMMARY = "summary"  # put into words what was done
    REPAIR = "repair"  # something is broken: it does not wait for its hour


_FITS: Final = {
    Tier.BROKEN: (Activity.REPAIR,),
    Tier.BLOCKS: (Activity.REPAIR,),
    Tier.CHECK: (Activity.WORK, Activity.REVIEW),
    Tier.UPKEEP: (Activity.REVIEW, Activity.SUMMARY),
}
_USUAL_HOURS: Final = {Tier.BROKEN: 2.0, Tier.BLOCKS: 12.0, Tier.CHECK: 8.0, Tier.UPKEEP: 72.0}
_STRENGTH: Final = {Tier.BROKEN: 1.0, Tier.BLOCKS: 0.8, Tier.CHECK: 0.5, Tier.UPKEEP: 0.3}


@frozen
class Kind:
    """One kind of card. `title` names it in lists. `flow` is what → runs, "" for the flow of the kind's own name.
    `continues`: kinds whose sessions it takes up again. `comes_back`: it warns, and what → runs takes nothing away, so
    it comes back until its reason is gone. `place` is its row."""

    name: str
    tier: Tier
    title: str
    flow: str = ""
    channel: str = "koji-core"
    continues: tuple[str, ...] = ()
    comes_back: bool = False
    place: int = 0

    @property
    def activities(self) -> tuple[Activity, ...]:
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


def _read() -> Mapping[str, Kind]:
    rows = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    kinds = {}
    for place, (name, row) in enumerate(rows.items()):
        tier, continues = Tier(row.pop("tier")), tuple(row.pop("continues", ()))
        kinds[name] = Kind(**{"name": name, "flow": name} | row, tier=tier, continues=continues, place=place)
    return MappingProxyType(kinds)


KINDS: Final = _read()
"""Every kind by its name, as `kinds.toml` has them."""

KINDS_BY_INSPECTION: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
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
"""The kinds that each field of `engine.git.inspection` is about: where that check fails, their cards stay."""


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
