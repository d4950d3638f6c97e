"""Did the operator do himself what a card proposed? (SPEC 2.9, 8.1: chosen 0.7.) One rule a kind, pure.

Asked when a card's evidence is gone. A rule says yes only when what is there now can hardly come from anything but
the proposed work having been done; where that cannot be told there is no rule, and the card goes without a signal:

| kind | done when |
|---|---|
| run_tests | the tests ran after the card was made (another card, or his own prompt) |
| bisect | the tests ran after the card was made, and the test no longer fails |
| check_clean_head | HEAD moved and none of the files is uncommitted any more: he committed them |
| rehearse_merge | the branch is on the target and no commit of the source is missing: he merged |
| forecast_conflicts | one of the branches is merged |
| report_branches | one of the branches is gone |
| draft_changelog | a change log is among the files of the latest commits, or a new tag was made |

No rule: lint, fix_lint, hunt_flakes, review_unpushed (pushing is not reviewing), summarise_day.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any

from engine.prediction.context import WorkspaceContext

_CHANGE_LOGS = ("change", "history", "news", "release")


@dataclass(frozen=True, slots=True)
class Made:
    """The card that is asked about: what it was for, and when it was made."""

    kind: str
    facts: Mapping[str, Any]
    parameters: Mapping[str, Any]
    at: datetime


def did_himself(card: Made, now: WorkspaceContext) -> bool:
    """Whether the state of the workspace says that the operator did what `card` proposed."""
    rule = _RULES.get(card.kind)
    return rule is not None and now.git is not None and rule(card, now)


def _run_tests(card: Made, now: WorkspaceContext) -> bool:
    return any(run.ran_at > card.at for run in now.runs)


def _bisect(card: Made, now: WorkspaceContext) -> bool:
    return (
        bool(now.runs) and now.runs[0].ran_at > card.at and card.parameters.get("test") not in now.runs[0].check.failing
    )


def _check_clean_head(card: Made, now: WorkspaceContext) -> bool:
    assert now.git is not None
    left = {file.path for file in now.git.files}
    return now.git.head != card.facts.get("head") and not left.intersection(card.parameters.get("files", ()))


def _rehearse_merge(card: Made, now: WorkspaceContext) -> bool:
    assert now.git is not None
    return now.git.branch == card.parameters.get("target") and now.git.behind_base == 0 and _moved(card, now)


def _forecast_conflicts(card: Made, now: WorkspaceContext) -> bool:
    assert now.git is not None
    named = set(card.parameters.get("branches", ()))
    return any(branch.name in named and branch.merged for branch in now.git.branches)


def _report_branches(card: Made, now: WorkspaceContext) -> bool:
    assert now.git is not None
    there = {branch.name for branch in now.git.branches}
    return any(name not in there for name, _ in card.facts.get("branches", ()))


def _draft_changelog(card: Made, now: WorkspaceContext) -> bool:
    assert now.git is not None
    if now.git.tag and now.git.tag != card.parameters.get("since") and _moved(card, now):
        return True
    latest = bool(now.git.recent) and now.git.recent[0].at > card.at
    return latest and any(PurePosixPath(path).name.lower().startswith(_CHANGE_LOGS) for path in now.git.recent_files)


def _moved(card: Made, now: WorkspaceContext) -> bool:
    """Something was committed or merged since the card was made."""
    return now.git is not None and bool(now.git.recent) and now.git.recent[0].at > card.at


_RULES: dict[str, Callable[[Made, WorkspaceContext], bool]] = {
    "run_tests": _run_tests,
    "bisect": _bisect,
    "check_clean_head": _check_clean_head,
    "rehearse_merge": _rehearse_merge,
    "forecast_conflicts": _forecast_conflicts,
    "report_branches": _report_branches,
    "draft_changelog": _draft_changelog,
}
