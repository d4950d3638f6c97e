"""Rules that find decisions, facts and corrections in what was said in a session (SPEC 4.4). Pure.

Prose is split into sentences, each with the line that it begins in; code, headings, quotes and tables are left out.
Statements are captured. Questions, possibilities, plans for the next minute, code, quotes and sentences with a secret
are not. When in doubt a sentence is left out, so that the memory is not flooded.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from enum import StrEnum

from engine.frozen import frozen
from engine.model.secrets import redact

# -- sentences

_FENCE = re.compile(r"^\s{0,3}(?:[-*]\s+)?(```+|~~~+)")
_ITEM = re.compile(r"^\s*(?:[-*+•]|\d{1,3}[.)])\s+")
_LEFT_OUT = re.compile(r"^\s{0,3}#{1,6}\s|^\s*\|.*\|\s*$|^\s*>")
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


def sentences(lines: Iterable[tuple[int, str]]) -> Iterator[Sentence]:
    """The sentences of numbered lines that belong together. A list item is a paragraph of its own; lines that were
    wrapped are joined."""
    for paragraph in _paragraphs(_prose(lines)):
        yield from _sentences_of(paragraph)


def _prose(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """The lines, with an empty line in place of each line of a fenced block."""
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


# -- rules

MIN_LENGTH, MAX_LENGTH = 12, 400
"""Numbers of characters between which a sentence is captured."""

MIN_WORDS = 4
MAX_TAGS = 6
MIN_OVERLAP = 0.5
"""A correction corrects a statement if they share at least this part of the shorter one's words."""


class CaptureKind(StrEnum):
    """The kind of a captured sentence."""

    DECISION = "decision"
    FACT = "fact"
    CORRECTION = "correction"


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
        return digest(self.text)


def _any_of(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns), re.IGNORECASE)


_SUBJECT = r"(?:I|we|they|the (?:team|owner|operator|user|project)|you)"

_LABELS = {
    CaptureKind.DECISION: "decision|decided|agreed",
    CaptureKind.CORRECTION: "correction|erratum",
    CaptureKind.FACT: "fact|note|remember|important|reminder|fyi|keep in mind",
}
"""Labels before a colon. A sentence with one is captured from the output of programs, too."""

_LABELLED = {kind: _any_of(rf"^(?:{words})\s*[:—–]") for kind, words in _LABELS.items()}
_LABELLED_LINE = _any_of(rf"^\W*(?:{'|'.join(_LABELS.values())})\s*[:—–]")

_CORRECTION = _any_of(
    r"^(?:no,\s+)?actually\b",
    r"^no,\s+(?!problem|worries|thanks|that'?s fine)",
    r"\b(?:I|we) (?:was|were) (?:wrong|mistaken)\b",
    r"\b(?:I|we) (?:misread|misunderstood|misspoke|misremembered)\b",
    r"\b(?:that|this|it)(?:'s|’s| is| was) (?:wrong|incorrect|not (?:right|correct|true))\b",
    r"\bmy mistake\b",
    r"\bcontrary to (?:what|my|our|the)\b",
    r"\b(?:is|are|was|were) not .{2,60}?,? but (?:rather )?",
    r"\bno longer (?:uses?|lives?|runs?|needs?|requires?|depends?)\b",
)

_DECISION = _any_of(
    _SUBJECT + r"(?:['’]ve| have|['’]d| had)? (?:decided|chose|chosen|opted|agreed|settled|elected|resolved)"
    r" (?:to|on|for|that|against|not)\b",
    r"\bit (?:was|has been) (?:decided|agreed)\b",
    r"\b(?:I|we)(?:['’]re| are|['’]ll| will|['’]m| am)? (?:go|going|went|stick|sticking|stuck) with\b",
    r"\blet['’]?s (?:go|stick) with\b",
    r"^(?:from now on|going forward)\b",
    r"\b(?:I|we) (?:picked|selected|rejected|ruled out|dropped) .{2,80}?\b(?:over|because|since|in favou?r of"
    r"|instead)\b",
)

