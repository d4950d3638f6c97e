"""Makes the text of prompts: blocks between tags, and quoted text that cannot close them (SPEC 1.5)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from xml.sax.saxutils import escape, quoteattr

from engine.model import (
    PromptLine,
    PromptPart,
    PromptSource,
    sanitise,
)
from engine.model.agents import OWN_TEXT
from engine.model.secrets import redact_lines

"""The source of tags and of the product's own text."""


def quote_lines(text: str, source: PromptSource) -> list[PromptLine]:
    """The lines of another's text: without control characters, XML-escaped, each with its source."""
    return [PromptLine(escape(line), source) for line in sanitise(text).strip("\n").split("\n")]


def own_lines(text: str) -> list[PromptLine]:
    """The lines of the product's own text, unchanged."""
    return [PromptLine(line, OWN_TEXT) for line in text.strip("\n").split("\n")]


def make_block(
    name: str, lines: Iterable[PromptLine], *, attributes: Mapping[str, str] | None = None, role: str = "system"
) -> PromptPart:
    """A part with `lines`, which are escaped already, between `<name …>` and `</name>`."""
    rendered_attributes = "".join(
        f" {key}={quoteattr(_one_line(value))}" for key, value in (attributes or {}).items() if value
    )
    return PromptPart(
        name,
        (PromptLine(f"<{name}{rendered_attributes}>", OWN_TEXT), *lines, PromptLine(f"</{name}>", OWN_TEXT)),
        role,
    )


def without_secrets(part: PromptPart, secrets: Iterable[str]) -> PromptPart:
    """The part without secrets (SPEC 11.1); if it changed, without a token count."""
    clean = redact_lines([line.text for line in part.lines], secrets)
    if all(text == line.text for text, line in zip(clean, part.lines, strict=True)):
        return part
    lines = tuple(PromptLine(text, line.source) for text, line in zip(clean, part.lines, strict=True))
    return replace(part, lines=lines, tokens=0)


def _one_line(value: str) -> str:
    return " ".join(sanitise(value).split())
