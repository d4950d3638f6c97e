"""A stop, a month stop or a pause as a field, and the question before it ends."""

from __future__ import annotations

from clawpy_console.fields import Field
from clawpy_console.formats import one_line

HOLD_NAMES = {"stop": "stop", "month": "month stop", "pause": "pause"}

RESUME_QUESTIONS = {
    "stop": ("Resume after the stop?", "Approved work may start again. Stopped sessions stay stopped."),
    "month": ("Resume after the month stop?", "The month's cap was reached. Raise the cap as well, or the next paid "
              "call stops everything again."),
}  # fmt: skip
"""Title and text of the question before a stop or a month stop ends."""


def hold_field(word: str, reason: str, since: str, how: str, remaining: str = "") -> Field:
    """A stop, a month stop or a pause: `how` to resume, and the `remaining` time where it ends by itself."""
    end = f", over in {remaining}" if remaining else ""
    text = f"{how} to resume{end}. Since {since}: {one_line(reason)}"
    return Field(f"■ {HOLD_NAMES[word]}", text, "wrong" if word == "stop" else "wants")