_FACT = _any_of(
    r"^(?:note|remember|keep in mind|be aware) that\b",
    r"\b(?:owner|operator|user|team|you) (?:always |never )?(?:prefers?|wants?|likes?|dislikes?|insists? on)\b",
    r"^(?:always|never) (?:use|run|commit|push|edit|call|import|write|deploy|merge|add|touch|delete)\b",
    r"^(?:the|this|our|its|all|every)\b.{2,90}?\b(?:uses?|lives? (?:in|at|under)|runs? (?:on|under|with)|listens? on"
    r"|requires?|depends? on|defaults? to|expects?|must (?:not )?be|(?:is|are) (?:stored|defined|located|configured"
    r"|written|generated|kept|built|deployed|served|owned|called|named|pinned|licensed|hosted)\b)",
    r"^[A-Z][\w./-]*(?: [\w./-]+){0,3} (?:uses|listens on|runs on|depends on|requires|defaults to|lives in)\b",
)

_PREFERENCE = re.compile(r"\bI (?:always |never )?(?:prefer|want|like|dislike|insist)\b", re.IGNORECASE)
"""Patterns of preferences. They count only in the operator's own words."""

_UNCERTAIN = _any_of(
    r"^(?:if|unless|suppose|supposing|assuming|imagine|what if|whether|maybe|perhaps|possibly|should)\b",
    r"\b(?:would|could|might|may|maybe|perhaps|possibly|probably|presumably|hypothetically|apparently|seems?|appears?)\b",
    r"\b(?:if|unless|whether|in case)\b",
    r"\b(?:not (?:yet )?(?:sure|certain|clear|decided)|un(?:sure|clear|decided|certain))\b",
    r"\b(?:haven['’]?t|hasn['’]?t|have not|has not|not yet) (?:been )?(?:decided|agreed|settled|chosen)\b",
    r"\b(?:I think|I guess|I believe|I assume|I suspect|we could|for example|e\.g\.|say,|let['’]?s say)",
    r"\b(?:needs? to|ha(?:ve|s) to|yet to|once|when|before|after|until) (?:be |we |I )?(?:have |has )?decide[ds]?\b",
)

_PLAN = _any_of(
    r"^(?:let me|let['’]?s (?!go with|stick with)|now|next|first|then|finally|ok(?:ay)?|sure|here(?:'s| is| are))\b",
    r"^(?:I['’]?ll|I will|I['’]?m going to|I am going to|I need to|I should|I can)\b(?! (?:go|stick) with)",
)
_TEMPORARY = _any_of(r"\b(?:currently|right now|at the moment|for now|temporarily|so far|still|just now|today)\b")

_ARGUMENT = re.compile(r"\b(?:because|since|so that|which|as it|in case|:)\s", re.IGNORECASE)
_CODE = re.compile(r"`[^`]*`")
_QUOTED = re.compile(r"\"[^\"]*\"|“[^”]*”|«[^»]*»|(?<!\w)'[^']{2,}'(?!\w)|‘[^’]{2,}’(?!\w)")
_LOOKS_LIKE_CODE = re.compile(
    r"[{};]\s*$|^\s*(?:def|class|import|from|return|const|let|var|fn|if \()\b.*[:;({]\s*$|=>|::|\$\("
)

_TOPICS = {
    "tests": r"\b(?:tests?|pytest|coverage|fixture|flaky)\b",
    "git": r"\b(?:git|commits?|branch(?:es)?|merge|rebase|pull request)\b",
    "database": r"\b(?:database|sqlite|postgres\w*|mysql|schema|migrations?|table|index)\b",
    "deploy": r"\b(?:deploy\w*|release\w*|production|staging|docker|kubernetes)\b",
    "security": r"\b(?:secur\w+|password|token|permission|sandbox|encrypt\w*)\b",
    "style": r"\b(?:style|format\w*|lint\w*|naming|convention|docstrings?)\b",
    "preference": r"\b(?:prefers?|likes?|dislikes?|wants?|insists?)\b",
    "dependency": r"\b(?:depend\w*|library|package|version|upgrade|pinned)\b",
    "configuration": r"\b(?:config\w*|setting|environment|default\w*|port)\b",
    "api": r"\b(?:api|endpoint|route|http|json)\b",
}
_FILE = re.compile(r"(?<![\w/])(?:[\w.-]+/)*[\w-]+\.(?:py|md|toml|json|ya?ml|js|ts|tsx|go|rs|sql|sh|txt|cfg|ini|css)\b")

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")
_STOP_WORDS_TEXT = """
a an the that this these to of on in at for with and or we i it is are was were be been have has had so do does
"""
_STOP_WORDS = frozenset(_STOP_WORDS_TEXT.split())


