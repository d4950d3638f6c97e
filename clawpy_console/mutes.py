"""What stays away because it was dismissed, listed from the palette; a key lets one come back (SPEC 2.9)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from clawpy_console import words
from engine import kind_title
from engine.values import Mute

if TYPE_CHECKING:
    from clawpy_console.app import ConsoleApp

KEYS = "abcdefghijklmnopqrstuvwxyz"
"""So many are listed at once, the newest; `clawpy muted` lists all."""


def show(app: ConsoleApp) -> None:
    """List what is muted; the key of one lifts it."""
    engine = app.live()
    if engine is None:
        return

    def listed(muted: Sequence[Mute]) -> None:
        if not muted:
            app.say("nothing is muted: no card was dismissed lately")
            return
        from clawpy_console.dialogs.choose import Choose

        by_key = dict(zip(KEYS, muted, strict=False))
        options = [(key, what(one), when(one)) for key, one in by_key.items()]

        def chosen(key: str | None) -> None:
            if key:
                lifted = by_key[key]
                app.ask(lambda: engine.cards.lift(lifted.id), lambda one: app.say(f"may come back: {what(one)}"))

        app.push_screen(Choose("Stays away; its key lets it come back", options, present="", by_key=True), chosen)

    app.look_up(engine.cards.muted, listed)


def what(mute: Mute) -> str:
    """What is muted, and where."""
    where = words.name(mute.workspace) if mute.workspace else "everywhere"
    about = words.crop(words.one_line(mute.prompt), 34) if mute.subject else f"all cards “{kind_title(mute.kind)}”"
    return f"{about}, {where}"


def when(mute: Mute) -> str:
    """Until when, and why."""
    until = f"until {mute.until.astimezone():%-d %b %H:%M}" if mute.until else "switched off"
    return f"{until}, {mute.why}"
