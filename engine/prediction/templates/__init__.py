"""Templates (SPEC 2.3c): pure functions from a context to proposals, filled from what is really there.

One module a subject, one function a flow. A template offers nothing when its precondition does not hold. `facts` name
the evidence and never the time of day, so that the same state is the same card and a changed state is a new one.
`subject` names what the work is about and stays the same from commit to commit: a dismissal is remembered by it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from engine.prediction.context import Part, WorkspaceContext
from engine.prediction.templates import branches, due, environments, history, quality, risks, tests
from engine.values import Proposal

Template = Callable[[WorkspaceContext], list[Proposal]]
PartTemplate = Callable[[WorkspaceContext, Part], list[Proposal]]

TEMPLATES: Final[tuple[Template, ...]] = (
    risks.secret,
    risks.large_file,
    risks.reclaim_space,
    tests.failing_ci,
    branches.rehearse_merge,
    branches.forecast_conflicts,
    branches.report_branches,
    history.waiting_work,
    history.draft_changelog,
    history.prepare_meeting,
    history.summarise_day,
    due.heartbeat,
)
"""What is asked of a workspace as a whole."""

PART_TEMPLATES: Final[tuple[PartTemplate, ...]] = (
    tests.undo_landing,
    tests.rehearse_revert,
    environments.prepare_environment,
    environments.update_lock,
    tests.bisect,
    tests.still_red,
    tests.rerun_failing,
    tests.run_tests,
    tests.check_clean_head,
    tests.hunt_flakes,
    quality.fix_lint,
    quality.lint,
)
"""What is asked of each of its projects."""


def propose(context: WorkspaceContext) -> list[Proposal]:
    """Everything that the state of the workspace suggests, unranked; [] when git could not be read."""
    if context.git is None:
        return []
    found = [proposal for template in TEMPLATES for proposal in template(context)]
    return found + [
        proposal for part in context.parts for template in PART_TEMPLATES for proposal in template(context, part)
    ]
