"""Runs of a project's own tests (SPEC 4.2, 4.9): one row each, and what they say of a single test.

Sessions store a run whenever tests end, also those of the validation loop. The templates of cards read them to say what
is new (`ValidationRuns.read_newest`). The functions below ask them whether a test passed, is unreliable or got slower.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Any

from sqlmodel import Field

from engine.frozen import frozen
from engine.git.history import is_in_history
from engine.git.repository import LOST_CODES, find_workspace_refusal
from engine.model import ChangeState, CheckResult, SessionView
from engine.model.refusal import find_or_none
from engine.model.sessions import KEPT_DURATIONS
from engine.storage import Row, ask, read_all, value_of
from engine.storage.database import Database, Transaction


class ValidationRun(Row, table=True):
    """One run of the tests of `project`, a folder of the workspace ("" = its top). `head` is the commit, and `tree` the
    git tree of the files at that time. `clean`: the files were those of the commit. `full`: the project's whole suite
    ran. `changed`: it ran on files that a session had changed, and that the operator did not have.

    `attempt` counts the runs of one validation loop from 1; it is 0 outside of one. `cost_microusd` is the cost of the
    loop until then (SPEC 4.9).
    """

    __tablename__ = "validation_runs"

    id: int | None = Field(default=None, primary_key=True)
    session_id: str
    workspace: str
    project: str = ""
    tool: str
    head: str = ""
    tree: str = ""
    clean: bool = False
    full: bool = False
    ran_at: datetime
    seconds: float = 0.0
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    errors: int = 0
    changed: bool = False
    attempt: int = 0
    cost_microusd: int = 0
    failing: list[str]
    durations: list[list[Any]]

    @classmethod
    def of(cls, check: CheckResult, **columns: Any) -> ValidationRun:
        """A run with the result `check`."""
        columns |= {name: getattr(check, name) for name in ("tool", "seconds", "passed", "failed", "skipped", "errors")}
        return cls(failing=list(check.failing), durations=[list(pair) for pair in check.durations], **columns)

    @cached_property
    def check(self) -> CheckResult:
        """The result of the run."""
        durations = tuple((str(name), float(seconds)) for name, seconds in self.durations)
        counted = self.failing != [self.tool]
        return value_of(self, CheckResult, failing=tuple(self.failing), durations=durations, counted=counted)


_SELECT_LANDED = f"""
    SELECT run.id, change_set.decided_at
    FROM validation_runs AS run JOIN change_sets AS change_set USING (session_id)
    WHERE run.workspace = :workspace AND run.changed AND run.tree <> '' AND change_set.state = '{ChangeState.LANDED}'
    AND run.tree = json_extract(change_set.landings, '$[#-1].plan.tree') ORDER BY run.id DESC LIMIT :limit
