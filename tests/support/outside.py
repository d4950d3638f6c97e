"""What tests need of the world outside: registries that answer, programs that are installed."""

from __future__ import annotations

import shutil
import socket
from functools import cache

import pytest


@cache
def _answers(host: str) -> bool:
    try:
        with socket.create_connection((host, 443), timeout=3):
            return True
    except OSError:
        return False


def needs(*programs: str, host: str = "") -> None:
    """Skip the test where a program is not installed, or `host` does not answer."""
    for program in programs:
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed here")
    if host and not _answers(host):
        pytest.skip(f"{host} does not answer here")
