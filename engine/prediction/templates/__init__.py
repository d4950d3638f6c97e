"""Templates (SPEC 2.3c): pure functions that read the context of a workspace and return proposals.

Each module is about one subject, and each function proposes one kind of card, or nothing if there is no reason for it.
The `facts` of a proposal name its evidence, never the time of day: the same evidence gives the same card, and new
evidence gives a new one. Its `subject` names what the work is about, and stays the same from commit to commit. A
dismissal is remembered by it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from engine.frozen import frozen
from engine.model import Proposal
from engine.prediction import get_kind, is_heartbeat
from engine.prediction.context import Part, WorkspaceContext
from engine.prediction.templates import agent_work, branches, changes, commits, failures, runs, unreliable_tests

Template = Callable[[WorkspaceContext], Sequence[Proposal]]
"""Proposes cards for a workspace."""

PartTemplate = Callable[[WorkspaceContext, Part], Sequence[Proposal]]
"""Proposes cards for one of its projects."""

TEMPLATES: tuple[Template, ...] = (
    branches.unfinished_operation,
    failures.update_lock,
    commits.secret,
    commits.large_file,
    failures.reclaim_space,
    runs.failing_ci,
    branches.rehearse_merge,
    branches.forecast_conflicts,
    branches.report_branches,
    branches.lost_commits,
    branches.autosquash,
    branches.old_stash,
    branches.pull_request,
    commits.waiting_work,
    commits.changes_together,
    commits.release_due,
    commits.prepare_meeting,
    commits.summarise_day,
    changes.leftovers,
    changes.remove_leftovers,
    changes.stale_docs,
    changes.update_docs,
    agent_work.let_agent_fix,
    agent_work.heartbeat,
    agent_work.open_task,
)
"""The templates for a workspace as a whole."""

PART_TEMPLATES: tuple[PartTemplate, ...] = (
    failures.undo_landing,
    failures.rehearse_revert,
    failures.prepare_environment,
    failures.keep_first_lock,
    failures.bisect,
    failures.apply_fix,
    failures.still_red,
    runs.rerun_failing,
    runs.run_tests,
    runs.check_clean_head,
    unreliable_tests.hunt_flakes,
    unreliable_tests.quarantine,
    runs.slower_tests,
    changes.uncovered_lines,
    changes.fix_lint,
    changes.lint,
)
"""The templates for each of its projects."""


@frozen
class Proposed:
    """What templates and other sources proposed for a workspace, not ranked yet."""

    proposals: tuple[Proposal, ...]
    errors: tuple[Exception, ...]
    """The errors of those that failed. Only their own proposals are missing."""


def propose(context: WorkspaceContext, sources: Iterable[Template] = ()) -> Proposed:
    """Ask all templates and `sources` for proposals."""
    errors: list[Exception] = []
    proposals = _propose_by_templates(context, errors)
    for source in sources:
        proposals += _ask_source(partial(source, context), errors)
    return Proposed(tuple(proposals), tuple(errors))


def _propose_by_templates(context: WorkspaceContext, errors: list[Exception]) -> list[Proposal]:
    """The proposals of all templates; if git could not be read, only those of heartbeats."""
    if context.git is None:
        return _ask_source(partial(agent_work.heartbeat, context), errors)
    proposals: list[Proposal] = []
    for template in TEMPLATES:
        proposals += _ask_source(partial(template, context), errors)
    for part in context.parts:
        of_part: list[Proposal] = []
        for part_template in PART_TEMPLATES:
            of_part += _ask_source(partial(part_template, context, part), errors)
        kinds = {proposal.kind for proposal in of_part}
        proposals += [proposal for proposal in of_part if kinds.isdisjoint(get_kind(proposal.kind).yields_to)]
    if not context.git.operation:
        return proposals
    return [
        proposal
        for proposal in proposals
        if get_kind(proposal.kind).during_operation
        or is_heartbeat(proposal.kind)
        or proposal.facts.get("after") == "unfinished_operation"
    ]


def _ask_source(ask: Callable[[], Sequence[Proposal]], errors: list[Exception]) -> list[Proposal]:
    """The proposals of one template or source. Its error is added to `errors`."""
    try:
        return list(ask())
    except Exception as error:  # the others go on, and the check names it
        errors.append(error)
        return []
