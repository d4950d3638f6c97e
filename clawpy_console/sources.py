"""From a line of a prompt to where it came from, to correct it there (SPEC 9.6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clawpy_console import outside
from engine.model import Layer, PromptSource, Refusal, SourceKind

if TYPE_CHECKING:
    from clawpy_console.app import ConsoleApp


def lead_to(app: ConsoleApp, source: PromptSource, session_id: str) -> None:
    """Open what `source` names: a file in the editor, a card, the session's transcript; else say what it is."""
    match source.kind:
        case SourceKind.SOUL | SourceKind.PROJECT if source.ref:
            outside.open_editor(app, source.ref)
        case SourceKind.TASK if source.ref.startswith("pred_"):
            _open_card(app, source.ref)
        case SourceKind.MEMORY if source.ref and source.label[:1] in set(Layer):
            app.open("memory", Layer(source.label[0]), source.ref)
        case SourceKind.LEADER if source.ref:
            app.open("hierarchy", source.ref.partition("#")[0])
        case SourceKind.OVERLAY | SourceKind.LEARNING if source.ref:
            app.open("learning", source.ref)
        case SourceKind.OPERATOR | SourceKind.CONVERSATION:
            app.open("work", session_id)
            app.say("See the transcript of this session.")
        case SourceKind.RUNNER:
            app.say("This line comes from Clawpy Console itself.")
        case _:
            app.say(f"{source.kind.value}: {source.label or source.ref}" + (f" ({source.ref})" if source.label else ""))


def _open_card(app: ConsoleApp, card_id: str) -> None:
    def gone(refusal: Refusal) -> None:
        app.say(f"the card {card_id} is gone: {refusal.message}", "warning")

    app.ask(lambda engine: engine.cards.get(card_id), app.cards.show_details, gone)
