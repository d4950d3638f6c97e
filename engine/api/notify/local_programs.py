"""The programs of this machine that show a note on the desktop, or read it aloud (SPEC 10.2)."""

from __future__ import annotations

import html
import shutil
import sys

from engine.api.notify.notes import QUIET_FORMS, Note


def desktop_command(note: Note) -> list[str]:
    """The command that shows a note on the desktop; empty if this machine has none."""
    if sys.platform == "darwin":
        script = "on run argv\ndisplay notification (item 2 of argv) with title (item 1 of argv)\nend run"
        return ["osascript", "-e", script, note.title or "clawpy", note.text]
    if program := shutil.which("notify-send"):
        urgency = "low" if note.form in QUIET_FORMS else "normal"
        return [
            program,
            "--app-name=clawpy",
            f"--urgency={urgency}",
            "--",
            note.title or "clawpy",
            html.escape(note.text, quote=False),
        ]
    return []


def speech_command(note: Note) -> list[str]:
    """The command that reads a note aloud; empty if this machine has none."""
    for name, options in (("say", []), ("spd-say", ["--wait", "--"]), ("espeak-ng", ["--"]), ("espeak", ["--"])):
        if program := shutil.which(name):
            return [program, *options, note.text.lstrip("-")]
    return []
