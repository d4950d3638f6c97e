"""Sentences of an agent's prose with the line each begins in; code, block quotes and tables are left out. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from engine.frozen import frozen

_FENCE = re.compile(r"^\s{0,3}(?:[-*]\s+)?(```+|~~~+)")
_ITEM = re.compile(r"^\s*(?:[-*+•]|\d{1,3}[.)])\s+")
_HEADING = re.compile(r"^\s{0,3}#{1,6}\s")
_TABLE = re.compile(r"^\s*\|.*\|\s*$")
_CODE_INDENT = re.compile(r"^(?: {4,}|\t)\S")
_END = re.compile(r"(?<=[.!?…])[\"'”’)\]]*\s+(?=[\"'“‘(\[`*_]*[A-Z0-9])")
_ABBREVIATION = re.compile(r"(?:\b(?:e\.g|i\.e|etc|vs|cf|approx|no|mr|mrs|dr|st|fig)\.|\b[A-Z]\.)$", re.IGNORECASE)
_EMPHASIS = re.compile(r"(\*\*|__)(?=\S)(.+?)(?<=\S)\1")


@frozen
class Sentence:
    """A sentence, in one line, and the number of the line that it begins in."""

    text: str
    line: int


def sentences(lines: Iterable[tuple[int, str]]) -> Iterator[Sentence]:
    """The sentences of numbered lines that belong together. A list item is a paragraph of its own; lines that were
    wrapped are joined."""
    for paragraph in _paragraphs(lines):
        yield from _split(paragraph)


def _paragraphs(lines: Iterable[tuple[int, str]]) -> Iterator[list[tuple[int, str]]]:
    fence = ""
    block: list[tuple[int, str]] = []
    for number, line in lines:
        fence_match = _FENCE.match(line)
        if fence:
            if fence_match and fence_match[1][0] == fence[0] and len(fence_match[1]) >= len(fence):
                fence = ""
            continue
        if fence_match:
            fence = fence_match[1]
        is_code = not block and _CODE_INDENT.match(line) and not _ITEM.match(line)
        is_separator = not line.strip() or _HEADING.match(line) or _TABLE.match(line) or line.lstrip().startswith(">")
        if fence_match or is_code or is_separator:
            if block:
                yield block
            block = []
            continue
        item = _ITEM.match(line)
        if item and block:
            yield block
            block = []
        block.append((number, line[item.end() :] if item else line))
    if block:
        yield block


def _split(paragraph: list[tuple[int, str]]) -> Iterator[Sentence]:
    text, starts = "", []
    for number, line in paragraph:
        starts.append((len(text), number))
        text += line.strip() + " "
    start = 0
    for end in [*_ends(text), len(text)]:
        sentence = " ".join(_EMPHASIS.sub(r"\2", text[start:end]).split())
        if sentence:
            yield Sentence(sentence, max(number for offset, number in starts if offset <= start))
        start = end


def _ends(text: str) -> Iterator[int]:
    for match in _END.finditer(text):
        if not _ABBREVIATION.search(text[: match.start()]):
            yield match.end()
