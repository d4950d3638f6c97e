"""What the ACP runner needs of others."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from engine.execution.live import LiveSession
from engine.model import SessionView


class Belt(Protocol):
    """The rails of one session's tools (SPEC 3.8). All raise `Stopped` when the session ends."""

    def may(self, kind: str, title: str, detail: str, arguments: Mapping[str, Any]) -> bool:
        """Whether the agent may use a tool of its own; asks a person where the policy says so."""

    def read_text(self, path: str, line: int | None = None, limit: int | None = None) -> str:
        """A file, or `limit` lines of it from `line` (counted from 1). Raises `Refusal`."""

    def write_text(self, path: str, text: str) -> None:
        """Write a file. Raises `Refusal`."""


class Belts(Protocol):
    """Makes them."""

    def open(self, live: LiveSession, view: SessionView, folder: Path) -> Belt: ...
