"""What the agent of a session did, for adaptation to learn from (SPEC 5.1): its tool calls in order, and what failed.

Gathered while it runs, recorded in its last transaction.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Sequence

from engine.events import AgentErred, Event, ToolsUsed
from engine.model import SessionView, sanitise
from engine.model.secrets import redact

MAX_CALLS = 500
MAX_ERRORS = 50
"""Maximum number of calls and errors of one session that are recorded, the first ones; the same error only once."""

MAX_MESSAGE = 500
"""Characters of an error."""

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,30}")


class Journal:
    """Of one session. From any thread. `secrets`: values that are never recorded, besides what looks like one."""

    def __init__(self, secrets: Callable[[], Iterable[str]] = tuple) -> None:
        self._secrets = secrets
        self._lock = threading.Lock()
        self._calls: list[str] = []
        self._errors: dict[tuple[str, str], None] = {}

    def used(self, call: str) -> None:
        """A tool was called; `call` as `ToolsUsed` has it."""
        with self._lock:
            if len(self._calls) < MAX_CALLS:
                self._calls.append(call)

    def erred(self, tool: str, message: str) -> None:
        """A tool call failed in a way that the agent cannot have meant, or its model or program (`tool`) did."""
        error = sanitise(tool)[:60], redact(sanitise(message), self._secrets())[:MAX_MESSAGE]
        with self._lock:
            if len(self._errors) < MAX_ERRORS:
                self._errors[error] = None

    def facts(self, view: SessionView) -> Sequence[Event]:
        """What is to be recorded of it."""
        with self._lock:
            calls, errors = tuple(self._calls), tuple(self._errors)
        events: list[Event] = [
            AgentErred(subject=view.id, workspace=view.workspace, agent=view.agent, tool=tool, message=message)
            for tool, message in errors
        ]
        if calls:
            events.append(ToolsUsed(subject=view.id, workspace=view.workspace, agent=view.agent, calls=calls))
        return events


def command_used(programs: Sequence[str]) -> str:
    """An exec as `ToolsUsed` has it, from the programs that the command runs: `exec:git status`. Words that are no
    plain names (paths, options, anything that might be private) are left out."""
    parts = programs[0].split() if programs else []
    if not parts:
        return "exec"
    program = parts[0].rsplit("/", 1)[-1]
    if not _PLAIN.fullmatch(program.replace(".", "")):
        return "exec"
    second = parts[1] if len(parts) > 1 and _PLAIN.fullmatch(parts[1]) else ""
    return f"exec:{program} {second}".rstrip()
