"""Documents of verbs as text: aligned, coloured in a terminal only, plain in a pipe (SPEC 9.7, 9.8).

One module for each group of verbs; `verbs.toml` names the function for each verb. Colour never carries meaning alone,
and text from outside loses its control characters here.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from clawpy_console.cli.printing.style import bad, clean, dim, strip_colours
from clawpy_console.cli.verbs import VERBS
from clawpy_console.fields import Document
from engine.model import Refusal


def find_printer(verb: str, action: str | None = None) -> Any:
    """The function that prints the document of a verb or of one of its actions: `printer(document)` gives its lines."""
    declared = VERBS[verb]
    module, name = declared.actions.get(action or "", declared).printer.split(".")
    return getattr(import_module(f"{__name__}.{module}"), name)


def render_document(verb: str, document: Document, action: str | None = None, *, colour: bool = False) -> str:
    """The text for the document of a verb or of one of its actions."""
    text = "\n".join(find_printer(verb, action)(clean(document))) or VERBS[verb].if_empty
    return text if colour else strip_colours(text)


def render_refusal(refusal: Refusal, *, colour: bool) -> str:
    """The text of a refusal: what was not done, why, and how to fix it."""
    text = bad("clawpy: ") + clean(refusal.message)
    text += "\n        " + dim(clean(refusal.fix)) if refusal.fix else ""
    return text if colour else strip_colours(text)
