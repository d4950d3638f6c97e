"""What all templates share: the shape of a proposal, and which names from git may go into one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from engine.git.state import GitState
from engine.model import Proposal, SessionView, Tier, sanitise
from engine.model.words import plain
from engine.prediction.collectors import signal
from engine.prediction.collectors.tasks import related_task, tasks_signal
from engine.prediction.collectors.time_of_day import time_signal
from engine.prediction.context import Part, WorkspaceContext
from engine.prediction.kinds import kind_of

ALWAYS = datetime(1970, 1, 1, tzinfo=UTC)
"""When something arose that was never otherwise: as old as can be, so that anything newer stands before it."""

MOST_PATHS = 50
"""A card names at most so many files; beyond that it is about the whole project."""


def offer(
    context: WorkspaceContext,
    kind: str,
    prompt: str,
    reasoning: str,
    *,
    subject: str,
    part: Part | None = None,
    facts: Mapping[str, Any],
    parameters: Mapping[str, Any],
    evidence_at: datetime | None,
    tier: Tier | None = None,
    flow: str = "",
    about: str = "",
) -> Proposal:
    """One proposal, with what the table of kinds says of its kind (`kinds.KINDS`) and its own six signals.

    `prompt` says what → does, `reasoning` why now, in one plain sentence with the facts. `subject`: see `Proposal`; it
    names no commit and no time. `part`: the project that it is about, added to subject, facts and parameters.
    `evidence_at`: when that arose, None when it cannot be told. `tier` and `flow` only where they are not those of the
    kind. `about`: the words that relate it to a task (default: the prompt).
    """
    is_a, words = kind_of(kind), (about or prompt).replace("_", " ")
    where = part.parameters if part else {}
    own = {
        "time": time_signal(context.local, *is_a.fits),
        "tasks": tasks_signal(context.tasks, context.now, words),
        "conversations": context.conversations(frozenset({kind, *is_a.continues})),
        "git": signal("git", is_a.strength, *context.signal("git").evidence),
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
        subject=part.about(subject) if part else subject,
        facts={**facts, **where},
        flow=flow or is_a.flow,
        tier=tier or is_a.tier,
        parameters={**parameters, **where},
        channel=(task.channel if task and task.channel else is_a.channel),
        evidence_at=evidence_at,
        usual_hours=is_a.usual_hours,
        signals=signals,
    )


def project_of(context: WorkspaceContext, paths: Iterable[str]) -> dict[str, str]:
    """The parameter of a flow that tests one project: the one with tests that most of these files are of; nothing for
    the top, and where no file tells."""
    held = Counter(part for path in paths for part in range(len(context.parts)) if context.parts[part].holds(path))
    tested = [part for part, _ in held.most_common() if context.parts[part].tool is not None]
    return context.parts[tested[0]].parameters if tested else {}


def ended(context: WorkspaceContext, project: str, *flows: str) -> list[SessionView]:
    """The sessions of these flows in a project that are over, the newest first."""
    return [one for one in context.sessions if one.flow in flows and one.state.over and one.project == project]


def newest_commit(git: GitState) -> datetime | None:
    """When HEAD was committed, None before the first commit."""
    return git.recent[0].at if git.recent else None


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
