"""Starts helper processes of the engine with a minimal environment, and kills them with their children."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

_BASIC_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR")

_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
NETWORK_VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR", *_PROXIES, *map(str.upper, _PROXIES))
"""Variables that are needed to reach a provider."""

_IMPORT_ROOT = Path(__file__).parents[1]
"""Where `engine` is imported from."""


def start(
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


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the process group. The process id cannot be reused before it is reaped."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
