"""The operation `check`: the verdict of the content filter on commands and prompts (SPEC 3.5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.api.documents import Document
from engine.api.operations.operation import Text, operation, require
from engine.model import RailVerdict, Refusal
from engine.safety.content import check_command, check_prompt

if TYPE_CHECKING:
    from engine.api.services import OfflineServices


@operation()
def check(
    engine: OfflineServices,
    command: Text = "",
    prompt: Text | None = None,
    lines: Sequence[Any] | None = None,
    cwd: Text = "",
) -> Document:
    """The verdict of the content filter on a command, a prompt, or each of many `lines`."""
    folder = Path(cwd) if cwd else None
    if lines is not None:
        return {"results": [_check_line(line, folder) for line in lines]}
    if prompt is not None:
        return _verdict_document(check_prompt(prompt))
    return _verdict_document(check_command(require("command", command), cwd=folder))


def _check_line(line: Any, cwd: Path | None) -> Document:
    """The verdict on one line of a batch; a bad line is answered with its error and stops nothing."""
    if not isinstance(line, Mapping) or ("command" in line) == ("prompt" in line):
        return Refusal("bad_line", 'each line needs either "command" or "prompt"', '{"command": "ls"}').document()
    identity: Document = {"id": line["id"]} if "id" in line else {}
    text = line.get("command", line.get("prompt"))
    if not isinstance(text, str):
        refusal = Refusal("bad_line", '"command" and "prompt" must be strings', '{"command": "ls"}')
        return identity | refusal.document()
    verdict = check_command(text, cwd=cwd) if "command" in line else check_prompt(text)
    return identity | _verdict_document(verdict)


def _verdict_document(verdict: RailVerdict) -> Document:
    return {"verdict": verdict.verdict.value, "rule": verdict.rule, "reason": verdict.reason}
