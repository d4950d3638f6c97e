"""What the model runner needs of others, filled in by the composition root."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from engine.execution.live import LiveSession
from engine.execution.runners.ports import CallBook
from engine.model import ModelCall, SessionView, ToolResult, ToolSpec


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

    def choose(self, agent: str, channel: str, run_kind: str, prompt: str, workspace: str, /) -> Choice:
        """Raises `Refusal` `no_model`."""


class HasValue(Protocol):
    """A key."""

    @property
    def value(self) -> str: ...


class KeyBook(Protocol):
    """Where keys are (SPEC 11.1)."""

    def get(self, name: str, /) -> HasValue | None: ...


class TalkBook(CallBook, Protocol):
    """Where calls are kept and found again."""

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
