"""Secrets that are typed or piped, never given as arguments: the key of a provider, the address of a surface."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

from clawpy_console.cli.options import CommonOptions, WrongUse

MAX_SECRET_CHARS = 8192


def store_key(options: argparse.Namespace, common: CommonOptions) -> dict[str, Any]:
    """Ask for a key and store it; returns the document. Raises `WrongUse` when the key was given as an argument."""
    if options.never:
        raise WrongUse(
            "do not give a key as an argument: other programs can read it there, and the shell keeps it. "
            "Run `clawpy key set NAME` and paste it when you are asked. "
            "If this was a real key, get a new one from the provider"
        )
    from engine import store_key

    return store_key(common.home, options.name, _read_secret("Key (not shown): "), in_file=options.store == "file")


def store_address(options: argparse.Namespace, common: CommonOptions, *, opener: Callable[..., Any]) -> dict[str, Any]:
    """Ask for the address of a notification surface, which may contain a secret, and store it. Raises `WrongUse` when
    the address was given as an argument."""
    if options.never:
        raise WrongUse(
            "do not give an address as an argument: it may contain a token, and the shell keeps it. "
            f"Run `clawpy notify set {options.surface}` and paste it when you are asked"
        )
    from engine import call, store_address

    def write(setting: str, value: str) -> None:
        call(common.home, "config", {"action": "set", "key": setting, "value": value}, opener=opener)

    address_text = _read_secret("Address (not shown): ")
    return store_address(common.home, options.surface, address_text, in_file=options.store == "file", write=write)


def _read_secret(question: str) -> str:
    """A secret, typed without echo or read from a pipe."""
    if not sys.stdin.isatty():
        return sys.stdin.read(MAX_SECRET_CHARS).strip()
    import getpass

    try:
        return getpass.getpass(question)
    except EOFError:
        return ""
