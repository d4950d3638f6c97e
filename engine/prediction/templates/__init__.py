"""Templates (SPEC 2.3c): pure functions from a context to proposals, filled from what is really there.

One module a subject, one function a flow. A template offers nothing when its precondition does not hold. `facts` name
the evidence and never the time of day, so that the same state is the same card and a changed state is a new one.
`subject` names what the work is about and stays the same from commit to commit: a dismissal is remembered by it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from engine.prediction.context import WorkspaceContext
from engine.prediction.templates import branches, due, history, quality, risks, tests
from engine.values import Proposal

Template = Callable[[WorkspaceContext], list[Proposal]]

TEMPLATES: Final[tuple[Template, ...]] = (
    risks.secret,
    risks.large_file,
    risks.reclaim_space,
    tests.undo_landing,
    tests.rehearse_revert,
    tests.bisect,
    tests.still_red,
    tests.rerun_failing,
    tests.failing_ci,
    tests.run_tests,
    tests.check_clean_head,
    tests.hunt_flakes,
    branches.rehearse_merge,
    branches.forecast_conflicts,
    branches.report_branches,
    history.waiting_work,
    history.draft_changelog,
    history.prepare_meeting,
    history.summarise_day,
    quality.fix_lint,
    quality.lint,
    due.heartbeat,
)


def propose(context: WorkspaceContext) -> list[Proposal]:
    """Everything that the state of the workspace suggests, unranked; [] when git could not be read."""
    if context.git is None:
        return []
    return [proposal for template in TEMPLATES for proposal in template(context)]
