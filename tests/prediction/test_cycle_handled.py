"""One rule a kind: did the operator do himself what the card proposed? (SPEC 2.9)"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pytest

from engine.git.commits import Commit
from engine.git.state import Branch, GitState
from engine.model import CheckResult
from engine.prediction.card_rows import Prediction
from engine.prediction.context import WorkspaceContext
from engine.prediction.intake import is_done_by_operator
from tests.conftest import MONDAY_MORNING as MADE

LATER, EARLIER = MADE + timedelta(hours=1), MADE - timedelta(hours=1)


@dataclass(frozen=True)
class Ran:
    """A past run."""

    ran_at: datetime
    failing: tuple[str, ...] = ()
    session_id: str = "s"
    head: str = "h"
    tree: str = "t"
    clean: bool = True
    full: bool = True

    @property
    def check(self) -> CheckResult:
        return CheckResult("pytest", 1, len(self.failing), failing=self.failing)


def commit(at: datetime) -> Commit:
    return Commit("c", at, "a", "s")


def now(runs: tuple[Ran, ...] = (), **state: Any) -> WorkspaceContext:
    return WorkspaceContext("/shop", LATER, LATER, git=GitState(**state), runs=runs)


def card(kind: str, *, facts: dict[str, Any] | None = None, **parameters: Any) -> Prediction:
    given = {"kind": kind, "facts": facts or {}, "parameters": parameters, "created_at": MADE}
    return Prediction(**given)


OPEN = Branch("x", "t", EARLIER)


@pytest.mark.parametrize(
    ("made", "state", "himself"),
    [
        (card("run_tests", paths=[]), now((Ran(LATER, session_id="own"),)), True),
        (card("run_tests", paths=[]), now((Ran(EARLIER, session_id="own"),)), False),
        (card("run_tests", paths=[]), now((Ran(LATER, session_id="of another card"),)), False),
        (card("rehearse_merge", source="main", target="x"), now(branch="x", recent=(commit(LATER),)), True),
        (card("rehearse_merge", source="main", target="x"), now(branch="x", recent=(commit(EARLIER),)), False),
        (card("rehearse_merge", source="main", target="x"), now(branch="y", recent=(commit(LATER),)), False),
        (
            card("rehearse_merge", source="main", target="x"),
            now(branch="x", behind_base=2, recent=(commit(LATER),)),
            False,
        ),
        (card("report_branches", facts={"branches": [["x", "t"]]}), now(), True),
        (card("report_branches", facts={"branches": [["x", "t"]]}), now(branches=(OPEN,)), False),
        (card("lint", paths=["a"]), now(), False),
    ],
)
def test_rules(made: Prediction, state: WorkspaceContext, himself: bool) -> None:
    assert is_done_by_operator(made, state, {"own"}) is himself


def test_nothing_can_be_told_without_git() -> None:
    context = WorkspaceContext("/shop", LATER, LATER, runs=(Ran(LATER),))
    assert not is_done_by_operator(card("run_tests"), context)
