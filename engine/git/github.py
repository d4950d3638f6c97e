"""Open pull requests and failing CI, from the `gh` command where it is there (SPEC 2.1).

`gh` asks a server, so no caller waits for it: `latest` returns the last answer and asks again in the background.
"""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import threading
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from engine import programs
from engine.clock import Clock
from engine.frozen import frozen
from engine.git import Git
from engine.model import Refusal, sanitise

log = logging.getLogger(__name__)

_NEVER: Final = datetime.min.replace(tzinfo=UTC)
MAX_AGE_S: Final = 300.0
"""An answer is good for so long."""

TIMEOUT_S: Final = 10.0
"""`gh` is given up after so long."""

_JSON_FIELDS: Final = (
    "number,title,headRefName,statusCheckRollup,author,url,isDraft,reviewDecision,reviewRequests,latestReviews,comments"
)
_REMOTE_ORDER: Final = ("upstream", "github", "origin")
_REMOTE_ADDRESS: Final = re.compile(
    r"(?:(?:https?|ssh|git)://(?:[^@/]*@)?|(?:[^@/:]+@))(?P<host>[\w.-]+)(?::\d+)?[:/]/?"
    r"(?P<owner>[\w.-]+)/(?P<name>[\w.-]+?)(?:\.git)?/?"
)
_INHERITED_VARIABLES: Final = (
    "HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS",
    "GH_CONFIG_DIR", "GH_TOKEN", "GITHUB_TOKEN", "GH_HOST", "SSL_CERT_FILE", "SSL_CERT_DIR",
    "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "https_proxy", "http_proxy", "no_proxy",
)  # fmt: skip
_ENTERPRISE_VARIABLES: Final = ("GH_ENTERPRISE_TOKEN", "GITHUB_ENTERPRISE_TOKEN")
_FAILED_CONCLUSIONS: Final = {"FAILURE", "ERROR", "TIMED_OUT", "STARTUP_FAILURE"}


class WaitsFor(StrEnum):
    """The step that a pull request waits for."""

    REVIEW = "review"
    CHANGES = "changes"
    ANSWER = "answer"


@frozen
class Wait:
    """A pull request waits for the operator: who asked, and since when, None where the server does not say."""

    what: WaitsFor
    by: str
    since: datetime | None


@frozen
class PullRequest:
    """An open pull request, the names of its failing checks, and whether it waits for the operator. `mine`: the
    operator opened it."""

    number: int
    title: str
    branch: str
    failing: tuple[str, ...] = ()
    url: str = ""
    mine: bool = False
    wait: Wait | None = None


@frozen
class FailingCheck:
    """A CI check that failed on a branch."""

    branch: str
    name: str


@frozen
class GitHubState:
    """The last answer of the server, or the reason for none."""

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
        self._states: dict[str, tuple[float, GitHubState]] = {}
        self._login_by_host: dict[str, str] = {}
        self._threads: dict[str, threading.Thread] = {}

    def latest(self, workspace: str) -> GitHubState | None:
        """The last answer, at once; None while there is none, and where there is no `gh`."""
        with self._lock:
            asked_at, state = self._states.get(workspace, (float("-inf"), None))
            stale = self._clock.monotonic() - asked_at >= MAX_AGE_S
            if stale and workspace not in self._threads and programs.find_program(self._program):
                thread = threading.Thread(target=self._refresh, args=(workspace,), name="gh", daemon=True)
                self._threads[workspace] = thread
                thread.start()
        return state

    def settle(self, timeout: float | None = None) -> None:
        """Wait until every question asked so far is answered, each at most `timeout` seconds."""
        with self._lock:
            asking = list(self._threads.values())
        for thread in asking:
            thread.join(timeout)

    def _refresh(self, workspace: str) -> None:
        state = self._ask_server(Path(workspace))
        with self._lock:
            self._states[workspace] = (self._clock.monotonic(), state)
            del self._threads[workspace]

    def _ask_server(self, workspace: Path) -> GitHubState:
        try:
            address = address_of(workspace)
        except Refusal as refusal:
            return GitHubState(error=refusal.message)
        program = programs.find_program(self._program, workspace)
        if not address or program is None:
            return GitHubState(error="no remote is on GitHub" if program else "gh is inside the repository")
        host = address.partition("/")[0]
        if host not in self._login_by_host and (me := read_login(host, program)):
            self._login_by_host[host] = me
        return ask_github(address, program, self._login_by_host.get(host, ""))


def address_of(workspace: Path) -> str:
    """HOST/OWNER/NAME of the remote that `gh` would take, "" when there is none. Raises `Refusal`.

    Our own git reads it: `gh` in the repository would run git there, with all that its configuration names.
    """
    git = Git(workspace, timeout=TIMEOUT_S)
    names = git.text("remote").split()
    rank = {name: number for number, name in enumerate(_REMOTE_ORDER)}
    for name in sorted(names, key=lambda name: (rank.get(name, len(rank)), name)):
        if match := _REMOTE_ADDRESS.fullmatch(git.text("remote", "get-url", "--", name)):
            return f"{match['host']}/{match['owner']}/{match['name']}"
    return ""


