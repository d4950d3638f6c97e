"""Rules that find decisions, facts and corrections in what was said in a session (SPEC 4.4). Pure.

Prose is split into sentences, each with the line that it begins in; code, headings, quotes and tables are left out.
Statements are captured. Questions, possibilities, plans for the next minute, code, quotes and sentences with a secret
are not. When in doubt a sentence is left out, so that the memory is not flooded. `capture_rules.toml` has the rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from enum import Enum, StrEnum

from engine.files import read_table
from engine.frozen import frozen
from engine.redaction import redact
from engine.text import compile_any, hex_hash, remove_code_and_comments

# -- sentences

_LIST_ITEM = re.compile(r"^\s*(?:[-*+•]|\d{1,3}[.)])\s+")
_SKIPPED_LINE = re.compile(r"^\s{0,3}#{1,6}\s|^\s*\|.*\|\s*$|^\s*>")
"""Lines that are left out: a heading, a row of a table, a quote."""

_CODE_INDENT = re.compile(r"^(?: {4,}|\t)\S")
_SENTENCE_END = re.compile(r"(?<=[.!?…])[\"'”’)\]]*\s+(?=[\"'“‘(\[`*_]*[A-Z0-9])")
_ABBREVIATION = re.compile(r"(?:\b(?:e\.g|i\.e|etc|vs|cf|approx|no|mr|mrs|dr|st|fig)\.|\b[A-Z]\.)$", re.IGNORECASE)
_EMPHASIS = re.compile(r"(\*\*|__)(?=\S)(.+?)(?<=\S)\1")


@frozen
class Sentence:
    """A sentence, in one line, and the number of the line that it begins in."""

    text: str
    line: int


def read_sentences(lines: Iterable[tuple[int, str]]) -> Iterator[Sentence]:
    """The sentences of numbered lines that belong together. A list item is a paragraph of its own; lines that were
    wrapped are joined."""
    numbered = {number: line.replace("\n", " ") for number, line in lines}
    prose = remove_code_and_comments("\n".join(numbered.values())).split("\n")
    for paragraph in _split_paragraphs(zip(numbered, prose, strict=False)):
        yield from _split_paragraph(paragraph)


def _split_paragraphs(lines: Iterable[tuple[int, str]]) -> Iterator[list[tuple[int, str]]]:
    """The lines of each paragraph. Code, headings, quotes and tables are left out."""
    block: list[tuple[int, str]] = []
    for number, line in lines:
        item = _LIST_ITEM.match(line)
        is_code = not block and _CODE_INDENT.match(line) and not item
        is_left_out = not line.strip() or is_code or _SKIPPED_LINE.match(line)
        if block and (item or is_left_out):
            yield block
            block = []
        if not is_left_out:
            block.append((number, line[item.end() :] if item else line))
    if block:
        yield block


def _split_paragraph(paragraph: list[tuple[int, str]]) -> Iterator[Sentence]:
    """The sentences of one paragraph."""
    text, starts = "", []
    for number, line in paragraph:
        starts.append((len(text), number))
        text += line.strip() + " "
    start = 0
    for end in [*_find_sentence_ends(text), len(text)]:
        sentence = " ".join(_EMPHASIS.sub(r"\2", text[start:end]).split())
        if sentence:
            yield Sentence(sentence, max(number for offset, number in starts if offset <= start))
        start = end


def _find_sentence_ends(text: str) -> Iterator[int]:
    for match in _SENTENCE_END.finditer(text):
        if not _ABBREVIATION.search(text[: match.start()]):
            yield match.end()


# -- rules

MIN_SENTENCE_CHARS = 12
MAX_SENTENCE_CHARS = 400
"""Numbers of characters between which a sentence is captured."""

MIN_WORDS = 4
"""Minimum number of words of a sentence that is captured."""

MAX_TAGS = 6
"""Maximum number of tags of a sentence."""

MIN_OVERLAP = 0.5
"""A correction corrects a statement if they share at least this part of the shorter one's words."""


