"""Lists in which every item ends with NUL, as git reads and prints them with `-z`."""

from __future__ import annotations

from collections.abc import Iterable


def split_nul(output: bytes) -> list[bytes]:
    """The items of such a list."""
    return output.removesuffix(b"\0").split(b"\0") if output else []


def join_nul(items: Iterable[bytes]) -> bytes:
    """The items as such a list."""
    return b"".join(item + b"\0" for item in items)
