"""What all templates share: the shape of a proposal, and which names from git may go into one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any

from engine.inspection.state import GitState
from engine.prediction.collectors import signal
from engine.prediction.collectors.tasks import related_task, tasks_signal
from engine.prediction.collectors.time_of_day import Activity, time_signal
from engine.prediction.context import WorkspaceContext
from engine.prediction.words import plain
from engine.values import Proposal, sanitise

MOST_PATHS = 50
"""A card names at most so many files; beyond that it is about the whole project."""


def offer(
    context: WorkspaceContext,
    kind: str,
    prompt: str,
    reasoning: str,
    *,
    subject: str,
    facts: Mapping[str, Any],
    parameters: Mapping[str, Any],
    activities: Collection[Activity],
    strength: float,
    evidence: str,
    channel: str,
    evidence_at: datetime | None,
    usual_hours: float,
    continues: Collection[str] = (),
    about: str = "",
) -> Proposal:
    """One proposal with its own six signals. `subject`: see `Proposal`; it names no commit and no time.

    Time is judged by `activities` (the best fitting counts), git by `strength` in [0, 1] and `evidence`, conversations
    by the flows whose thread this `continues`, tasks by the words they share with `about` (default: the prompt).
    Silence and calendar are the workspace's.
    """
    words = about or prompt
    own = {
        "time": time_signal(context.local, *activities),
        "tasks": tasks_signal(context.tasks, context.now, words),
        "conversations": context.conversations(frozenset({kind, *continues})),
        "git": signal("git", strength, evidence),
    }
    signals = tuple(
        common if common.error and common.name != "git" else own.get(common.name, common) for common in context.signals
    )
    task = related_task(context.tasks, words)
    return Proposal(
        kind=kind,
        workspace=context.workspace,
        prompt=prompt,
        reasoning=reasoning,
        subject=subject,
        facts=facts,
        flow=kind,
        parameters=parameters,
        channel=(task.channel if task and task.channel else channel),
        evidence_at=evidence_at,
        usual_hours=usual_hours,
        signals=signals,
        task_id=task.id if task else None,
    )


def branch_of(git: GitState) -> str:
    """The branch that work is on, as the subject of a card."""
    return plain(git.branch, 200) or "detached HEAD"


def usable(name: str) -> bool:
    """Whether a path or ref may become a parameter: it is text, shows as what it is, and is no option."""
    return name == name.strip() != "" and name[0] != "-" and sanitise(name) == name and "\n" not in name and _utf8(name)


def usable_names(names: Iterable[str]) -> list[str]:
    """Those that are usable, sorted, without repeats."""
    return sorted({name for name in names if usable(name)})


def _utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def oldest(moments: Iterable[datetime | None]) -> datetime | None:
    """The earliest that is known: evidence is as old as its first piece."""
    return min((moment for moment in moments if moment is not None), default=None)
