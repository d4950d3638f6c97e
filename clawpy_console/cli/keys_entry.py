"""Secrets that are typed here: they go to the keyring from this very process and nowhere else (SPEC 11.1)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

from clawpy_console.cli.options import Where, WrongUse

SECRET_BYTES = 8192
"""No key is longer."""


def key(options: argparse.Namespace, where: Where) -> dict[str, Any]:
    """Ask for a key and keep it; the document that says so. Raises `WrongUse` when it was given as an argument."""
    if options.never:
        raise WrongUse(
            "do not give a key as an argument: other programs can read it there, and the shell keeps it. "
            "Run `clawpy key set NAME` and paste it when you are asked. "
            "If this was a real key, get a new one from the provider"
        )
    from engine import keep_key

    return keep_key(where.home, options.name, _typed("Key (not shown): "), in_file=options.store == "file")


def address(options: argparse.Namespace, where: Where, *, opener: Callable[..., Any]) -> dict[str, Any]:
    """Ask for the address of a surface of notifications, which may hold a secret, and keep it. Raises `WrongUse` when
    it was given as an argument."""
    if options.never:
        raise WrongUse(
            "do not give an address as an argument: it may contain a token, and the shell keeps it. "
            f"Run `clawpy notify set {options.surface}` and paste it when you are asked"
        )
    from engine import call, keep_address

    def write(setting: str, value: str) -> None:
        call(where.home, "config", {"action": "set", "key": setting, "value": value}, opener=opener)

    given = _typed("Address (not shown): ")
    return keep_address(where.home, options.surface, given, in_file=options.store == "file", write=write)


def _typed(question: str) -> str:
    """What is typed unseen, or read from what is piped in."""
    if not sys.stdin.isatty():
        return sys.stdin.read(SECRET_BYTES).strip()
    import getpass

    try:
        return getpass.getpass(question)
    except EOFError:
        return ""
