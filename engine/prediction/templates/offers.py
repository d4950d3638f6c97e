"""The parts that all templates share: the shape of a proposal, and which names from git may go into one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field
from datetime import UTC, datetime
from functools import wraps
from typing import Any

from engine.frozen import frozen
from engine.git.state import GitState
from engine.model import Proposal, SessionState, SessionView, Signal, Task, Tier, sanitise
from engine.model.text import count, plain
from engine.prediction.context import Part, WorkspaceContext
from engine.prediction.kinds import Kind, kind_of
from engine.prediction.signals import related_task, signal, task_signal
from engine.storage.validation_runs import ValidationRun

LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
"""When something arose that was never otherwise: as old as can be, so that anything newer stands before it."""

MAX_PATHS = 50
"""A card names at most so many files; beyond that it is about the whole project."""


@frozen
class Offer:
    """An offer of a template: a proposal but for what the table of kinds says of its kind and for its signals.

    `prompt` says what → does, `reasoning` why now, in one plain sentence with the facts. `subject`: see `Proposal`; it
    names no commit and no time. `evidence_at`: when that arose, None when it cannot be told. What follows is given only
    where it is not that of the kind (`tier`, `flow`, `channel`), the parameters (`facts`) or the template's name
    (`kind`).
    """

    prompt: str
    reasoning: str
    subject: str
    evidence_at: datetime | None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, Any] | None = None
    tier: Tier | None = None
    flow: str | None = ""
    """None for prose."""
    kind: str = ""
    channel: str = ""
    task_id: str | None = None


def template(find: Callable[..., Iterable[Offer]]) -> Callable[..., list[Proposal]]:
    """Makes a template of a function that yields its offers in a context, or in a part of one."""

    @wraps(find)
    def propose(context: WorkspaceContext, *part: Part) -> list[Proposal]:
        return [make_proposal(context, offer.kind or find.__name__, offer, *part) for offer in find(context, *part)]

    return propose


def make_proposal(context: WorkspaceContext, kind: str, offer: Offer, part: Part | None = None) -> Proposal:
    """The proposal of an offer, with what the table of kinds says of its kind (`kinds.KINDS`) and its own six signals.
    `part`: the project that it is about, added to subject, facts and parameters."""
    kind_row, where = kind_of(kind), part.parameters if part else {}
    facts = offer.parameters if offer.facts is None else offer.facts
    words = f"{offer.subject} {list(facts.values())}".replace("_", " ")
    own_task = next((task for task in context.tasks if task.id == offer.task_id), None)
    task = own_task or related_task(context.tasks, words)
    return Proposal(
        kind=kind,
        workspace=context.workspace,
        prompt=offer.prompt,
        reasoning=offer.reasoning,
        subject=part.about(offer.subject) if part else offer.subject,
        facts={**facts, **where},
        flow=kind_row.flow if offer.flow == "" else offer.flow,
        tier=offer.tier or kind_row.tier,
        parameters={**offer.parameters, **where},
        channel=offer.channel or (task.channel if task else "") or kind_row.channel,
        evidence_at=offer.evidence_at,
        usual_hours=kind_row.usual_hours,
        signals=tuple(_signal_for(kind_row, common, context, task) for common in context.signals),
        task_id=offer.task_id,
    )


def _signal_for(kind: Kind, common: Signal, context: WorkspaceContext, task: Task | None) -> Signal:
    """The signal of the workspace as it counts for a proposal of this kind that is about `task`. Its relevance is 0
    where the proposal does not arise from it."""
    if common.error and common.name != "git":
        return common
    if common.name == "tasks" and task is not None:
        return task_signal(task, context.local)
    if common.name == "conversations":
        return context.conversations(frozenset({kind.name, *kind.continues}))
    if common.name not in kind.signals:
        return context.unrelated_signals[common.name]
    return signal("git", kind.strength, *common.evidence) if common.name == "git" else common


def project_of(context: WorkspaceContext, paths: Iterable[str]) -> dict[str, str]:
    """The parameter of a flow that tests one project: the one with tests that most of these files are of; nothing for
    the top, and where no file tells."""
    files_by_part = Counter(
        part for path in paths for part in range(len(context.parts)) if context.parts[part].holds(path)
    )
    tested = [part for part, _ in files_by_part.most_common() if context.parts[part].tool is not None]
    return context.parts[tested[0]].parameters if tested else {}


def ended_sessions(context: WorkspaceContext, project: str, *flows: str) -> list[SessionView]:
    """The sessions of these flows in a project that are over, the newest first."""
    return [
        session
        for session in context.sessions
        if session.flow in flows and session.state.over and session.project == project
    ]


def last_success(context: WorkspaceContext, project: str, flow: str) -> SessionView | None:
    """The newest session of a flow in a project that ran to its end."""
    ended = ended_sessions(context, project, flow)
    return next((session for session in ended if session.state is SessionState.SUCCEEDED), None)


def newest_commit(git: GitState) -> datetime | None:
    """When HEAD was committed, None before the first commit."""
    return git.recent[0].at if git.recent else None


def written_at(git: GitState, paths: Collection[str]) -> datetime | None:
    """When the first of these files was written; for what is committed, when HEAD was."""
    return earliest(file.modified_at for file in git.files if file.path in paths) or newest_commit(git)


def last_changed_at(git: GitState) -> datetime | None:
    """When something was last written or committed, None where nothing tells."""
    written = [file.modified_at for file in git.files if file.modified_at]
    return max([*written, *(commit.at for commit in git.recent[:1])], default=None)


def branch_of(git: GitState) -> str:
    """The branch that work is on, as the subject of a card."""
    return plain(git.branch, 200) or "detached HEAD"


def is_usable(name: str) -> bool:
    """Whether a path or ref may become a parameter: it is text, shows as what it is, and is no option."""
    return name == name.strip() != "" and name[0] != "-" and sanitise(name) == name and "\n" not in name and _utf8(name)


def usable_names(names: Iterable[str]) -> list[str]:
    """The usable names, sorted, without repeats."""
    return sorted({name for name in names if is_usable(name)})


def _utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def earliest(moments: Iterable[datetime | None]) -> datetime | None:
    """The earliest that is known: evidence is as old as its first piece."""
    return min((moment for moment in moments if moment is not None), default=None)


def short_test(test: str) -> str:
    """The name of a test: `test_cart` for `tests/test_cart.py::TestCart::test_cart`, in at most 40 characters. A dotted
    name that is longer is known by its last part."""
    name = test.rpartition("::")[2] or test
    if len(name) > 40 and name.replace(".", "").isidentifier():
        name = name.rpartition(".")[2]
    return plain(name, 40)


def usable_failures(run: ValidationRun) -> list[str]:
    """The tests that failed in a run, those whose names may become a parameter."""
    return [test for test in run.check.failing if is_usable(test)]


def and_others(items: Sequence[object], joint: str = " and ", noun: str = "other") -> str:
    """` and 2 others` after the first of some items; "" where it is the only one."""
    return f"{joint}{count(len(items) - 1, noun)}" if len(items) > 1 else ""
