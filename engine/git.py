"""Running git on the operator's repositories without side effects and without trusting their configuration.

Every call goes through `Git`: no hooks, no file-system monitor program, no pager, no prompt, no optional locks, a
fixed language, a time limit. A repository is someone's data; its configuration must not run programs of its own.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from engine.values import Refusal, sanitise

SAFE = (
    "-c", "core.hooksPath=/dev/null",
    "-c", "core.fsmonitor=false",
    "-c", "core.pager=cat",
    "-c", "core.quotePath=false",
    "-c", "commit.gpgSign=false",
    "-c", "tag.gpgSign=false",
    "-c", "gc.auto=0",
    "-c", "maintenance.auto=false",
    "-c", "credential.helper=",
    "-c", "advice.detachedHead=false",
)  # fmt: skip

OLDEST = (2, 38)
"""The first git whose `merge-tree --write-tree` merges without touching a working tree."""


_OWN_BRANCH = re.compile(r"clawpy[/-](?:sess|auto)_\w+(?:-\d+)?")


class GitError(Refusal):
    """A git command failed. `exit_code` and `stderr` are git's own."""

    def __init__(self, arguments: Sequence[str], exit_code: int, stderr: str, folder: Path) -> None:
        super().__init__("git_failed", f"git {' '.join(arguments[:4])} failed in {folder}: {stderr.strip()[-400:]}")
        self.exit_code = exit_code
        self.stderr = stderr


@dataclass(frozen=True, slots=True)
class Git:
    """git in one folder. `environment` is added to the inherited one (for instance GIT_INDEX_FILE)."""

    folder: Path
    timeout: float = 60.0
    environment: Mapping[str, str] = field(default_factory=dict)

    def output(
        self,
        *arguments: str,
        stdin: bytes | None = None,
        environment: Mapping[str, str] | None = None,
        allowed: Sequence[int] = (0,),
        timeout: float | None = None,
    ) -> bytes:
        """Standard output of `git ARGUMENTS`. Raises `GitError` when the exit code is not among `allowed`,
        or when it takes longer than `timeout` seconds (exit code -1)."""
        return self.run(*arguments, stdin=stdin, environment=environment, allowed=allowed, timeout=timeout).stdout

    def text(
        self,
        *arguments: str,
        stdin: bytes | None = None,
        environment: Mapping[str, str] | None = None,
        allowed: Sequence[int] = (0,),
        timeout: float | None = None,
    ) -> str:
        """The same as text without the last newline; bytes that are no UTF-8 survive as surrogate escapes."""
        out = self.output(*arguments, stdin=stdin, environment=environment, allowed=allowed, timeout=timeout)
        return out.decode(errors="surrogateescape").removesuffix("\n")

    def run(
        self,
        *arguments: str,
        stdin: bytes | None = None,
        environment: Mapping[str, str] | None = None,
        allowed: Sequence[int] = (0,),
        timeout: float | None = None,
    ) -> subprocess.CompletedProcess[bytes]:
        """The finished process, for callers that need the exit code."""
        try:
            done = subprocess.run(
                ["git", *SAFE, *arguments],
                cwd=self.folder,
                input=stdin,
                stdin=subprocess.DEVNULL if stdin is None else None,
                capture_output=True,
                env=clean_environment({**self.environment, **(environment or {})}),
                timeout=timeout or self.timeout,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise GitError(arguments, -1, f"no answer within {error.timeout:.0f} s", self.folder) from error
        except FileNotFoundError as error:
            if not self.folder.is_dir():
                raise Refusal("no_folder", f"{self.folder} is not there", "name an existing folder") from error
            raise Refusal("no_git", "git is not on the PATH", "install git 2.38 or newer") from error
        if done.returncode not in allowed:
            raise GitError(arguments, done.returncode, done.stderr.decode(errors="replace"), self.folder)
        return done


OWN_CONFIGURATION = ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM")
"""Where the operator keeps the configuration; the only variables of git that are passed on."""


def clean_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The process environment without anything that would point git elsewhere or let it ask questions."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith("GIT_") or name in OWN_CONFIGURATION
    }
    kept |= {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C.UTF-8", "GIT_PAGER": "cat"}
    return kept | dict(extra or {})


def own_branch(session_id: str, *, below: bool = True) -> str:
    """The branch that a session's changes become: `clawpy/SESSION`, or `clawpy-SESSION` where none can be below."""
    return f"clawpy{'/' if below else '-'}{session_id}"


def is_own_branch(name: str) -> bool:
    """Whether a branch is such a one, or one of those that are numbered (`clawpy/SESSION-2`)."""
    return _OWN_BRANCH.fullmatch(name) is not None


def repository_root(folder: Path) -> Path:
    """The top of the working tree that `folder` lies in.

    Raises `Refusal`: `no_folder`, `no_repository`, `bare_repository`, `unsafe_repository` (owned by someone else),
    `unfit_path` (no UTF-8: it could be neither stored nor shown).
    """
    folder = folder.absolute()
    shown = sanitise(str(folder))
    if not folder.is_dir():
        raise Refusal("no_folder", f"{shown} is not a folder", "name an existing folder with --workspace DIR")
    done = Git(folder).run("rev-parse", "--is-bare-repository", "--show-toplevel", allowed=tuple(range(256)))
    bare, _, top = done.stdout.decode(errors="surrogateescape").partition("\n")
    complaint = done.stderr.decode(errors="replace")
    if bare == "true":
        raise Refusal("bare_repository", f"{shown} is a bare repository, it has no files to work on", "clone it first")
    if done.returncode == 0 and top:
        return _storable(Path(top.removesuffix("\n")))
    if "dubious ownership" in complaint:
        raise Refusal(
            "unsafe_repository",
            f"{shown} belongs to another user, git will not read it",
            f"git config --global --add safe.directory {shlex.quote(str(folder))}",
        )
    if "must be run in a work tree" in complaint:
        raise Refusal(
            "no_repository",
            f"{shown} is inside git's own folder, not among the files of a repository",
            "go to the folder above .git, or name it with --workspace DIR",
        )
    raise Refusal(
        "no_repository",
        f"{shown} is not in a git repository",
        "run `git init` there, or name another with --workspace DIR",
    )


def _storable(path: Path) -> Path:
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise Refusal(
            "unfit_path",
            f"{sanitise(str(path))}: the name of the folder is not UTF-8",
            "rename the folder, or clone the repository to another",
        ) from error
    return path