"""
"""Selects runs whose changes were landed, each with the time of the landing. The tree is that of the last landing."""


_get_counts = attrgetter("tool", "passed", "failed", "errors")
"""The tool of a result, and its counts."""


@frozen
class ValidationRuns:
    """Writes and reads runs."""

    database: Database

    def record(self, transaction: Transaction, *, check: CheckResult, cost: int = 0, **run: Any) -> None:
        """Store one run in `transaction`. `cost` is in micro-dollars; `run` are the other columns of
        `ValidationRun`."""
        transaction.insert(ValidationRun.of(check, ran_at=transaction.now, cost_microusd=cost, **run))

    def read_newest(self, workspace: str, limit: int = 20) -> list[ValidationRun]:
        """Runs on the operator's own files or commits, newest first.

        A run on the changes of a session says nothing about the operator's files, and is left out until these were
        landed as a whole and gave the very files that it saw. It then counts from the time of the landing on."""
        values = {"workspace": workspace, "limit": limit}
        with self.database.read() as session:
            unchanged = "WHERE workspace = :workspace AND NOT changed ORDER BY id DESC LIMIT :limit"
            runs = read_all(session, ValidationRun, unchanged, values)
            landed_at: dict[int | None, str] = dict(ask(session, _SELECT_LANDED, values))
            of_ids = "WHERE id IN (SELECT value FROM json_each(:ids))"
            landed = read_all(session, ValidationRun, of_ids, {"ids": [*landed_at]})
        for run in landed:
            run.ran_at = datetime.fromisoformat(landed_at[run.id])
        if landed:
            runs = sorted([*runs, *landed], key=lambda run: (run.ran_at, run.id), reverse=True)
        return runs[:limit]

    def find_last_check(self, workspace: str, get_session: Callable[[str], SessionView]) -> CheckResult | None:
        """The result of the latest run, None without any. What was wrong besides tests is stored with the session
        alone, which `get_session` gives. It belongs to the result if the session ended with this run."""
        for run in self.read_newest(workspace, 1):
            session = find_or_none(get_session, run.session_id)  # retention may have deleted it
            if session and session.check and _get_counts(session.check) == _get_counts(run.check):
                return replace(run.check, error=session.check.error)
            return run.check
        return None

    def read_of_session(self, session_id: str) -> list[ValidationRun]:
        """The runs of a session, the oldest first."""
        with self.database.read() as session:
            return read_all(session, ValidationRun, "WHERE session_id = :id ORDER BY id", {"id": session_id})

    def find_tests_mended_by(
        self, session_id: str, get_session: Callable[[str], SessionView]
    ) -> dict[str, ValidationRun]:
        """The tests that failed before a session and pass in its last run, each with the run in which it failed. Empty
        if its workspace is lost, because what failed there before cannot be told any more. Raises as `get_session`."""
        runs = self.read_of_session(session_id)
        if not runs:
            return {}
        view, after = get_session(session_id), runs[-1]
        refusal = find_workspace_refusal(view.workspace)
        if refusal and refusal.code in LOST_CODES:
            return {}
        before = [
            run
            for run in self.read_newest(view.workspace)
            if run.ran_at <= view.created_at
            and run.project == after.project
            and run.session_id != session_id
            and is_in_history(Path(view.workspace), run.head, after.head)  # another branch may lack the fault
        ]
        return find_mended_tests(before, after)


# -- what runs say of a test


def find_test_that_failed_alone(run: ValidationRun) -> str:
    """The test that failed in a run of this test only; "" for any other run."""
    check = run.check
    number = check.passed + check.failed + check.errors + check.skipped
    return check.failing[0] if number == 1 and check.failing and check.counted else ""


def read_verdict_on(run: ValidationRun, test: str) -> bool | None:
    """Whether `test` passed in `run`; None if the run does not say, because it broke or did not contain the test.

    Failing tests are listed. A test that is not listed has passed if it was measured, or if the whole suite ran.
    """
    if test in run.check.failing:
        return False
    if run.check.errors or run.check.passed == 0:
        return None
    if run.full or any(name == test for name, _ in run.check.durations):
        return True
    return None


def find_mended_tests(before: Sequence[ValidationRun], after: ValidationRun) -> dict[str, ValidationRun]:
    """Tests that pass in `after` and failed in the newest run of `before` (newest first) that says anything about them;
    each with that run."""
    mended: dict[str, ValidationRun] = {}
    for number, run in enumerate(before):
        for test in run.check.failing:
            has_passed_since = any(read_verdict_on(newer, test) for newer in before[:number])
            if test not in mended and not has_passed_since and read_verdict_on(after, test):
                mended[test] = run
    return mended


def find_unreliable_tests(runs: Sequence[ValidationRun]) -> list[tuple[str, str]]:
    """(test, tree) for tests that both passed and failed on the same files, those of the newest runs first."""
    unreliable: dict[str, str] = {}
    for run in runs:
        same_files = [candidate for candidate in runs if candidate.tree == run.tree and run.tree]
        for test in run.check.failing:
            if test not in unreliable and any(read_verdict_on(candidate, test) for candidate in same_files):
                unreliable[test] = run.tree
    return list(unreliable.items())


def find_seconds_of(run: ValidationRun, test: str) -> float | None:
    """The seconds that a test took in a run, None if the run does not say. Only the 50 slowest tests are stored.
    Another test of a whole suite took at most as long as the last of these."""
    times = dict(run.check.durations)
    if test not in times and run.full and len(times) >= KEPT_DURATIONS:
        return min(times.values())
    return times.get(test)
