"""What all templates share: the `Offer` that they return, how it becomes a proposal, and helpers that read a context.

Names from git can contain anything, so `is_usable` and `is_usable_path` say which may become a parameter of a flow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field
from datetime import UTC, datetime, timedelta
from functools import lru_cache, wraps
from typing import Any

from engine.frozen import frozen
from engine.git.state import GitState
from engine.model import Proposal, SessionState, SessionView, Signal, Task, Tier, Verdict
from engine.prediction import KINDS, Kind, get_kind
from engine.prediction.context import Part, WorkspaceContext
from engine.prediction.signals import make_signal, make_task_signal
from engine.safety.content.prompts import check_prompt
from engine.storage.validation_runs import ValidationRun
from engine.text import plain, sanitise
from engine.wording import count

LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
"""The time of evidence that was always there, such as a project without any test run. Any other evidence is newer, and
its card stands above."""

MAX_PATHS = 50
"""Maximum number of files that a card names. With more it is about the whole project."""


@frozen
class Offer:
    """A proposal as a template returns it. `make_proposal` adds the signals and the defaults of its kind."""

    prompt: str
    """What the key → does."""
    reasoning: str
    """Why it is offered now, in one or two plain sentences with the facts."""
    subject: str
    """What the work is about, without a commit or a time (see `Proposal`)."""
    evidence_at: datetime | None
    """When the reason arose, None if that is not known."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, Any] | None = None
    """The evidence, None if the parameters say all of it."""
    tier: Tier | None = None
    """None for the tier of the kind."""
    flow: str | None = ""
    """None for a text prompt, "" for the flow of the kind."""
    kind: str = ""
    """"" for the kind that has the name of the template."""
    channel: str = ""
    """"" for the channel of the kind."""
    task_id: str | None = None


def template(find: Callable[..., Iterable[Offer]]) -> Callable[..., list[Proposal]]:
    """Decorate a function that yields offers for a workspace, or for one of its projects: it then returns proposals."""

    @wraps(find)
    def propose(context: WorkspaceContext, *part: Part) -> list[Proposal]:
        return [make_proposal(context, offer.kind or find.__name__, offer, *part) for offer in find(context, *part)]

    return propose


def make_proposal(context: WorkspaceContext, kind: str, offer: Offer, part: Part | None = None) -> Proposal:
    """The proposal of an offer, with its six signals and with the defaults of its kind (`KINDS`).

    `part` is the project that it is about, which is added to the subject, the facts and the parameters.
    """
    kind_row, project_parameters = get_kind(kind), part.parameters if part else {}
    flow = kind_row.flow if offer.flow == "" else offer.flow
    facts = offer.parameters if offer.facts is None else offer.facts
    task = next((task for task in context.tasks if task.id == offer.task_id), None)
    return Proposal(
        kind=kind,
        workspace=context.workspace,
        prompt=_make_harmless_title(offer.prompt, kind_row) if kind in KINDS and flow else offer.prompt,
        reasoning=offer.reasoning,
        subject=part.about(offer.subject) if part else offer.subject,
        facts={**facts, **project_parameters},
        flow=flow,
        tier=offer.tier or kind_row.tier,
        parameters={**offer.parameters, **project_parameters},
        channel=offer.channel or kind_row.channel,
        evidence_at=offer.evidence_at,
        usual_hours=kind_row.usual_hours,
        signals=tuple(_make_signal(kind_row, common, context, task) for common in context.signals),
        task_id=offer.task_id,
    )


@lru_cache(256)  # each check makes the same titles again
def _make_harmless_title(title: str, kind: Kind) -> str:
    """The title of a card for a flow. Names in it come from git. If one of them reads like a destructive command, the
    content filter would hide the card, so the title is then without names. The flow does not read its title."""
    if check_prompt(title).verdict is not Verdict.BLOCK:
        return title
    return f"{kind.title}, with a name that reads like a command"


def _make_signal(kind: Kind, common: Signal, context: WorkspaceContext, task: Task | None) -> Signal:
    """The signal `common` of the workspace as it counts for a proposal of this kind, which is about `task`. Its
    relevance is 0 if the proposal does not arise from it."""
    if common.error and common.name != "git":
        return common
    if common.name == "tasks" and task is not None:
        return make_task_signal(task, context.local)
    if common.name == "conversations":
        return context.conversations(frozenset({kind.name, *kind.continues}))
    if common.name not in kind.signals:
        return context.unrelated_signals[common.name]
    return make_signal("git", kind.strength, *common.evidence) if common.name == "git" else common


