"""Open pull requests and failing CI, from the `gh` command where it is there (SPEC 2.1).

`gh` asks a server, so nobody waits for it: `latest` gives what is known and looks again in the background.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from engine.clock import Clock
from engine.values import sanitise

FRESH_SECONDS: Final = 300.0
"""An answer is good for so long."""

LIMIT_SECONDS: Final = 10.0
"""`gh` is given up after so long."""

_FIELDS: Final = "number,title,headRefName,statusCheckRollup"
_FAILED: Final = {"FAILURE", "ERROR", "TIMED_OUT", "STARTUP_FAILURE"}


@dataclass(frozen=True, slots=True)
class PullRequest:
    """An open pull request and the names of its failing checks."""

    number: int
    title: str
    branch: str
    failing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FailingCheck:
    """A CI check that failed on a branch."""

    branch: str
    name: str


@dataclass(frozen=True, slots=True)
class GitHubState:
    """What the server said last, or why it said nothing."""

    pull_requests: tuple[PullRequest, ...] = ()
    error: str = ""

    @property
    def failing(self) -> tuple[FailingCheck, ...]:
        """Every failing check of every open pull request."""
        return tuple(FailingCheck(request.branch, name) for request in self.pull_requests for name in request.failing)


class GitHub:
    """Asks `gh` for one workspace after the other, each at most every five minutes, never in the caller's thread."""

    def __init__(self, clock: Clock, program: str = "gh") -> None:
        self._clock = clock
        self._program = program
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, GitHubState]] = {}
        self._asking: dict[str, threading.Thread] = {}

    def latest(self, workspace: str) -> GitHubState | None:
        """What is known by now, at once; None while nothing is, and where there is no `gh`."""
        with self._lock:
            asked_at, state = self._known.get(workspace, (float("-inf"), None))
            stale = self._clock.monotonic() - asked_at >= FRESH_SECONDS
            if stale and workspace not in self._asking and shutil.which(self._program):
                thread = threading.Thread(target=self._ask, args=(workspace,), name="gh", daemon=True)
                self._asking[workspace] = thread
                thread.start()
        return state

    def settle(self, timeout: float | None = None) -> None:
        """Wait until every question asked so far is answered, each at most `timeout` seconds."""
        with self._lock:
            asking = list(self._asking.values())
        for thread in asking:
            thread.join(timeout)

    def _ask(self, workspace: str) -> None:
        state = ask(workspace, self._program)
        with self._lock:
            self._known[workspace] = (self._clock.monotonic(), state)
            del self._asking[workspace]


def ask(workspace: str, program: str = "gh") -> GitHubState:
    """One question, at most ten seconds; what goes wrong becomes `error`."""
    environment = os.environ | {"GH_PROMPT_DISABLED": "1", "GH_NO_UPDATE_NOTIFIER": "1", "NO_COLOR": "1"}
    try:
        done = subprocess.run(
            [program, "pr", "list", "--state", "open", "--limit", "20", "--json", _FIELDS],
            cwd=Path(workspace),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=environment,
            timeout=LIMIT_SECONDS,
            check=False,
        )
        if done.returncode != 0:
            complaint = sanitise(done.stderr.decode(errors="replace")).strip()
            return GitHubState(error=complaint.splitlines()[0] if complaint else f"exit code {done.returncode}")
        return parse(done.stdout)
    except subprocess.TimeoutExpired:
        return GitHubState(error=f"no answer within {LIMIT_SECONDS:.0f} s")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return GitHubState(error=sanitise(f"{type(error).__name__}: {error}"))


def parse(document: bytes) -> GitHubState:
    """The state that `gh pr list --json` describes. Raises ValueError, KeyError, TypeError on another shape."""
    return GitHubState(tuple(_pull_request(entry) for entry in json.loads(document)))


def _pull_request(entry: dict[str, Any]) -> PullRequest:
    failing = [
        sanitise(str(check.get("name") or check.get("context") or "a check"))
        for check in entry.get("statusCheckRollup") or ()
        if (check.get("conclusion") or check.get("state")) in _FAILED
    ]
    return PullRequest(
        int(entry["number"]), sanitise(str(entry["title"])), sanitise(str(entry["headRefName"])), tuple(failing)
    )
