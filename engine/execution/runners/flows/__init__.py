"""The deterministic flows: work that needs no model (SPEC 3.9), one module each.

Each is a `Flow` of `runners.flow`. They may import `runners.flow`, `runners.toolchains`, engine.git and engine.model;
all they do to the outside goes through their `Job`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from engine.execution.runners.flow import Flow
from engine.execution.runners.flows.apply_fix import ApplyFix
from engine.execution.runners.flows.bisect import Bisect
from engine.execution.runners.flows.check_clean_head import CheckCleanHead
from engine.execution.runners.flows.draft_changelog import DraftChangelog
from engine.execution.runners.flows.forecast_conflicts import ForecastConflicts
from engine.execution.runners.flows.hunt_flakes import HuntFlakes
from engine.execution.runners.flows.keep_commits import KeepCommits
from engine.execution.runners.flows.lint import FixLint, Lint
from engine.execution.runners.flows.look_at_changes import LookAtChanges
from engine.execution.runners.flows.look_at_mentions import LookAtMentions, UpdateDocs
from engine.execution.runners.flows.look_at_pull_request import LookAtPullRequest
from engine.execution.runners.flows.look_at_release import LookAtRelease
from engine.execution.runners.flows.look_at_stash import LookAtStash
from engine.execution.runners.flows.look_for_leftovers import LookForLeftovers, RemoveLeftovers
from engine.execution.runners.flows.look_together import LookTogether
from engine.execution.runners.flows.narrow_failures import NarrowFailures
from engine.execution.runners.flows.prepare_environment import PrepareEnvironment
from engine.execution.runners.flows.quarantine import Quarantine
from engine.execution.runners.flows.reclaim_space import ReclaimSpace
from engine.execution.runners.flows.rehearse_autosquash import RehearseAutosquash
from engine.execution.runners.flows.rehearse_merge import RehearseMerge
from engine.execution.runners.flows.rehearse_revert import RehearseRevert
from engine.execution.runners.flows.report_branches import ReportBranches
from engine.execution.runners.flows.review_unpushed import ReviewUnpushed
from engine.execution.runners.flows.run_tests import RunTests
from engine.execution.runners.flows.summarise_day import SummariseDay
from engine.execution.runners.flows.time_tests import TimeTests
from engine.execution.runners.flows.uncovered_lines import UncoveredLines
from engine.execution.runners.flows.undo_landing import UndoLanding
from engine.execution.runners.flows.unfinished_operation import UnfinishedOperation
from engine.execution.runners.flows.update_lock import UpdateLock
from engine.execution.runners.flows.write_agents_md import WriteAgentsMd

__all__ = ["FLOWS"]

_EVERY: tuple[Flow, ...] = (
    RunTests(),
    Bisect(),
    RehearseMerge(),
    RehearseRevert(),
    ApplyFix(),
    HuntFlakes(),
    CheckCleanHead(),
    DraftChangelog(),
    Lint(),
    FixLint(),
    ForecastConflicts(),
    ReviewUnpushed(),
    LookAtChanges(),
    UndoLanding(),
    ReclaimSpace(),
    ReportBranches(),
    SummariseDay(),
    PrepareEnvironment(),
    UpdateLock(),
    WriteAgentsMd(),
    LookTogether(),
    LookAtRelease(),
    UnfinishedOperation(),
    KeepCommits(),
    RehearseAutosquash(),
    LookAtStash(),
    LookForLeftovers(),
    RemoveLeftovers(),
    LookAtMentions(),
    UpdateDocs(),
    NarrowFailures(),
    UncoveredLines(),
    Quarantine(),
    TimeTests(),
    LookAtPullRequest(),
)

FLOWS: Mapping[str, Flow] = MappingProxyType({flow.name: flow for flow in _EVERY})
"""Every flow by its name."""
