"""Notes the tool calls and errors of a session, which are recorded in its last transaction for learning (SPEC 5)."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Sequence

from engine.events import AgentErred, Event, ToolsUsed
from engine.model import SessionView, sanitise
from engine.model.secrets import redact

MAX_CALLS = 500
MAX_ERRORS = 50
"""Maximum number of recorded errors of one session. The same error is recorded once."""

MAX_MESSAGE = 500
"""Maximum number of characters of an error."""

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,30}")


class ToolJournal:
    """The tool calls and errors of one session. Thread-safe. `secrets` returns values that are never recorded, besides
    those that look secret."""

    def __init__(self, secrets: Callable[[], Iterable[str]]) -> None:
        self._secrets = secrets
        self._lock = threading.Lock()
        self._calls: list[str] = []
        self._errors: dict[tuple[str, str], None] = {}

    def note_call(self, call: str) -> None:
        """Note a tool call, in the form of `ToolsUsed`."""
        with self._lock:
            if len(self._calls) < MAX_CALLS:
                self._calls.append(call)

    def note_error(self, tool: str, message: str) -> None:
        """Note an error of a tool call that the agent did not intend. `tool` may also be its model or program."""
        error = sanitise(tool)[:60], redact(sanitise(message), self._secrets())[:MAX_MESSAGE]
        with self._lock:
            if len(self._errors) < MAX_ERRORS:
                self._errors[error] = None

    def events(self, view: SessionView) -> Sequence[Event]:
        """The events to record."""
        with self._lock:
            calls, errors = tuple(self._calls), tuple(self._errors)
        events: list[Event] = [
            AgentErred(subject=view.id, workspace=view.workspace, agent=view.agent, tool=tool, message=message)
            for tool, message in errors
        ]
        if calls:
            events.append(ToolsUsed(subject=view.id, workspace=view.workspace, agent=view.agent, calls=calls))
        return events


def describe_command(programs: Sequence[str]) -> str:
    """A command as a tool call for `ToolsUsed`, such as `exec:git status`. `programs` are the commands that it runs.
    Words that are no plain names are left out: paths, options, possible secrets."""
    parts = programs[0].split() if programs else []
    if not parts:
        return "exec"
    program = parts[0].rsplit("/", 1)[-1]
    if not _PLAIN.fullmatch(program.replace(".", "")):
        return "exec"
    second = parts[1] if len(parts) > 1 and _PLAIN.fullmatch(parts[1]) else ""
    return f"exec:{program} {second}".rstrip()
