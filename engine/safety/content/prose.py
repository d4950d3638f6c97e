"""Judges the requests in a prompt, clause by clause, by the rules of `rules/prose.toml` (SPEC 3.5).

A clause asks for something or only talks about it. "Delete the production database" asks. "Write a test that rm -rf is
refused", "never force push" and "why does it drop the table?" only talk. Code in backticks or fences and quoted text
are removed from the clause and stored beside it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property

from engine.frozen import frozen
from engine.safety.content.rules import Hit, Rule, read_rules

MAX_CLAUSES = 300
"""Maximum number of clauses of one prompt that are read."""
MAX_QUOTED = 100
"""Maximum number of pieces of code and quoted text of one prompt that are read."""
MAX_SENTENCE_LENGTH = 4000

_FENCE = re.compile(r"```[a-zA-Z]*\n(.{0,8000}?)```", re.DOTALL)
_TICKS = re.compile(r"`([^`\n]{1,1000})`")
_QUOTED = re.compile(r"\"([^\"\n]{1,600})\"|(?:(?<=^)|(?<=[\s(:]))'([^'\n]{2,600})'(?=$|[\s.,;:!?)])")
_BLANKS = re.compile(r"[ \t]{2,}")
_MARK = re.compile("\ue000(\\d{1,4})\ue001")
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+|;\s*")
_SEPARATOR = re.compile(
    r"(,\s+(?:(?:and|but|or|so|also)\s+)?(?:then\s+)?|\s+(?:and\s+then|and\s+also|then|and|but|or|nor|before|&)\s+"
    r"|:\s+|"
    r"\s[-\u2014]\s)",
    re.IGNORECASE,
)
_BULLET = re.compile(r"^\s*(?:[-*\u2022>]\s+|\d{1,3}[.)]\s+|\[[ xX]?\]\s+|#{1,6}\s+|\$\s+)+")
_SUBORDINATE = re.compile(r"\b(?:to|that|which|who|when|where|if|whether|how|why|can|of)\b", re.IGNORECASE)


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
    negated_from: int
    """The index in `text` where a negation ends; verbs after it are not requests. -1 without a negation."""


def split_clauses(text: str) -> tuple[list[Clause], bool]:
    """The clauses of `text`, at most `MAX_CLAUSES`, and whether these are all. Takes linear time."""
    stripped = _BLANKS.sub(" ", text.strip())
    if len(stripped) > 2 and stripped[0] in "\"'" and stripped[-1] == stripped[0] and stripped.count(stripped[0]) == 2:
        stripped = stripped[1:-1]
    quotes: list[tuple[str, bool]] = []

    def extract(match: re.Match[str]) -> str:
        inner = next((group for group in match.groups() if group), "")
        if match.re is _QUOTED and len(inner.split()) < 2:
            return f" {inner} "
        if len(quotes) >= MAX_QUOTED:
            return " "
        quotes.append((inner, match.re is not _QUOTED))
        return f" \ue000{len(quotes) - 1}\ue001 "

    stripped = _MARK.sub(" ", stripped)
    for pattern in (_FENCE, _TICKS, _QUOTED):
        stripped = pattern.sub(extract, stripped)
    stripped = _BLANKS.sub(" ", stripped)
    sentences = _SENTENCE.split(stripped)
    complete = len(quotes) < MAX_QUOTED and all(len(sentence) <= MAX_SENTENCE_LENGTH for sentence in sentences)
    result: list[Clause] = []
    talked = False
    for sentence in sentences[:MAX_CLAUSES]:
        bare = _MARK.sub("", sentence)
        is_only_code = not bare.strip(" .:!`")
        sentence_clauses = _split_sentence(sentence, quotes, talked=is_only_code and talked)
        result += sentence_clauses
        if sentence_clauses and not is_only_code:
            talked = not sentence_clauses[-1].asks
        if len(result) >= MAX_CLAUSES:
            break
    return result[:MAX_CLAUSES], complete and len(result) < MAX_CLAUSES and len(sentences) <= MAX_CLAUSES


def _split_sentence(sentence: str, quotes: list[tuple[str, bool]], *, talked: bool) -> list[Clause]:
    """The clauses of a sentence. `talked` says that the sentence is only code, and that the words before it only talk
    about it."""
    sentence = _BULLET.sub("", sentence[:MAX_SENTENCE_LENGTH])
    first_words = _remove_filler(sentence)[:80]
    is_question = bool(_vocabulary().questions.match(first_words)) and not sentence.lower().startswith("if ")
    parts = _SEPARATOR.split(sentence)
    clauses: list[Clause] = []
    context = ""
    for separator, part in zip(["", *parts[1::2]], parts[::2], strict=True):
        conjunction = separator.strip().lower()
        pieces = [quotes[int(match[1])] for match in _MARK.finditer(part) if int(match[1]) < len(quotes)]
        bare = " ".join(_remove_filler(_MARK.sub(" ", part)).split())
        if not bare and not pieces:
            continue
        talks = talked or is_question or _only_talks(bare)
        if clauses and not talks:
            talks = _continues_talk(clauses[-1], context, conjunction)
        negation = _vocabulary().negations.search(bare)
        clauses.append(
            Clause(
                bare,
                asks=not talks,
                code=tuple(text for text, is_code in pieces if is_code),
                quoted=tuple(text for text, is_code in pieces if not is_code),
                carries=bool(pieces) and bool(_vocabulary().carriers.match(bare)),
                negated_from=negation.end() if negation else -1,
            )
        )
        context = f"{context} {bare}" if talks and conjunction in _JOINING else bare
    return clauses


_CONDITION = re.compile(r"(?:if|when|while|unless|once|after|before|because|since)\b", re.IGNORECASE)
_JOINING = ("and", "or", "nor", "&", ",")


def _only_talks(text: str) -> bool:
    """Whether a clause, judged by itself, talks about something, or says when something is to be done."""
    words = _vocabulary()
    return bool(_CONDITION.match(text) or words.talk.match(text) or words.about.search(text))


def _continues_talk(before: Clause, context: str, conjunction: str) -> bool:
    """Whether a clause only talks because of the one `before`. `context` are the words before it that belong to it."""
    if conjunction == "before":
        return True
    is_alternative = conjunction in ("or", "nor")
    if before.asks:
        return is_alternative and before.negated_from >= 0
    if _vocabulary().talk.match(context):
        return conjunction == ":" or (conjunction in _JOINING and bool(_SUBORDINATE.search(context)))
    return is_alternative and bool(_vocabulary().negations.search(context))


def _remove_filler(text: str) -> str:
    text = text.strip()
    for _ in range(12):
        shorter = _vocabulary().fillers.sub("", text, count=1).strip()
        if shorter == text:
            break
        text = shorter
    return text


_WORD = re.compile(r"[\w'*.-]+")
_GAP = 6
"""Maximum number of words between a verb and its object."""


@dataclass(frozen=True, kw_only=True)
class ProseRule(Rule):
    """A rule on prompts. A clause breaks it if it asks for a verb with an object of the same pair of `asks`, or if the
    pattern `whole` matches."""

    asks: Sequence[Sequence[str]] = ()
    whole: str = ""
    hint: str = ""
    """A fast pattern that must match before `whole` is tried."""

    @cached_property
    def _parsed(self) -> tuple[tuple[re.Pattern[str], re.Pattern[str]], ...]:
        return tuple(
            (
                re.compile(rf"\b(?:{verbs})\b[\s,]+", re.IGNORECASE),
                re.compile(rf"(?<![\w'])(?:{objects})(?!['\w-])(?:'s?(?=\s))?", re.IGNORECASE),
            )
            for verbs, objects in self.asks
        )

    @cached_property
    def _whole(self) -> re.Pattern[str] | None:
        return re.compile(self.whole, re.IGNORECASE) if self.whole else None

    def end_in(self, text: str) -> int:
        """The index in a clause where the words that break the rule end; -1 if the clause does not break it."""
        for verbs, objects in self._parsed:
            for verb in verbs.finditer(text):
                if not _is_asked(text, verb.start()):
                    continue
                following = text[verb.end() : verb.end() + 200]
                for object_match in objects.finditer(following):
                    gap = _WORD.findall(following[: object_match.start()].lower())
                    if len(gap) > _GAP or not _vocabulary().harmless.isdisjoint(gap):
                        break
                    if not _is_code(following[object_match.end() :]):
                        return verb.end() + object_match.end()
        whole_match = None
        if self._whole is not None and (not self.hint or re.search(self.hint, text, re.IGNORECASE)):
            whole_match = self._whole.search(text)
        return whole_match.end() if whole_match else -1


def _is_asked(text: str, start: int) -> bool:
    """Whether the verb at `start` is a request: it begins the clause, or follows a word of request."""
    before = text[:start] if start <= 80 else f"-{text[start - 80 : start]}"
    return not before or _vocabulary().before.search(before) is not None


def _is_code(after: str) -> bool:
    """Whether the words after an object say that it is code or text: "database migration", "… from the list"."""
    word = re.match(r"(?:'s)?\s+([\w-]+)", after)
    return (word is not None and word[1].lower() in _vocabulary().code_nouns) or bool(
        _vocabulary().in_code.match(after)
    )


@dataclass(frozen=True)
class _Vocabulary:
    """The words of `rules/prose.toml`."""

    rules: tuple[ProseRule, ...]
    before: re.Pattern[str]
    """The words before a verb of a request."""
    code_nouns: frozenset[str]
    """Nouns after which an object is code, not the thing itself: "the database migration", "the production flag"."""
    harmless: frozenset[str]
    """The words in `code_nouns`, and words that say that a thing has no value."""
    fillers: re.Pattern[str]
    """Words that may stand before a requested verb and do not change its meaning."""
    talk: re.Pattern[str]
    """The beginning of a clause that talks about something."""
    questions: re.Pattern[str]
    negations: re.Pattern[str]
    about: re.Pattern[str]
    """Words with which a clause makes a statement about a thing."""
    carriers: re.Pattern[str]
    """Matches a clause that only asks to do what it quotes."""
    in_code: re.Pattern[str]
    """Words after an object that say that it is code or text."""


@cache
def _vocabulary() -> _Vocabulary:
    tables = read_rules("prose.toml")
    nouns = frozenset(form for noun in tables["code_nouns"].split() for form in (noun, f"{noun}s", f"{noun}es"))
    words = {name: "|".join(patterns) for name, patterns in tables["clauses"].items()}
    return _Vocabulary(
        rules=tuple(map(ProseRule.parse, tables["rule"])),
        before=_pattern(f"{tables['words']['asked']}$"),
        code_nouns=nouns,
        harmless=nouns | frozenset(tables["placeholders"].split()),
        fillers=_pattern(rf"^(?:{words['fillers']})(?:\s*[,:!]\s*|\s+|$)"),
        talk=_pattern(rf"^(?:{words['talk_about_texts']}|(?:re)?(?:{words['talk']}))\b(?!\s*[:,])"),
        questions=_pattern(rf"^(?:{words['questions']})\b"),
        negations=_pattern(rf"\b(?:{words['negations']})\b(?! (?:forget|hesitate|wait|ask|worry|mind|stop))"),
        about=_pattern(
            rf"\b(?:is|are|was|were|be|being|gets?|got)\s+(?:\w+\s+)?(?:{words['judgements']})\b"
            rf"|\b(?:{words['mentions']})\b"
        ),
        carriers=_pattern(rf"^(?:(?:{words['carriers']})\W*)*$"),
        in_code=_pattern(
            r"\s+(?:from|in|of|out of|inside|under|below|on)\s+(?:the\s+|this\s+|our\s+|that\s+)?(?:\./)?(?:\w+\s+)?"
            rf"(?:{words['places_of_code']})\b"
        ),
    )


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text, re.IGNORECASE)


def rules() -> tuple[ProseRule, ...]:
    """All rules on prompts, those that block before those that ask."""
    return _vocabulary().rules


def judge_clause(clause: Clause) -> Hit | None:
    """The objection by the first rule that a clause breaks, blocks before asks. None if it breaks none, only talks, or
    forbids."""
    if not clause.asks:
        return None
    text = clause.text.replace("\u2019", "'")
    for rule in rules():
        end = rule.end_in(text)
        if end >= 0 and not 0 <= clause.negated_from <= end:
            return rule.hit
    return None
