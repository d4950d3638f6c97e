"""Splits an agent's prose into sentences, each with the line that it begins in, for `capture_rules`; code, headings,
quotes and tables are left out. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from engine.frozen import frozen

_FENCE = re.compile(r"^\s{0,3}(?:[-*]\s+)?(```+|~~~+)")
_ITEM = re.compile(r"^\s*(?:[-*+•]|\d{1,3}[.)])\s+")
_LEFT_OUT = re.compile(r"^\s{0,3}#{1,6}\s|^\s*\|.*\|\s*$|^\s*>")
"""A heading, a row of a table, a quote."""

_CODE_INDENT = re.compile(r"^(?: {4,}|\t)\S")
_SENTENCE_END = re.compile(r"(?<=[.!?…])[\"'”’)\]]*\s+(?=[\"'“‘(\[`*_]*[A-Z0-9])")
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
    for paragraph in _paragraphs(_prose(lines)):
        yield from _sentences_of(paragraph)


def _prose(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """The lines, with an empty one in the place of each that is in a fenced block."""
    fence = ""
    for number, line in lines:
        mark = _FENCE.match(line)
        if fence:
            if mark and mark[1][0] == fence[0] and len(mark[1]) >= len(fence):
                fence = ""
            yield number, ""
        else:
            fence = mark[1] if mark else ""
            yield number, "" if mark else line


def _paragraphs(lines: Iterable[tuple[int, str]]) -> Iterator[list[tuple[int, str]]]:
    block: list[tuple[int, str]] = []
    for number, line in lines:
        item = _ITEM.match(line)
        is_code = not block and _CODE_INDENT.match(line) and not item
        is_left_out = not line.strip() or is_code or _LEFT_OUT.match(line)
        if block and (item or is_left_out):
            yield block
            block = []
        if not is_left_out:
            block.append((number, line[item.end() :] if item else line))
    if block:
        yield block


def _sentences_of(paragraph: list[tuple[int, str]]) -> Iterator[Sentence]:
    text, starts = "", []
    for number, line in paragraph:
        starts.append((len(text), number))
        text += line.strip() + " "
    start = 0
    for end in [*_sentence_ends(text), len(text)]:
        sentence = " ".join(_EMPHASIS.sub(r"\2", text[start:end]).split())
        if sentence:
            yield Sentence(sentence, max(number for offset, number in starts if offset <= start))
        start = end


def _sentence_ends(text: str) -> Iterator[int]:
    for match in _SENTENCE_END.finditer(text):
        if not _ABBREVIATION.search(text[: match.start()]):
            yield match.end()
