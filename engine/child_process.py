"""A process of our own that serves the engine: started with nothing but what it needs, ended with all it started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

_PASSED = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR")

_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
NETWORK = ("SSL_CERT_FILE", "SSL_CERT_DIR", *_PROXIES, *map(str.upper, _PROXIES))
"""Variables that reaching a provider needs."""

_ROOT = Path(__file__).parents[1]
"""Where `engine` is imported from."""


def start(
    command: Sequence[str], *, passed: Iterable[str] = (), also: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start it in a process group of its own, with pipes for what it is told and what it says.

    Of our environment it has the least, and what is `passed` by name: no key of the operator's, whatever it is called.
    Raises `OSError`.
    """
    environment = {name: os.environ[name] for name in (*_PASSED, *passed) if name in os.environ}
    return subprocess.Popen(
        list(command),
        cwd="/",
        env=environment | dict(also or {}) | {"PYTHONPATH": str(_ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def kill(process: subprocess.Popen[bytes]) -> None:
    """End it at once, with all it may have started. Until it is reaped nobody else can carry its number."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