def ask_github(address: str, program: str, me: str = "") -> GitHubState:
    """One question about HOST/OWNER/NAME to the `gh` at `program`, at most ten seconds; what goes wrong becomes
    `error`. `me` is the operator's name there, "" when it is not known."""
    host = address.partition("/")[0]
    arguments = ["pr", "list", "--repo", address, "--state", "open", "--limit", "20", "--json", _JSON_FIELDS]
    try:
        done = _run_gh(program, host, arguments)
        if done.returncode != 0:
            complaint = sanitise(done.stderr.decode(errors="replace")).strip()
            return GitHubState(error=complaint.splitlines()[0] if complaint else f"exit code {done.returncode}")
        return parse_answer(done.stdout, me)
    except subprocess.TimeoutExpired:
        return GitHubState(error=f"no answer within {TIMEOUT_S:.0f} s")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return GitHubState(error=sanitise(f"{type(error).__name__}: {error}"))


def read_login(host: str, program: str) -> str:
    """The operator's name on `host`, "" when `gh` does not say it: then no pull request is known to wait for them."""
    try:
        done = _run_gh(program, host, ["api", "user", "--hostname", host])
        answer = json.loads(done.stdout) if done.returncode == 0 else {}
        return sanitise(str(answer["login"])) if isinstance(answer, dict) and answer.get("login") else ""
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        log.info("gh does not say who you are on %s: %s", host, error)
        return ""


def _run_gh(program: str, host: str, arguments: list[str]) -> subprocess.CompletedProcess[bytes]:
    """`gh` in no repository, with an environment of its own."""
    environment = {name: os.environ[name] for name in _INHERITED_VARIABLES if name in os.environ}
    if os.environ.get("GH_HOST") == host:  # it goes to whichever host is asked
        environment |= {name: os.environ[name] for name in _ENTERPRISE_VARIABLES if name in os.environ}
    environment |= {"PATH": os.defpath, "GH_PROMPT_DISABLED": "1", "GH_NO_UPDATE_NOTIFIER": "1", "NO_COLOR": "1"}
    return subprocess.run(
        [program, *arguments],
        cwd="/",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=environment,
        timeout=TIMEOUT_S,
        check=False,
    )


def parse_answer(document: bytes, me: str = "") -> GitHubState:
    """The state that `gh pr list --json` describes. Raises ValueError, KeyError, TypeError on another shape."""
    return GitHubState(tuple(_pull_request(entry, me) for entry in json.loads(document)))


def _pull_request(entry: dict[str, Any], me: str) -> PullRequest:
    failing = [
        sanitise(str(check.get("name") or check.get("context") or "a check"))
        for check in entry.get("statusCheckRollup") or ()
        if (check.get("conclusion") or check.get("state")) in _FAILED_CONCLUSIONS
    ]
    return PullRequest(
        int(entry["number"]),
        sanitise(str(entry["title"])),
        sanitise(str(entry["headRefName"])),
        tuple(failing),
        url=sanitise(str(entry.get("url") or "")),
        mine=bool(me) and _login_of(entry) == me,
        wait=_find_wait(entry, me) if me else None,
    )


def _find_wait(entry: dict[str, Any], me: str) -> Wait | None:
    """Whether it waits for the operator. A server that says less says no."""
    author = _login_of(entry)
    if author != me:
        is_requested = any(reviewer.get("login") == me for reviewer in _object_list(entry, "reviewRequests"))
        return Wait(WaitsFor.REVIEW, author, None) if is_requested and not entry.get("isDraft") else None
    reviews = [review for review in _object_list(entry, "latestReviews") if _login_of(review) not in ("", me)]
    changes = [review for review in reviews if review.get("state") == "CHANGES_REQUESTED"]
    if changes and entry.get("reviewDecision") in ("CHANGES_REQUESTED", "", None):
        return Wait(WaitsFor.CHANGES, _login_of(changes[-1]), _parse_time(changes[-1], "submittedAt"))
    remarks = [(comment, _parse_time(comment, "createdAt")) for comment in _object_list(entry, "comments")]
    remarks += [
        (review, _parse_time(review, "submittedAt")) for review in reviews if review.get("state") == "COMMENTED"
    ]
    last = max((remark for remark in remarks if remark[1]), key=lambda remark: remark[1] or _NEVER, default=None)
    if last is None or _login_of(last[0]) in ("", me) or _is_bot(last[0]):
        return None
    return Wait(WaitsFor.ANSWER, _login_of(last[0]), last[1])


def _object_list(entry: dict[str, Any], field: str) -> list[dict[str, Any]]:
    return [item for item in entry.get(field) or () if isinstance(item, dict)]


def _login_of(entry: dict[str, Any]) -> str:
    author = entry.get("author")
    return sanitise(str(author.get("login") or "")) if isinstance(author, dict) else ""


def _is_bot(entry: dict[str, Any]) -> bool:
    return _login_of(entry).endswith("[bot]") or bool(entry["author"].get("is_bot"))


def _parse_time(entry: dict[str, Any], field: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(str(entry.get(field) or ""))
    except ValueError:
        return None
    return moment if moment.tzinfo else None
