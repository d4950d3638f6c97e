"""What stays away because it was dismissed, listed from the palette; a key lets it come back (SPEC 2.9)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from clawpy_console import words
from engine import kind_title
from engine.model import Mute

if TYPE_CHECKING:
    from clawpy_console.app import ConsoleApp

KEYS = "abcdefghilmnopqrstuvwxyz"
"""So many are listed at once, the newest; `clawpy muted` lists all. j and k move the cursor."""


def show(app: ConsoleApp) -> None:
    """List what is muted; the key of one ends it."""

    def listed(muted: Sequence[Mute]) -> None:
        if not muted:
            app.say("Nothing is muted.")
            return
        from clawpy_console.dialogs.ask import Ask

        by_key = dict(zip(KEYS, muted, strict=False))

        def chosen(key: str | None) -> None:
            if key:
                mute = by_key[key]
                app.ask(lambda engine: engine.cards.lift(mute.id), lambda one: app.say(f"Unmuted: {what(one)}"))

        answers = [(key, what(one), when(one)) for key, one in by_key.items()]
        app.push_screen(Ask("Muted: which should appear again?", "", answers), chosen)

    app.look_up(lambda engine: engine.cards.muted(), listed)


def what(mute: Mute) -> str:
    """What is muted, and where."""
    where = words.name(mute.workspace) if mute.workspace else "everywhere"
    about = words.crop(words.one_line(mute.prompt), 34) if mute.subject else f"all cards “{kind_title(mute.kind)}”"
    return f"{about}, {where}"


def when(mute: Mute) -> str:
    """Until when, and why."""
    until = f"until {mute.until.astimezone():%-d %b %H:%M}" if mute.until else "switched off"
    return f"{until}, {mute.why}"
