"""Reads open pull requests and failing checks with the command `gh`, if it is installed (SPEC 2.1).

`gh` asks a server, so no caller waits for it. `get_latest` returns the last answer, and asks again in the background.

The signals and templates of branches read it.
"""

from __future__ import annotations

import logging
import os
import re
import subprocess
import threading
from datetime import datetime
from enum import StrEnum
from operator import itemgetter
from pathlib import Path
from typing import Annotated

from pydantic import (
    AfterValidator,
    AliasChoices,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    Field,
    TypeAdapter,
    ValidationError,
)

from engine.background import BackgroundWorker
from engine.clock import Clock
from engine.frozen import frozen
from engine.git import Git
from engine.installed import find_program
from engine.model import Refusal
from engine.text import sanitise
from engine.wording import describe_validation_faults

log = logging.getLogger(__name__)

MAX_AGE_S = 300.0
"""Seconds after which an answer is out of date."""

TIMEOUT_S = 10.0
"""Seconds after which `gh` is stopped."""

_JSON_FIELDS = (
    "number,title,headRefName,statusCheckRollup,author,url,isDraft,reviewDecision,reviewRequests,latestReviews,comments"
)
"""What `gh pr list` is asked for, see `_ListedPullRequest`."""

_REMOTE_ORDER = ("upstream", "github", "origin")
"""The names of remotes that `gh` prefers, the first one most."""

_REMOTE_ADDRESS = re.compile(
    r"(?:(?:https?|ssh|git)://(?:[^@/]*@)?|(?:[^@/:]+@))(?P<host>[\w.-]+)(?::\d+)?[:/]/?"
    r"(?P<owner>[\w.-]+)/(?P<name>[\w.-]+?)(?:\.git)?/?"
)
"""The address of a remote, by HTTP or SSH."""

_INHERITED_VARIABLES = (
    "HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS",
    "GH_CONFIG_DIR", "GH_TOKEN", "GITHUB_TOKEN", "GH_HOST", "SSL_CERT_FILE", "SSL_CERT_DIR",
    "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "https_proxy", "http_proxy", "no_proxy",
)  # fmt: skip
"""The environment variables that `gh` gets."""

_ENTERPRISE_VARIABLES = ("GH_ENTERPRISE_TOKEN", "GITHUB_ENTERPRISE_TOKEN")
"""Tokens for the server that GH_HOST names. `gh` gets them for this server only."""

_FAILED_CONCLUSIONS = {"FAILURE", "ERROR", "TIMED_OUT", "STARTUP_FAILURE"}
"""The results of checks that count as failing. A cancelled one does not."""


class WaitsFor(StrEnum):
    """The next step of the operator for a pull request."""

    REVIEW = "review"
    CHANGES = "changes"
    ANSWER = "answer"


@frozen
class Wait:
    """A pull request waits for the operator."""

    step: WaitsFor
    by: str
    """Who asked for it."""
    since: datetime | None
    """None if the server does not say it."""


@frozen
class PullRequest:
    """An open pull request."""

    number: int
    title: str
    branch: str
    failing: tuple[str, ...] = ()
    """The names of its failing checks."""
    url: str = ""
    wait: Wait | None = None
    """None if it does not wait for the operator."""


@frozen
class GitHubState:
    """The last answer of the server, or the reason why there is none."""

    pull_requests: tuple[PullRequest, ...] = ()
    error: str = ""

    @property
    def failing(self) -> tuple[tuple[str, str], ...]:
        """Every failing check of every open pull request, as (branch, name)."""
        return tuple((request.branch, name) for request in self.pull_requests for name in request.failing)


class GitHub:
    """Asks `gh` about one workspace after the other in a thread, about each at most once in `MAX_AGE_S` seconds."""

    def __init__(self, clock: Clock, program: str = "gh") -> None:
        self._clock = clock
        self._program = program
        self._lock = threading.Lock()
        self._states: dict[str, tuple[float, GitHubState]] = {}
        self._login_by_host: dict[str, str] = {}
        self._asking: set[str] = set()
        self._background = BackgroundWorker("gh", self._refresh)

    def get_latest(self, workspace: str) -> GitHubState | None:
        """The last answer, without waiting. None if there is none yet, or if `gh` is not installed."""
        with self._lock:
            asked_at, state = self._states.get(workspace, (float("-inf"), None))
            if self._clock.monotonic() - asked_at >= MAX_AGE_S and find_program(self._program):
                self._asking.add(workspace)
                self._background.wake()
        return state

    def wait_for_answers(self, timeout: float | None = None) -> None:
        """Wait until all questions so far are answered, for at most `timeout` seconds."""
        self._background.wait_for(lambda: not self._asking, timeout)

    def _refresh(self) -> None:
        """Ask about all workspaces for which somebody waits."""
        for workspace in sorted(self._asking):
            state = self._ask_server(Path(workspace))
            with self._lock:
                self._states[workspace] = (self._clock.monotonic(), state)
                self._asking.discard(workspace)

    def _ask_server(self, workspace: Path) -> GitHubState:
        """The answer about one workspace, or why there is none."""
        try:
            address = find_address(workspace)
        except Refusal as refusal:
            return GitHubState(error=refusal.message)
        program = find_program(self._program, workspace)
        if not address or program is None:
            return GitHubState(error="no remote is on GitHub" if program else "gh is inside the repository")
        host = address.partition("/")[0]
        if host not in self._login_by_host and (login := read_login(host, program)):
            self._login_by_host[host] = login
        return ask_github(address, program, self._login_by_host.get(host, ""))


