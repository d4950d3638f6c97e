"""The verbs that look and change nothing: check, doctor, key (SPEC 3.5, 9.8)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.api import doctor, wire
from engine.api import keys as key_door
from engine.api.arguments import Arguments
from engine.api.wire import Document
from engine.model import RailVerdict, Refusal

if TYPE_CHECKING:
    from engine.engine import Engine


def check(engine: Engine, arguments: Arguments) -> Document:
    """The content filter on a command, a prompt, or with `lines` on many of them, each answered in its place."""
    cwd = Path(arguments.text("cwd")) if arguments.text("cwd") else None
    if arguments.anything("lines") is not None:
        return {"results": [_check_line(engine, line, cwd) for line in arguments.items("lines")]}
    if arguments.anything("prompt") is not None:
        return _judged(engine.safety.check_prompt(arguments.text("prompt")))
    return _judged(engine.safety.check_command(arguments.needed("command"), cwd=cwd))


def _check_line(engine: Engine, line: Any, cwd: Path | None) -> Document:
    """One line of a batch; a bad one is answered with its error and stops nothing."""
    if not isinstance(line, Mapping) or ("command" in line) == ("prompt" in line):
        return wire.refusal(Refusal("bad_line", 'each line needs either "command" or "prompt"', '{"command": "ls"}'))
    kept: Document = {"id": line["id"]} if "id" in line else {}
    text = line.get("command", line.get("prompt"))
    if not isinstance(text, str):
        return kept | wire.refusal(Refusal("bad_line", '"command" and "prompt" must be strings', '{"command": "ls"}'))
    judge = engine.safety.check_command(text, cwd=cwd) if "command" in line else engine.safety.check_prompt(text)
    return kept | _judged(judge)


def _judged(one: RailVerdict) -> Document:
    return {"verdict": one.verdict.value, "rule": one.rule, "reason": one.reason}


def examine(engine: Engine, arguments: Arguments) -> Document:
    """What is configured, found, missing, and how to mend it."""
    workspaces = arguments.texts("workspaces") or list(engine.workspaces)
    return doctor.examine(engine.home, workspaces, online=arguments.flag("online"))


def key(engine: Engine, arguments: Arguments) -> Document:
    """list, delete, test. To keep one is no verb of an engine: see `engine.api.keys.keep_key`."""
    return key_door.key(engine.home, arguments)
