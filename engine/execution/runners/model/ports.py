"""What the model runner needs of others, filled in by the composition root."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from engine.execution.ground import Ground
from engine.execution.live import LiveSession
from engine.execution.validation import Validated
from engine.values import ModelCall, Prompt, PromptPart, PromptRequest, SessionView, ToolResult, ToolSpec


class Choice(Protocol):
    """Which model is to answer, and why."""

    @property
    def provider(self) -> str: ...

    @property
    def model(self) -> str: ...

    @property
    def reason(self) -> str: ...

    @property
    def base_url(self) -> str: ...

    @property
    def host(self) -> str: ...

    @property
    def kind(self) -> str: ...

    @property
    def keyless(self) -> bool:
        """The provider takes no key: nobody is paid."""


class Router(Protocol):
    """Picks the model of each prompt (SPEC 5.4)."""

    def choose(self, agent: str, channel: str, run_kind: str, prompt: str, /) -> Choice:
        """Raises `Refusal` `no_model`."""


class HasValue(Protocol):
    """A key."""

    @property
    def value(self) -> str: ...


class KeyBook(Protocol):
    """Where keys are (SPEC 11.1)."""

    def get(self, name: str, /) -> HasValue | None: ...


class Prompts(Protocol):
    """Where prompts are made (SPEC 1.10)."""

    def assemble(self, request: PromptRequest, /) -> Prompt: ...


class CallBook(Protocol):
    """Where calls are kept (SPEC 9.6)."""

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

    def for_session(self, session_id: str, /) -> Sequence[ModelCall]: ...

    def reply(self, call_id: str, /) -> str: ...


class Belt(Protocol):
    """The tools of one session (SPEC 3.8)."""

    def specs(self) -> Sequence[ToolSpec]: ...

    def call(self, name: str, arguments: Mapping[str, Any], call_id: str, /) -> ToolResult:
        """Raises `Stopped` when the session ends; what the model did wrong is a result."""


class Belts(Protocol):
    """Gives each session its tools."""

    def open(self, live: LiveSession, view: SessionView, folder: Path, /) -> Belt: ...


class Frame(Protocol):
    """Judges what was done and has it mended (SPEC 4.9); see `engine.execution.validation.Validation`."""

    def around(
        self, live: LiveSession, view: SessionView, ground: Ground, heal: Callable[[str], None], /
    ) -> Validated: ...
