"""What a flow is and what it works with (SPEC 3.8, 3.9): deterministic work that needs no model.

A flow is a pydantic model of its parameters with a name, a place and a `run(job)`. Everything it does to the outside
goes through its `Job`: commands are checked by the content filter, sandboxed, streamed to the transcript
and end with the session.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, Protocol

from pydantic import BaseModel, ConfigDict

from engine.clock import Clock, SystemClock
from engine.execution.housekeeping import Housekeeping
from engine.frozen import frozen
from engine.git import Git
from engine.model import CheckResult

MAX_OUTPUT_CHARACTERS = 256 * 1024
"""Maximum number of characters, from the end of a command's output, that a flow gets; the transcript has the rest."""


class Place(StrEnum):
    """Where a flow works."""

    OPERATOR_TREE = "operator-tree"  # only looks, at the operator's own tree, and runs no command in it
    CHECK = "check"  # runs commands over the operator's own tree; what they write there is discarded
    INSTALL = "install"  # as CHECK; the packages alone are put into the tree when all went well
    WORKTREE = "worktree"  # a throw-away worktree; nothing of it stays
    BRANCH = "branch"  # looks at the operator's own tree and makes a branch; no file, index or HEAD changes
    ENGINE = "engine"  # runs no command; acts on what the engine itself keeps, see `Job.its_upkeep`
    CHANGE_SET = "change-set"  # a worktree whose diff becomes a change set


class FlowUnable(Exception):
    """The flow cannot do its work: a tool is missing, the state does not allow it. The session fails, saying so."""

    def __init__(self, message: str, fix: str = "") -> None:
        super().__init__(message if not fix else f"{message} ({fix})")
        self.message = message
        self.fix = fix


class CannotRun(FlowUnable):
    """A program, package, permission or network that the work needs is missing (SPEC 2.12). The message names it, the
    fix what brings it. The session ends as `cannot_run`, which is neither a failure nor a success."""


class NotBegun(CannotRun):
    """Nothing was done, and done later the same may succeed: what it needs is not to be had now. Its card is given
    back."""


class CommandBlocked(FlowUnable):
    """The content filter did not let a command run (SPEC 3.5). The session ends as blocked."""


class Stopped(BaseException):
    """The session is ending: raised out of `Job.run`, `Job.say` and `Job.git` so that the flow unwinds.

    No `Exception`, so that a flow's own error handling does not hold it up. Let it pass.
    """


@frozen
class CommandResult:
    """A finished command. `output` is stdout and stderr as they came, sanitised; only the last
    `MAX_OUTPUT_CHARACTERS` are kept.

    `exit_code` is negative for a signal; 124 when its own timeout ended it (`timed_out`).
    """

    exit_code: int
    output: str
    seconds: float
    timed_out: bool = False

    @property
    def ok(self) -> bool:
        """True when it ended with 0."""
        return self.exit_code == 0


@frozen
class FlowResult:
    """What a flow that ran to its end found. `full`: `check` covers the whole suite. `sound` is False when something is
    wrong and `check` does not say so: a secret, a conflict, a flaky test. `facts` are JSON-able; `next` among them
    names the flow that should follow (SPEC 2.10)."""

    summary: str
    check: CheckResult | None = None
    sound: bool = True
    facts: Mapping[str, Any] = field(default_factory=dict)
    full: bool = False


class JobSession(Protocol):
    """What a session offers to the work that runs in it."""

    @property
    def scratch(self) -> Path: ...

    @property
    def cancelled(self) -> bool: ...

    def say(self, text: str, *, error: bool = False) -> None: ...

    def execute(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        quiet: bool = False,
    ) -> CommandResult: ...


@frozen
class Job:
    """One run of a flow.

    `workspace` is the operator's repository; `folder` is where to work: the same, or a worktree of it. What commands
    write in the operator's own is not seen outside them. `git` is on
    `folder`, unsandboxed but without hooks, and may check out any commit there when the place is a worktree; inside
    the sandbox `.git` is read-only. `suspect_imports`: an agent has just written here, and an import that fails is
    more likely its mistake than a missing package.
    """

    workspace: Path
    folder: Path
    git: Git
    session: JobSession
    suspect_imports: bool = False
    upkeep: Housekeeping | None = None
    clock: Clock = field(default_factory=SystemClock)

    def its_upkeep(self) -> Housekeeping:
        """What a flow of `Place.ENGINE` acts through. Raises `FlowUnable` where there is none."""
        if self.upkeep is None:
            raise FlowUnable("only the engine can do this", "approve its card")
        return self.upkeep

    @property
    def scratch(self) -> Path:
        """A temporary folder, writable in the sandbox under the same path, gone after the session."""
        return self.session.scratch

    @property
    def cancelled(self) -> bool:
        """True once the session is to end; long loops in Python should look."""
        return self.session.cancelled

    def say(self, text: str) -> None:
        """Put a note of the flow's own into the transcript."""
        self.session.say(text)

    def say_list(self, lines: Sequence[object], limit: int, *, indent: str = "") -> None:
        """Put at most `limit` lines into the transcript, and how many more there are."""
        for line in lines[:limit]:
            self.say(f"{indent}{line}")
        if len(lines) > limit:
            self.say(f"{indent}and {len(lines) - limit} more")

    def run(
        self,
        argv: Sequence[str],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        quiet: bool = False,
        allowed_codes: Sequence[int] | None = None,
    ) -> CommandResult:
        """Run a command to its end, in `folder` unless `cwd` says otherwise, and stream its output.

        `env` is added to the session's clean environment. `timeout` in seconds ends this command alone. `quiet`
        keeps command and output out of the transcript. With `allowed_codes`, any other exit code raises.

        Raises `CannotRun` when the program is not there, `FlowUnable` when the exit code is not allowed,
        `CommandBlocked` when the content filter says no, `Stopped` when the session is ending.
        """
        result = self.session.execute(argv, cwd=cwd or self.folder, env=env, timeout=timeout, quiet=quiet)
        if allowed_codes is not None and result.exit_code not in allowed_codes:
            ending = (
                f"took longer than {timeout:g} s" if result.timed_out else f"ended with exit code {result.exit_code}"
            )
            last = result.output.strip().splitlines()[-1:] or ["it printed nothing"]
            raise FlowUnable(f"`{shlex.join(argv)[:200]}` {ending}: {last[0][:300]}")
        return result


class Flow(BaseModel):
    """One kind of deterministic work, asked for by its `name`; its parameters are its fields: nothing unknown is
    accepted, nothing changes later. `label` is what it is called on screens."""

    model_config = ConfigDict(extra="forbid", frozen=True, str_max_length=1000, defer_build=True)

    name: ClassVar[str]
    label: ClassVar[str]
    place: ClassVar[Place]

    def describe(self) -> str:
        """The assignment in words, as the card shows it, also after its parameters were edited."""
        raise NotImplementedError

    def run(self, job: Job) -> FlowResult:
        """Do it. Returning means that it ran to its end, whatever it found; see `FlowUnable` and `Stopped`."""
        raise NotImplementedError
