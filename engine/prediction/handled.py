"""Did the operator do himself what a card proposed? (SPEC 2.9, 8.1: chosen 0.7.) One rule a kind, pure.

Asked when a card's evidence is gone. A rule says yes only when what is there now can hardly come from anything but
the proposed work having been done; where that cannot be told there is no rule, and the card goes without a signal:

| kind | done when |
|---|---|
| run_tests | the tests ran after the card was made, at a prompt of his own |
| rehearse_merge | the branch is on the target and no commit of the source is missing: he merged |
| report_branches | one of the branches is gone: he tidied up |

What another card did is no work of his own: its approval says what it says by itself. Nor is what only takes the
evidence away: committing a file is not checking HEAD without it, a tag is not a change log, a test that passes again
was not bisected, and a branch that was merged was not compared with the others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from engine.prediction.context import WorkspaceContext


@dataclass(frozen=True, slots=True)
class Made:
    """The card that is asked about: what it was for, and when it was made."""

    kind: str
    facts: Mapping[str, Any]
    parameters: Mapping[str, Any]
    at: datetime


def did_himself(card: Made, now: WorkspaceContext, own: Collection[str] = ()) -> bool:
    """Whether the state of the workspace says that the operator did what `card` proposed. `own`: sessions that he began
    with prompts of his own."""
    rule = _RULES.get(card.kind)
    return rule is not None and now.git is not None and rule(card, now, own)


def _run_tests(card: Made, now: WorkspaceContext, own: Collection[str]) -> bool:
    return any(run.ran_at > card.at and run.session_id in own for run in now.runs)


def _rehearse_merge(card: Made, now: WorkspaceContext, own: Collection[str]) -> bool:
    assert now.git is not None
    return now.git.branch == card.parameters.get("target") and now.git.behind_base == 0 and _moved(card, now)


def _report_branches(card: Made, now: WorkspaceContext, own: Collection[str]) -> bool:
    assert now.git is not None
    there = {branch.name for branch in now.git.branches}
    return any(name not in there for name, _ in card.facts.get("branches", ()))


def _moved(card: Made, now: WorkspaceContext) -> bool:
    """Something was committed or merged since the card was made."""
    return now.git is not None and bool(now.git.recent) and now.git.recent[0].at > card.at


_RULES: dict[str, Callable[[Made, WorkspaceContext, Collection[str]], bool]] = {
    "run_tests": _run_tests,
    "rehearse_merge": _rehearse_merge,
    "report_branches": _report_branches,
}