def capture(
    lines: Iterable[tuple[int, str]], *, operator: bool = False, output: bool = False, secrets: Iterable[str] = ()
) -> list[CapturedSentence]:
    """The sentences worth keeping in numbered lines that belong together, each once.

    `operator`: they are the operator's own words. `output`: a program printed them, and only sentences with a label
    (`Decision: …`) count. Sentences with one of the `secrets` are left out.
    """
    secret_values = tuple(secrets)
    captured: dict[str, CapturedSentence] = {}
    for sentence in sentences(lines):
        kind = classify(sentence.text, operator=operator, output=output)
        if kind is not None and redact(sentence.text, secret_values) == sentence.text:
            tagged = _tagged(kind, sentence)
            captured.setdefault(tagged.digest, tagged)
    return list(captured.values())


def has_label(line: str) -> bool:
    """Whether a line of output has a label (`Decision: …`)."""
    return bool(_LABELLED_LINE.search(line))


def classify(sentence: str, *, operator: bool = False, output: bool = False) -> CaptureKind | None:
    """The kind of a sentence, None for one that is not worth keeping."""
    if not MIN_LENGTH <= len(sentence) <= MAX_LENGTH or len(_WORD.findall(sentence)) < MIN_WORDS:
        return None
    plain = _QUOTED.sub(_masked, _CODE.sub(_masked, sentence))
    if plain.rstrip("\"'”’)]*_ ").endswith("?") or _LOOKS_LIKE_CODE.search(plain):
        return None
    if len(plain.replace("_", "").split()) < MIN_WORDS:
        return None
    labelled_kind = next((kind for kind, pattern in _LABELLED.items() if pattern.search(plain)), None)
    if output:
        return labelled_kind
    claim = plain if labelled_kind else _without_reason(plain)
    if _UNCERTAIN.search(claim):
        return None
    if labelled_kind:
        return labelled_kind
    if _CORRECTION.search(plain):
        return CaptureKind.CORRECTION
    if _DECISION.search(plain):
        return CaptureKind.DECISION
    if operator and _PREFERENCE.search(plain):
        return CaptureKind.FACT
    if _FACT.search(plain) and not _PLAN.search(plain) and not _TEMPORARY.search(plain):
        return CaptureKind.FACT
    return None


def digest(text: str) -> str:
    """A digest of what a sentence says; see `CapturedSentence.digest`."""
    words = [word for word in _WORD.findall(text.casefold().replace("’", "'")) if word not in _STOP_WORDS]
    return hashlib.sha256(" ".join(words).encode(errors="replace")).hexdigest()[:24]


def content_words(text: str) -> frozenset[str]:
    """The words by which sentences are compared: without common words, in lower case."""
    return frozenset(word for word in _WORD.findall(text.casefold()) if word not in _STOP_WORDS and len(word) > 1)


def corrected_by(sentence: str, candidates: Iterable[tuple[str, str]]) -> str:
    """The id of the candidate (id, text) that a sentence most likely corrects: it shares at least `MIN_OVERLAP` of the
    shorter one's words, and does not say the same. "" for none."""
    words, own_digest = content_words(sentence), digest(sentence)
    shares = {"": 0.0}
    for id, text in candidates:
        candidate_words = content_words(text)
        if digest(text) != own_digest and (shorter := min(len(words), len(candidate_words))):
            shares[id] = len(words & candidate_words) / shorter
    best = max(shares, key=lambda id: shares[id])
    return best if shares[best] >= MIN_OVERLAP else ""


def _tagged(kind: CaptureKind, sentence: Sentence) -> CapturedSentence:
    topics = [name for name, pattern in _TOPICS.items() if re.search(pattern, sentence.text, re.IGNORECASE)]
    files = list(dict.fromkeys(_FILE.findall(sentence.text)))
    return CapturedSentence(kind, sentence.text, tuple((topics + files)[:MAX_TAGS]), sentence.line)


def _without_reason(sentence: str) -> str:
    """The sentence up to its reasons, since a reason may say what could be."""
    match = _ARGUMENT.search(sentence, 8)
    return sentence[: match.start()] if match else sentence


def _masked(match: re.Match[str]) -> str:
    """Underscores in place of a match, so that no other pattern matches there."""
    return "_" * len(match[0])
