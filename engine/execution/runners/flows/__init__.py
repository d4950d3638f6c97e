"""The deterministic flows, which are work without a model (SPEC 3.9). Each is a class, a `Flow` of `runners.flow`.

Flows may import `runners.flow`, `runners.toolchains`, engine.git and engine.model. They start programs and change files
only through their `Job`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from engine.execution.runners.flow import Flow
from engine.execution.runners.flows.documents import DraftChangelog, LookAtRelease, WriteAgentsMd
from engine.execution.runners.flows.failing_tests import ApplyFix, Bisect, NarrowFailures, RehearseRevert
from engine.execution.runners.flows.history import FindJointChanges, LookAtPullRequest, SummariseDay
from engine.execution.runners.flows.leftovers import FindOutdatedDocs, LookForLeftovers, RemoveLeftovers, UpdateDocs
from engine.execution.runners.flows.merging import ForecastConflicts, RehearseMerge, UnfinishedOperation
from engine.execution.runners.flows.testing import CheckCleanHead, RunTests, UncoveredLines
from engine.execution.runners.flows.tooling import FixLint, Lint, PrepareEnvironment, UpdateLock
from engine.execution.runners.flows.unpublished_changes import LookAtChanges, ReviewUnpushed
from engine.execution.runners.flows.unreliable_tests import HuntFlakes, Quarantine, TimeTests
from engine.execution.runners.flows.upkeep import (
    KeepCommits,
    LookAtStash,
    ReclaimSpace,
    RehearseAutosquash,
    ReportBranches,
    UndoLanding,
)

_FLOW_CLASSES: tuple[type[Flow], ...] = (
    RunTests, Bisect, RehearseMerge, RehearseRevert, ApplyFix, HuntFlakes, CheckCleanHead, DraftChangelog, Lint,
    FixLint, ForecastConflicts, ReviewUnpushed, LookAtChanges, UndoLanding, ReclaimSpace, ReportBranches,
    SummariseDay, PrepareEnvironment, UpdateLock, WriteAgentsMd, FindJointChanges, LookAtRelease, UnfinishedOperation,
    KeepCommits, RehearseAutosquash, LookAtStash, LookForLeftovers, RemoveLeftovers, FindOutdatedDocs, UpdateDocs,
    NarrowFailures, UncoveredLines, Quarantine, TimeTests, LookAtPullRequest,
)  # fmt: skip

FLOWS: Mapping[str, type[Flow]] = MappingProxyType({flow.name: flow for flow in _FLOW_CLASSES})
"""Every flow by its name."""
