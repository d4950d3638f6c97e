"""The list of what is muted, from which you unmute (SPEC 2.9)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from clawpy_console.dialogs.question import Answer, Question
from clawpy_console.formats import crop, one_line, workspace_name
from engine import kind_title
from engine.model import Mute

if TYPE_CHECKING:
    from clawpy_console.console import Console

MUTE_KEYS = "abcdefghilmnopqrstuvwxyz"
"""A key for each mute that is listed, the newest first. j and k move the cursor."""


def show_muted(app: Console) -> None:
    """List what is muted; the key of one ends it."""

    def on_list(muted: Sequence[Mute]) -> None:
        if not muted:
            app.show_toast("Nothing is muted.")
            return
        by_key = dict(zip(MUTE_KEYS, muted, strict=False))

        def on_choice(answer: Answer | None) -> None:
            if answer is not None:
                mute = by_key[answer.key]
                app.call_engine(
                    lambda engine: engine.cards.lift(mute.id),
                    lambda item: app.show_toast(f"Unmuted: {_describe_mute(item)}"),
                )

        answers = [Answer(key, _describe_mute(item), _describe_end(item)) for key, item in by_key.items()]
        question = "Muted: which should appear again?"
        if len(muted) > len(by_key):
            question += f" ({len(muted) - len(by_key):,} more: clawpy muted)"
        app.push_screen(Question(question, answers), on_choice)

    app.load_for_dialog(lambda engine: engine.cards.muted(), on_list)


def _describe_mute(mute: Mute) -> str:
    """The muted subject, and its place."""
    where = workspace_name(mute.workspace) if mute.workspace else "everywhere"
    about = crop(one_line(mute.prompt), 34) if mute.subject else f"all cards “{kind_title(mute.kind)}”"
    return f"{about}, {where}"


def _describe_end(mute: Mute) -> str:
    """Until when, and why."""
    until = f"until {mute.until.astimezone():%-d %b %H:%M}" if mute.until else "switched off"
    return f"{until}, {mute.why}"
