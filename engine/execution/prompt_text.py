"""Text of prompts: blocks between tags, and quoted text that cannot close them (SPEC 1.5)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from xml.sax.saxutils import escape, quoteattr

from engine.model import (
    PromptLine,
    PromptPart,
    PromptSource,
    SourceKind,
    sanitise,
)
from engine.model.secrets import redact_lines

OURS = PromptSource(SourceKind.RUNNER, label="clawpy")
"""The source of tags and of the product's own words."""


def quoted(text: str, source: PromptSource) -> list[PromptLine]:
    """Lines of text that is not ours: without control characters, XML-escaped, each with its source."""
    return [PromptLine(escape(line), source) for line in sanitise(text).strip("\n").split("\n")]


def ours(text: str) -> list[PromptLine]:
    """Lines of our own words, as they are."""
    return [PromptLine(line, OURS) for line in text.strip("\n").split("\n")]


def block(
    name: str, lines: Iterable[PromptLine], *, attributes: Mapping[str, str] | None = None, role: str = "system"
) -> PromptPart:
    """`lines` between `<name …>` and `</name>`. The lines are escaped already, or ours."""
    rendered_attributes = "".join(
        f" {key}={quoteattr(_one_line(value))}" for key, value in (attributes or {}).items() if value
    )
    return PromptPart(
        name, (PromptLine(f"<{name}{rendered_attributes}>", OURS), *lines, PromptLine(f"</{name}>", OURS)), role
    )


def without_secrets(part: PromptPart, secrets: Iterable[str]) -> PromptPart:
    """The part with what is secret cut out of its lines (SPEC 11.1); its tokens have to be counted again then."""
    clean = redact_lines([line.text for line in part.lines], secrets)
    if all(text == line.text for text, line in zip(clean, part.lines, strict=True)):
        return part
    lines = tuple(PromptLine(text, line.source) for text, line in zip(clean, part.lines, strict=True))
    return replace(part, lines=lines, tokens=0)


def _one_line(value: str) -> str:
    return " ".join(sanitise(value).split())