class CaptureKind(StrEnum):
    """The kind of a captured sentence."""

    DECISION = "decision"
    FACT = "fact"
    CORRECTION = "correction"


class Speaker(Enum):
    """Whose words a sentence is."""

    AGENT = "agent"
    OPERATOR = "operator"
    """The operator's preferences are facts, too."""
    PROGRAM = "program"
    """Of what a program prints, only sentences with a capitalised label (`Decision: …`) count."""


@frozen
class CapturedSentence:
    """A sentence worth keeping, and the line that it begins in."""

    kind: CaptureKind
    text: str
    tags: tuple[str, ...]
    line: int

    @property
    def digest(self) -> str:
        """The same for sentences with the same words in the same order, apart from common words, case and
        punctuation."""
        return digest_sentence(self.text)


_RULES = read_table(__file__, "capture_rules.toml")
"""The patterns of labels, topics and kinds of sentences."""

_LABEL_PATTERNS = {CaptureKind(kind): compile_any(rf"^(?:{words})\s*[:—–]") for kind, words in _RULES["labels"].items()}
_LABELLED_LINE = compile_any(rf"^\W*(?:{'|'.join(_RULES['labels'].values())})\s*[:—–]")
"""A line of output that begins with a label."""

_TOPIC_PATTERNS = {topic: compile_any(words) for topic, words in _RULES["topics"].items()}

_CORRECTION = compile_any(*_RULES["correction"])
_DECISION = compile_any(*_RULES["decision"])
_FACT = compile_any(*_RULES["fact"])
_UNCERTAIN = compile_any(*_RULES["uncertain"])
_PLAN = compile_any(*_RULES["plan"])
_TEMPORARY = compile_any(*_RULES["temporary"])

_PREFERENCE = re.compile(r"\bI (?:always |never )?(?:prefer|want|like|dislike|insist)\b", re.IGNORECASE)
"""Matches a preference, which counts only in the operator's own words."""

_REASON_BEGIN = re.compile(r"\b(?:because|since|so that|which|as it|in case|:)\s", re.IGNORECASE)
_CODE_IN_TICKS = re.compile(r"`[^`]*`")
_QUOTED_TEXT = re.compile(r"\"[^\"]*\"|“[^”]*”|«[^»]*»|(?<!\w)'[^']{2,}'(?!\w)|‘[^’]{2,}’(?!\w)")
_LOOKS_LIKE_CODE = re.compile(
    r"[{};]\s*$|^\s*(?:def|class|import|from|return|const|let|var|fn|if \()\b.*[:;({]\s*$|=>|::|\$\("
)

_FILE_NAME = re.compile(
    r"(?<![\w/])(?:[\w.-]+/)*[\w-]+\.(?:py|md|toml|json|ya?ml|js|ts|tsx|go|rs|sql|sh|txt|cfg|ini|css)\b"
)

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")
_STOP_WORDS_TEXT = """
a an the that this these to of on in at for with and or we i it is are was were be been have has had so do does
"""
_STOP_WORDS = frozenset(_STOP_WORDS_TEXT.split())
"""Words that do not count when sentences are compared."""


def capture_sentences(
    lines: Iterable[tuple[int, str]], speaker: Speaker = Speaker.AGENT, secrets: Iterable[str] = ()
) -> list[CapturedSentence]:
    """The sentences worth keeping in numbered lines that belong together, each once. Sentences with one of the
    `secrets` are left out."""
    secret_values = tuple(secrets)
    captured: dict[str, CapturedSentence] = {}
    for sentence in read_sentences(lines):
        kind = classify_sentence(sentence.text, speaker)
        if kind is not None and redact(sentence.text, secret_values) == sentence.text:
            tagged = _tag_sentence(kind, sentence)
            captured.setdefault(tagged.digest, tagged)
    return list(captured.values())


def has_label(line: str) -> bool:
    """Whether a line of output has a label (`Decision: …`)."""
    return bool(_LABELLED_LINE.search(line))


