"""Starts git with a fixed environment: it asks nothing, opens no editor, and fetches nothing.

Only `command`, `repository` and `shadow_configuration` use this module. `shadow_configuration` names the variables that
make git read no configuration of a repository.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from engine.installed import find_program, search_path
from engine.model import Refusal

MIN_VERSION = (2, 38)
"""The first version with `merge-tree --write-tree`, which merges without changing a working tree."""

PASSED_ON = ("HOME", "XDG_CONFIG_HOME", "TMPDIR", "USER", "LOGNAME", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
"""The variables that git gets from the engine's environment, in addition to a checked PATH."""

CONFIGURATION = ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM")
"""The variables with the places of the operator's configuration. Only commands that read it get them."""

FIXED = {
    "LC_ALL": "C.UTF-8",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_PAGER": "cat",
    "GIT_EDITOR": "false",
    "GIT_SEQUENCE_EDITOR": "false",
    "GIT_ASKPASS": "false",
    "GIT_SSH_COMMAND": "false",
    "GIT_NO_LAZY_FETCH": "1",  # git 2.44 and newer; older ones find no remote to fetch from, see `repository`
    "GIT_ALLOW_PROTOCOL": "",
}
"""Variables with which git asks no questions, opens no editor or pager, and fetches nothing."""


class GitError(Refusal):
    """A git command failed. `exit_code` and `stderr` are those of git."""

    def __init__(self, arguments: Sequence[str], exit_code: int, stderr: str, folder: Path) -> None:
        super().__init__("git_failed", f"git {' '.join(arguments[:4])} failed in {folder}: {stderr.strip()[-400:]}")
        self.exit_code = exit_code
        self.stderr = stderr


def operators_configuration() -> dict[str, str]:
    """The variables with the places of the operator's configuration, and their present values."""
    return {name: os.environ[name] for name in CONFIGURATION if name in os.environ}


def run_git(
    arguments: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    *,
    without: Sequence[Path] = (),
    stdin: bytes | None = None,
    timeout: float = 60.0,
) -> subprocess.CompletedProcess[bytes]:
    """Run git in `folder`, with only the variables in `PASSED_ON`, `FIXED` and `environment`. No program from a folder
    in `without` is used. Raises `GitError` with exit code -1 after `timeout` seconds, and `Refusal` `no_folder`,
    `no_git`."""
    path = search_path(*without)
    program = find_program("git", *without)
    if program is None:
        raise Refusal("no_git", "git is not installed or not on the PATH", "install git 2.38 or newer")
    passed = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    try:
        return subprocess.run(
            [program, *arguments],
            cwd=folder,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            env={"PATH": path, **passed, **FIXED, **environment},
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise GitError(arguments, -1, f"no answer within {error.timeout:.0f} s", folder) from error
    except (FileNotFoundError, NotADirectoryError) as error:
        raise Refusal("no_folder", f"{folder} does not exist", "name an existing folder") from error
