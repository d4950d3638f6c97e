"""Runners carry out assignments (SPEC 3.8). This module has the errors, the results and the places of all their work.

`flow_runner` runs flows, which need no model. `model` runs an agent loop with one of the operator's models. `acp`
drives a coding agent. `runner` has the protocol of these three. `validation` runs the tests of what agents changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Any

from engine.frozen import frozen
from engine.model import CheckResult
from engine.text import one_line

# -- errors


class WorkFailed(Exception):
    """The work of a session cannot be done: a tool is missing, the state does not allow it, or a model or an agent
    failed. The session fails with it."""

    def __init__(self, message: str, fix: str = "") -> None:
        self.message = one_line(message)
        super().__init__(f"{self.message} ({fix})" if fix else self.message)
        self.fix = fix


class CannotRun(WorkFailed):
    """A program, package, permission or network that the work needs is missing (SPEC 2.12), or a commit that its
    parameters name. The message names it, and the fix says how to get it. The session ends as `cannot_run`, which is
    neither a failure nor a success."""


class RetryLater(CannotRun):
    """Something that the work needs is not available now. Nothing was done. The card is offered again, because the same
    work may succeed later."""


class CommandBlocked(WorkFailed):
    """The content filter did not let a command run (SPEC 3.5). The session ends as blocked."""


class SessionStopped(BaseException):
    """The session is ending. `Job.run`, `Job.say` and `Job.git` raise it to end the flow.

    It is not an `Exception`, so that the error handling of a flow does not catch it.
    """


# -- results

Facts = dict[str, Any]
"""Values of a result that can be written as JSON. `next` is the name of the flow that should follow (SPEC 2.10)."""


@frozen
class WorkResult:
    """The result of work that ran to its end."""

    summary: str
    check: CheckResult | None = None
    has_problem: bool = False
    """Whether it found a problem that `check` does not show, such as a secret, a conflict or a flaky test."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """See `Facts`."""


MAX_OUTPUT_CHARS = 256 * 1024
"""Maximum number of characters that a flow gets from the end of a command's output. The transcript has all of it."""


@frozen
class CommandResult:
    """The result of a finished command."""

    exit_code: int
    """Negative if a signal ended it; 124 if its timeout did."""
    output: str
    """The last `MAX_OUTPUT_CHARS` of stdout and stderr together, sanitised."""
    seconds: float
    timed_out: bool = False

    @property
    def ok(self) -> bool:
        """Whether its exit code is 0."""
        return self.exit_code == 0


# -- places


class Place(StrEnum):
    """Where a flow works."""

    OPERATOR_TREE = "operator-tree"
    """Only reads the operator's own tree, and runs no command in it."""
    CHECK = "check"
    """Runs commands over the operator's own tree; what they write there is discarded."""
    INSTALL = "install"
    """As CHECK, but after a success the installed packages are put into the tree."""
    WORKTREE = "worktree"
    """Works in a throw-away worktree."""
    BRANCH = "branch"
    """Reads the operator's own tree and makes a branch. No file changes, nor the index or HEAD."""
    ENGINE = "engine"
    """Runs no command. It changes the engine's own files (see `Job.require_housekeeping`)."""
    CHANGE_SET = "change-set"
    """Works in a worktree whose diff becomes a change set."""


UNDO_NOTES = {
    Place.OPERATOR_TREE: "nothing to undo: it only reads your tree",
    Place.CHECK: "nothing to undo: files that the run writes are discarded",
    Place.INSTALL: "installs packages; see what it creates",
    Place.WORKTREE: "nothing to undo: it works in a temporary copy of your tree",
    Place.BRANCH: "delete the branch; the result shows the command",
    Place.CHANGE_SET: "you decide whether to land the diff, and landing can be undone",
}
"""The undo note of a card for each place (SPEC 9.2). Flows of `Place.ENGINE` say it themselves."""