def find_address(workspace: Path) -> str:
    """HOST/OWNER/NAME of the remote that `gh` would use; "" if there is none. Raises `Refusal`.

    It is read here, because `gh` in the repository would run git with the programs that the repository configures.
    """
    git = Git(workspace, timeout=TIMEOUT_S)
    names = git.text("remote").split()
    rank = {name: number for number, name in enumerate(_REMOTE_ORDER)}
    for name in sorted(names, key=lambda name: (rank.get(name, len(rank)), name)):
        if match := _REMOTE_ADDRESS.fullmatch(git.text("remote", "get-url", "--", name)):
            return f"{match['host']}/{match['owner']}/{match['name']}"
    return ""


def ask_github(address: str, program: str, login: str = "") -> GitHubState:
    """Ask the `gh` at `program` about HOST/OWNER/NAME. A failure becomes the `error` of the state. `login` is the
    operator's name on the server, "" when it is not known."""
    host = address.partition("/")[0]
    arguments = ["pr", "list", "--repo", address, "--state", "open", "--limit", "20", "--json", _JSON_FIELDS]
    try:
        completed = _run_gh(program, host, arguments)
        if completed.returncode != 0:
            complaint = sanitise(completed.stderr.decode(errors="replace")).strip()
            return GitHubState(error=complaint.splitlines()[0] if complaint else f"exit code {completed.returncode}")
        return parse_pull_requests(completed.stdout, login)
    except subprocess.TimeoutExpired:
        return GitHubState(error=f"no answer within {TIMEOUT_S:.0f} s")
    except ValidationError as error:
        return GitHubState(error=sanitise(describe_validation_faults(error)[0].removeprefix(": ")))
    except OSError as error:
        return GitHubState(error=sanitise(str(error)))


def read_login(host: str, program: str) -> str:
    """The operator's name on `host`; "" if `gh` does not say it. Then no pull request waits for the operator."""
    try:
        completed = _run_gh(program, host, ["api", "user", "--hostname", host])
        return _Person.model_validate_json(completed.stdout).login if completed.returncode == 0 else ""
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        log.info("gh does not say who you are on %s: %s", host, error)
        return ""


def _run_gh(program: str, host: str, arguments: list[str]) -> subprocess.CompletedProcess[bytes]:
    """Run `gh` outside of any repository, with a limited environment."""
    environment = {name: os.environ[name] for name in _INHERITED_VARIABLES if name in os.environ}
    if os.environ.get("GH_HOST") == host:  # else the token would be sent to another host
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


Sanitised = Annotated[str, AfterValidator(sanitise)]
"""Text of others, without control characters."""


class _Person(BaseModel):
    """An account, which may be a bot."""

    login: Sanitised = ""
    is_bot: bool = False


NOBODY = _Person()
Author = Annotated[_Person, BeforeValidator(lambda value: NOBODY if value is None else value)]
"""The author of something. It is `NOBODY` if the account was deleted."""


class _Remark(BaseModel):
    """A review or a comment."""

    author: Author = NOBODY
    state: str = ""
    at: AwareDatetime | None = Field(None, validation_alias=AliasChoices("submittedAt", "createdAt"))


class _Check(BaseModel):
    """A check of the head of a pull request."""

    name: Sanitised = Field("a check", validation_alias=AliasChoices("name", "context"))
    result: str | None = Field("", validation_alias=AliasChoices("conclusion", "state"))


class _ListedPullRequest(BaseModel):
    """A pull request as `gh pr list --json` describes it."""

    number: int
    title: Sanitised
    branch: Sanitised = Field(alias="headRefName")
    checks: list[_Check] | None = Field(None, alias="statusCheckRollup")
    author: Author = NOBODY
    url: Sanitised = ""
    draft: bool = Field(False, alias="isDraft")
    decision: str | None = Field(None, alias="reviewDecision")
    reviewers: list[_Person] | None = Field(None, alias="reviewRequests")
    reviews: list[_Remark] | None = Field(None, alias="latestReviews")
    comments: list[_Remark] | None = None

    def find_wait(self, login: str) -> Wait | None:
        """The step for which it waits, if the operator is `login`. None if it does not wait for the operator, or if the
        server does not say enough."""
        if self.author.login == login:
            return self._find_wait_of_author(login)
        is_requested = any(reviewer.login == login for reviewer in self.reviewers or ())
        return Wait(WaitsFor.REVIEW, self.author.login, None) if is_requested and not self.draft else None

    def _find_wait_of_author(self, login: str) -> Wait | None:
        """Others asked for changes or commented last. Bots do not count."""
        reviews = [review for review in self.reviews or () if review.author.login not in ("", login)]
        changes = [review for review in reviews if review.state == "CHANGES_REQUESTED"]
        if changes and self.decision in ("CHANGES_REQUESTED", "", None):
            return Wait(WaitsFor.CHANGES, changes[-1].author.login, changes[-1].at)
        remarks = [*(self.comments or ()), *(review for review in reviews if review.state == "COMMENTED")]
        dated = [(remark.at, remark.author) for remark in remarks if remark.at]
        at, author = max(dated, key=itemgetter(0), default=(None, NOBODY))
        is_bot = author.is_bot or author.login.endswith("[bot]")
        return None if author.login in ("", login) or is_bot else Wait(WaitsFor.ANSWER, author.login, at)


_LISTED_PULL_REQUESTS = TypeAdapter(list[_ListedPullRequest])
"""Parses the output of `gh pr list`."""


def parse_pull_requests(document: bytes, login: str = "") -> GitHubState:
    """The state in the output of `gh pr list --json`. Raises `ValidationError` if the output has another form."""
    return GitHubState(
        tuple(
            PullRequest(
                request.number,
                request.title,
                request.branch,
                tuple(check.name for check in request.checks or () if check.result in _FAILED_CONCLUSIONS),
                url=request.url,
                wait=request.find_wait(login) if login else None,
            )
            for request in _LISTED_PULL_REQUESTS.validate_json(document)
        )
    )
