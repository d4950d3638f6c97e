"""Splits a prompt into clauses, and says which of them ask for something (SPEC 3.5).

A clause asks for something or only talks about it. "Delete the production database" asks. "Write a test that rm -rf is
refused", "never force push" and "why does it drop the table?" only talk. Code in backticks or fences and quoted text
are removed from the clause and stored beside it. The words that show it are in `rules/prose.toml`.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from engine.frozen import frozen
from engine.safety.content import read_rules

MAX_CLAUSES = 300
"""Maximum number of clauses of one prompt that are read."""

MAX_QUOTED_PIECES = 100
"""Maximum number of pieces of code and quoted text of one prompt that are read."""

MAX_SENTENCE_CHARS = 4000
"""Maximum number of characters of a sentence that are read."""

_FENCED_CODE = re.compile(r"```[a-zA-Z]*\n(.{0,8000}?)```", re.DOTALL)
_CODE_IN_TICKS = re.compile(r"`([^`\n]{1,1000})`")
_QUOTED_TEXT = re.compile(r"\"([^\"\n]{1,600})\"|(?:(?<=^)|(?<=[\s(:]))'([^'\n]{2,600})'(?=$|[\s.,;:!?)])")
_BLANKS = re.compile(r"[ \t]{2,}")
_QUOTATION_MARK = re.compile("\ue000(\\d{1,4})\ue001")
"""Matches the mark that stands for a quotation; the number is its index."""

_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+|;\s*")
"""What is between sentences."""

_CLAUSE_SEPARATOR = re.compile(
    r"(,\s+(?:(?:and|but|or|so|also)\s+)?(?:then\s+)?|\s+(?:and\s+then|and\s+also|then|and|but|or|nor|before|&)\s+|"
    r":\s+|\s[-\u2014]\s)",
    re.IGNORECASE,
)
"""What is between the clauses of a sentence: ", and then " in "build it, and then push it"."""

_LIST_MARK = re.compile(r"^\s*(?:[-*\u2022>]\s+|\d{1,3}[.)]\s+|\[[ xX]?\]\s+|#{1,6}\s+|\$\s+)+")
"""The mark before an item of a list or a heading: "- ", "2. ", "[ ] "."""

_SUBORDINATE_WORD = re.compile(r"\b(?:to|that|which|who|when|where|if|whether|how|why|can|of)\b", re.IGNORECASE)
"""Words that begin a subordinate clause, which "and" continues: "explain how to drop a table and delete a file"."""


@cache
def load_tables() -> dict[str, Any]:
    """The tables of `rules/prose.toml`, which are read when they are first needed."""
    return read_rules("prose.toml")


@cache
def load_pattern(name: str) -> re.Pattern[str]:
    """The pattern of this name, in any case."""
    return re.compile(load_tables()["patterns"][name], re.IGNORECASE)


@frozen
class Clause:
    """One clause. Its `text` has no polite beginning, and a space in place of each quotation."""

    text: str
    asks: bool
    code: tuple[str, ...]
    """Its parts between backticks or fences."""
    quoted: tuple[str, ...]
    """Its parts between quotation marks."""
    carries: bool
    """Whether the clause only asks to do what it quotes, like "run this:"."""
    negated_from: int | None
    """The index in `text` where a negation ends; verbs after it are not requests. None without a negation."""

    @property
    def is_request(self) -> bool:
        """Whether the clause asks for something, and forbids nothing."""
        return self.asks and self.negated_from is None


def split_clauses(text: str) -> tuple[list[Clause], bool]:
    """The clauses of `text`, at most `MAX_CLAUSES`, and whether these are all. Takes linear time."""
    quotations = _Quotations()
    sentences = _SENTENCE.split(quotations.extract(_remove_outer_quotes(_BLANKS.sub(" ", text.strip()))))
    clauses: list[Clause] = []
    last_talks = False
    for sentence in sentences[:MAX_CLAUSES]:
        is_only_code = not _QUOTATION_MARK.sub("", sentence).strip(" .:!`")
        sentence_clauses = _split_sentence(sentence, quotations, only_talks=is_only_code and last_talks)
        clauses += sentence_clauses
        if sentence_clauses and not is_only_code:
            last_talks = not sentence_clauses[-1].asks
        if len(clauses) >= MAX_CLAUSES:
            break
    is_complete = (
        len(quotations.pieces) < MAX_QUOTED_PIECES
        and len(clauses) < MAX_CLAUSES
        and len(sentences) <= MAX_CLAUSES
        and all(len(sentence) <= MAX_SENTENCE_CHARS for sentence in sentences)
    )
    return clauses[:MAX_CLAUSES], is_complete


def _remove_outer_quotes(text: str) -> str:
    """The text without quotation marks around all of it."""
    is_quoted = len(text) > 2 and text[0] in "\"'" and text[-1] == text[0] and text.count(text[0]) == 2
    return text[1:-1] if is_quoted else text


@frozen
class _Quotation:
    text: str
    is_code: bool


class _Quotations:
    """The code and the quoted texts of one prompt. Each is replaced by a mark with its index."""

    def __init__(self) -> None:
        self.pieces: list[_Quotation] = []

    def extract(self, text: str) -> str:
        """The text with a mark in place of each piece of code or quoted text."""
        text = _QUOTATION_MARK.sub(" ", text)
        for pattern in (_FENCED_CODE, _CODE_IN_TICKS, _QUOTED_TEXT):
            text = pattern.sub(self._replace, text)
        return _BLANKS.sub(" ", text)

    def find_marked(self, text: str) -> list[_Quotation]:
        """The pieces whose marks are in `text`."""
        indexes = [int(match[1]) for match in _QUOTATION_MARK.finditer(text)]
        return [self.pieces[index] for index in indexes if index < len(self.pieces)]

    def _replace(self, match: re.Match[str]) -> str:
        text = next((group for group in match.groups() if group), "")
        is_code = match.re is not _QUOTED_TEXT
        if not is_code and len(text.split()) < 2:
            return f" {text} "
        if len(self.pieces) >= MAX_QUOTED_PIECES:
            return " "
        self.pieces.append(_Quotation(text, is_code))
        return f" \ue000{len(self.pieces) - 1}\ue001 "


def _split_sentence(sentence: str, quotations: _Quotations, *, only_talks: bool) -> list[Clause]:
    """The clauses of a sentence. With `only_talks`, none of them asks: the sentence is only code, and the words before
    it only talk about it."""
    sentence = _LIST_MARK.sub("", sentence[:MAX_SENTENCE_CHARS])
    only_talks = only_talks or _is_question(sentence)
    parts = _CLAUSE_SEPARATOR.split(sentence)
    clauses: list[Clause] = []
    joined_words = ""  # the last clause, with the clauses before it that it continues
    for separator, part in zip(["", *parts[1::2]], parts[::2], strict=True):
        conjunction = separator.strip().lower()
        pieces = quotations.find_marked(part)
        bare = " ".join(_remove_filler(_QUOTATION_MARK.sub(" ", part)).split())
        if not bare and not pieces:
            continue
        talks = (
            only_talks
            or _talks_by_itself(bare)
            or (bool(clauses) and _continues_talk(clauses[-1], joined_words, conjunction))
        )
        clauses.append(_make_clause(bare, pieces, asks=not talks))
        joined_words = f"{joined_words} {bare}" if talks and conjunction in _JOINING_WORDS else bare
    return clauses


def _is_question(sentence: str) -> bool:
    first_words = _remove_filler(sentence)[:80]
    return bool(load_pattern("questions").match(first_words)) and not sentence.lower().startswith("if ")


def _make_clause(bare: str, pieces: list[_Quotation], *, asks: bool) -> Clause:
    negation = load_pattern("negations").search(bare)
    return Clause(
        bare,
        asks=asks,
        code=tuple(piece.text for piece in pieces if piece.is_code),
        quoted=tuple(piece.text for piece in pieces if not piece.is_code),
        carries=bool(pieces) and bool(load_pattern("carriers").match(bare)),
        negated_from=negation.end() if negation else None,
    )


_CONDITION_WORD = re.compile(r"(?:if|when|while|unless|once|after|before|because|since)\b", re.IGNORECASE)
"""Matches a word at the beginning of a clause that says when something is to be done."""

_JOINING_WORDS = ("and", "or", "nor", "&", ",")
"""Conjunctions that continue the clause before them."""


def _talks_by_itself(text: str) -> bool:
    """Whether a clause, judged by itself, talks about something, or says when something is to be done."""
    return bool(_CONDITION_WORD.match(text) or load_pattern("talk").match(text) or load_pattern("about").search(text))


def _continues_talk(before: Clause, joined_words: str, conjunction: str) -> bool:
    """Whether a clause only talks because of the one `before`, which with the clauses that it continues has the
    `joined_words`."""
    if conjunction == "before":
        return True
    is_alternative = conjunction in ("or", "nor")
    if before.asks:
        return is_alternative and before.negated_from is not None
    if load_pattern("talk").match(joined_words):
        return conjunction == ":" or (conjunction in _JOINING_WORDS and bool(_SUBORDINATE_WORD.search(joined_words)))
    return is_alternative and bool(load_pattern("negations").search(joined_words))


def _remove_filler(text: str) -> str:
    text = text.strip()
    for _ in range(12):
        shorter = load_pattern("fillers").sub("", text, count=1).strip()
        if shorter == text:
            break
        text = shorter
    return text
