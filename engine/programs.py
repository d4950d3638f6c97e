"""Finds programs of the operator, never those of a repository."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path


def search_path(*without: Path) -> str:
    """The PATH without relative folders and without those inside the folders `without`: a `.` on the PATH, or the
    active environment of a project, would let a repository choose which `git` runs."""
    return _search_path(os.environ.get("PATH", os.defpath), without)


@lru_cache(maxsize=64)
def _search_path(path: str, without: tuple[Path, ...]) -> str:
    refused = [os.path.realpath(folder) for folder in without]
    folders = [
        folder
        for folder in path.split(os.pathsep)
        if folder.startswith("/") and not any(Path(os.path.realpath(folder)).is_relative_to(root) for root in refused)
    ]
    return os.pathsep.join(folders)


def find_program(program: str, *without: Path) -> str | None:
    """The absolute path of `program`; None when there is none outside of `without`."""
    return shutil.which(program, path=search_path(*without))


# Starts helper processes of the engine with a minimal environment, and kills them with their children.


_BASIC_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR")

_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
NETWORK_VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR", *_PROXIES, *map(str.upper, _PROXIES))
"""Variables that are needed to reach a provider."""

_IMPORT_ROOT = Path(__file__).parents[1]
"""Where `engine` is imported from."""


def start_helper(
    command: Sequence[str], *, inherited: Iterable[str] = (), extra: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start `command` in its own process group, with pipes for standard input and output.

    It inherits only basic variables and those `inherited` by name, so no key of the operator. Raises `OSError`.
    """
    environment = {name: os.environ[name] for name in (*_BASIC_VARIABLES, *inherited) if name in os.environ}
    return subprocess.Popen(
        list(command),
        cwd="/",
        env=environment | dict(extra or {}) | {"PYTHONPATH": str(_IMPORT_ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def kill_helper(process: subprocess.Popen[bytes]) -> None:
    """Kill the process group. The process id cannot be reused before it is reaped."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
