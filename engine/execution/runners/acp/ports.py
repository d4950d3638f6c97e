"""What the ACP runner needs of others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from engine.execution.ground import Ground
from engine.execution.live import LiveSession
from engine.values import CheckResult, Prompt, PromptPart, PromptRequest, SessionView


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


class Prompts(Protocol):
    """Assembles what an agent is told (SPEC 1.10)."""

    def assemble(self, request: PromptRequest) -> Prompt: ...


class CallBook(Protocol):
    """Keeps what was sent, for the X-ray (SPEC 9.6)."""

    def begin(
        self,
        session: SessionView,
        *,
        provider: str,
        model: str,
        run_kind: str,
        prompt: Prompt | None = None,
        messages: Sequence[PromptPart] = (),
        follows: str = "",
    ) -> str: ...

    def finish(
        self,
        call_id: str,
        *,
        state: str,
        input_tokens: int = 0,
        output_tokens: int = 0,
        cost: int = 0,
        price_known: bool = True,
        error: str = "",
        reply: str = "",
    ) -> None: ...


class Validated(Protocol):
    """What the validation loop came to."""

    @property
    def words(self) -> str: ...

    @property
    def check(self) -> CheckResult | None: ...

    @property
    def full(self) -> bool: ...


class Validation(Protocol):
    """The frame around a session that has a check (SPEC 4.9)."""

    def around(self, live: LiveSession, view: SessionView, ground: Ground, heal: Callable[[str], None]) -> Validated:
        """Judge what was done; `heal` gives the agent one more turn with a text."""