def classify_sentence(sentence: str, speaker: Speaker = Speaker.AGENT) -> CaptureKind | None:
    """The kind of a sentence, None for one that is not worth keeping."""
    if not MIN_SENTENCE_CHARS <= len(sentence) <= MAX_SENTENCE_CHARS or len(_WORD.findall(sentence)) < MIN_WORDS:
        return None
    plain = _QUOTED_TEXT.sub(_mask, _CODE_IN_TICKS.sub(_mask, sentence))
    is_question = plain.rstrip("\"'”’)]*_ ").endswith("?")
    if is_question or _LOOKS_LIKE_CODE.search(plain) or len(plain.replace("_", "").split()) < MIN_WORDS:
        return None
    labelled_kind = next((kind for kind, pattern in _LABEL_PATTERNS.items() if pattern.search(plain)), None)
    if speaker is Speaker.PROGRAM:  # compilers label their remarks, too: `note: …`, and javac `Note: …`
        return labelled_kind if plain[0].isupper() and not plain.lower().startswith("note") else None
    if _UNCERTAIN.search(plain if labelled_kind else _remove_reason(plain)):
        return None
    return labelled_kind or _find_kind_by_words(plain, speaker)


def _find_kind_by_words(statement: str, speaker: Speaker) -> CaptureKind | None:
    """The kind of a statement without a label, whose quotes and code are masked; None for one that is not worth
    keeping."""
    if _CORRECTION.search(statement):
        return CaptureKind.CORRECTION
    if _DECISION.search(statement):
        return CaptureKind.DECISION
    if speaker is Speaker.OPERATOR and _PREFERENCE.search(statement):
        return CaptureKind.FACT
    is_fact = _FACT.search(statement) and not _PLAN.search(statement) and not _TEMPORARY.search(statement)
    return CaptureKind.FACT if is_fact else None


def digest_sentence(text: str) -> str:
    """A digest of what a sentence says; see `CapturedSentence.digest`."""
    words = [word for word in _WORD.findall(text.casefold().replace("’", "'")) if word not in _STOP_WORDS]
    return hex_hash(" ".join(words), 24)


def _find_distinct_words(text: str) -> frozenset[str]:
    """The words by which sentences are compared: without common words, in lower case."""
    return frozenset(word for word in _WORD.findall(text.casefold()) if word not in _STOP_WORDS and len(word) > 1)


def find_corrected_id(sentence: str, candidates: Iterable[tuple[str, str]]) -> str:
    """The id of the candidate (id, text) that a sentence most likely corrects: it shares at least `MIN_OVERLAP` of the
    shorter one's words, and does not say the same. "" for none."""
    words, own_digest = _find_distinct_words(sentence), digest_sentence(sentence)
    shares: dict[str, float] = {}
    for id, text in candidates:
        candidate_words = _find_distinct_words(text)
        if digest_sentence(text) != own_digest and (shorter := min(len(words), len(candidate_words))):
            shares[id] = len(words & candidate_words) / shorter
    best = max(shares, key=lambda id: shares[id], default="")
    return best if best and shares[best] >= MIN_OVERLAP else ""


def _tag_sentence(kind: CaptureKind, sentence: Sentence) -> CapturedSentence:
    topics = [name for name, pattern in _TOPIC_PATTERNS.items() if pattern.search(sentence.text)]
    files = list(dict.fromkeys(_FILE_NAME.findall(sentence.text)))
    return CapturedSentence(kind, sentence.text, tuple((topics + files)[:MAX_TAGS]), sentence.line)


def _remove_reason(sentence: str) -> str:
    """The sentence up to its reasons, since a reason may say what could be."""
    match = _REASON_BEGIN.search(sentence, 8)
    return sentence[: match.start()] if match else sentence


def _mask(match: re.Match[str]) -> str:
    """Underscores in place of a match, so that no other pattern matches there."""
    return "_" * len(match[0])