def find_project_parameter(context: WorkspaceContext, paths: Iterable[str]) -> dict[str, str]:
    """The parameter that says which project a flow tests: of those with tests, the one with most of these files.

    It is empty for the project at the top of the workspace, and if none of the files is in a project with tests.
    """
    files_by_part = Counter(
        part for path in paths for part in range(len(context.parts)) if context.parts[part].holds(path)
    )
    tested = [part for part, _ in files_by_part.most_common() if context.parts[part].tool is not None]
    return context.parts[tested[0]].parameters if tested else {}


def find_ended_sessions(context: WorkspaceContext, project: str, *flows: str) -> list[SessionView]:
    """The sessions of these flows in a project that have ended, newest first."""
    return [
        session
        for session in context.sessions
        if session.flow in flows and session.state.is_over and session.project == project
    ]


def find_last_success(context: WorkspaceContext, project: str, flow: str) -> SessionView | None:
    """The newest session of a flow in a project that ran to its end."""
    ended = find_ended_sessions(context, project, flow)
    return next((session for session in ended if session.state is SessionState.SUCCEEDED), None)


def find_head_time(git: GitState) -> datetime | None:
    """When HEAD was committed, None before the first commit."""
    return git.recent[0].at if git.recent else None


def find_write_time(git: GitState, paths: Collection[str]) -> datetime | None:
    """When the first of these uncommitted files was written; if all are committed, when HEAD was committed."""
    return find_earliest(file.modified_at for file in git.files if file.path in paths) or find_head_time(git)


def find_last_change_time(git: GitState) -> datetime | None:
    """When a file was last written or committed, None if that is not known."""
    written = [file.modified_at for file in git.files if file.modified_at]
    return max([*written, *(commit.at for commit in git.recent[:1])], default=None)


def describe_branch(git: GitState) -> str:
    """The branch that work is on, as the subject of a card."""
    return plain(git.branch, 200) or "detached HEAD"


def is_usable(name: str) -> bool:
    """Whether the name of a ref or a test may become a parameter: as `is_usable_path`, and it is no option."""
    return is_usable_path(name) and not name.startswith("-")


def is_usable_path(path: str) -> bool:
    """Whether a path may become a parameter: it has no hidden characters and no bytes that are not UTF-8. It may begin
    with a dash, because flows give it to programs as `./-path`."""
    return bool(path) and path == path.strip() and "\n" not in path and sanitise(path) == path


def select_usable_paths(paths: Iterable[str]) -> list[str]:
    """The usable paths, sorted, without repeats."""
    return sorted({path for path in paths if is_usable_path(path)})


def find_earliest(moments: Iterable[datetime | None]) -> datetime | None:
    """The earliest of the known moments, None without any: evidence is as old as its first piece."""
    return min((moment for moment in moments if moment is not None), default=None)


def shorten_test(test: str) -> str:
    """The name of a test in at most 40 characters: `test_cart` for `tests/test_cart.py::TestCart::test_cart`. Of a
    longer dotted name, only the last part is kept."""
    name = test.rpartition("::")[2] or test
    if len(name) > 40 and name.replace(".", "").isidentifier():
        name = name.rpartition(".")[2]
    return plain(name, 40)


def select_usable_failures(run: ValidationRun) -> list[str]:
    """The tests that failed in a run and whose names may become a parameter."""
    return [test for test in run.check.failing if is_usable(test)]


def count_others(items: Sequence[object], joint: str = " and ", noun: str = "other") -> str:
    """Words that follow the first of some items: ` and 2 others`, or "" if there is only one."""
    return f"{joint}{count(len(items) - 1, noun)}" if len(items) > 1 else ""


def make_default_parameters(flow: str | None, local: datetime) -> dict[str, str]:
    """The parameters for a flow that is named without parameters, at the time `local`. Parameters with a default in the
    flow itself are left out."""
    if flow == "summarise_day":
        return {"since": find_day_begin(local).isoformat()}
    return {"today": format_midnight(local)} if flow == "look_for_leftovers" else {}


def format_midnight(local: datetime) -> str:
    """The start of the calendar day of a local time, in ISO format as flows expect it."""
    return local.replace(hour=0, minute=0, second=0, microsecond=0).isoformat()


def find_day_begin(local: datetime) -> datetime:
    """The beginning of the working day of a local time, at five in the morning as in `part_of_day`."""
    return (local - timedelta(hours=5)).replace(hour=5, minute=0, second=0, microsecond=0, fold=0)
