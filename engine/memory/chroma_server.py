"""A Chroma server that several machines share (SPEC 4.5, 4.10), by its address.

It gets numbers and vectors, never a word: texts stay in SQLite. Each home has a database of its own there, for the
numbers are those of its own rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

VARIABLE = "CLAWPY_CHROMA_URL"
"""The variable that names the server; it comes before the settings."""

KEY = "chroma"
"""Under this name the keys hold the server's token, where it wants one."""

LOST = "Lost"
"""How what the helper says begins when the server cannot be reached, or does not let us in."""


@dataclass(frozen=True, slots=True)
class ChromaServer:
    """Where the index lives. `token()` is asked for when it is opened; it may take a keyring's time."""

    url: str
    database: str
    token: Callable[[], str] = field(default=str, compare=False, repr=False)

    @property
    def host(self) -> str:
        """The server's name and port."""
        return urlsplit(self.url).netloc


def database_of(origin: str) -> str:
    """The name of a home's database, as Chroma takes names: letters, digits, dots and dashes."""
    return "clawpy-" + re.sub(r"[^a-zA-Z0-9]+", "-", origin).strip("-")
