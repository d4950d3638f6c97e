"""What every runner of agents needs of others, filled in by the composition root."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from engine.execution.ground import Ground
from engine.execution.live import LiveSession
from engine.execution.validation import Validated
from engine.model import Prompt, PromptPart, PromptRequest, SessionView


class Prompts(Protocol):
    """Where prompts are made (SPEC 1.10)."""

    def assemble(self, request: PromptRequest, /) -> Prompt: ...


class EndsCalls(Protocol):
    """Where it is kept how calls ended."""

    def finish(
        self,
        call_id: str,
        /,
        *,
        state: str,
        input_tokens: int = 0,
        output_tokens: int = 0,
        cost: int = 0,
        price_known: bool = True,
        error: str = "",
        reply: str = "",
    ) -> None: ...


class CallBook(EndsCalls, Protocol):
    """Where calls are kept, for the X-ray (SPEC 9.6)."""

    def begin(
        self,
        session: SessionView,
        /,
        *,
        provider: str,
        model: str,
        run_kind: str,
        prompt: Prompt | None = None,
        messages: Sequence[PromptPart] = (),
        follows: str = "",
    ) -> str: ...


class Frame(Protocol):
    """Judges what was done and has it mended (SPEC 4.9); see `engine.execution.validation.Validation`."""

    def around(self, live: LiveSession, view: SessionView, ground: Ground, heal: Callable[[str], None], /) -> Validated:
        """`heal` gives the agent one more turn with a text."""
