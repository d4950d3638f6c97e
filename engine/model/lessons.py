"""Lessons (SPEC 6.8): the rule in a sentence, whether it generalises, and its id. Pure.

The id follows from the words of the rule, so a lesson has the same id in learning entries, patterns, souls and
prompts.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

from engine.frozen import frozen

LESSON = "les_"
"""How the id of a lesson begins."""


@frozen
class Rule:
    """What one sentence says. `general`: it is said of a kind of thing, not of one thing; `why` says which word shows
    that."""

    text: str
    general: bool
    why: str


@frozen
class Correction:
    """What the operator made of a card's prompt before approving it. `estimate` is what the work would have cost, in
    micro-dollars; `reach` how many of the latest 200 decided cards were on the same channel, at least 1."""

    original: str
    edited: str
    agent: str = ""
    kind: str = ""
    channel: str = ""
    session: str = ""
    estimate: int = 0
    reach: int = 1


_SENTENCE = re.compile(r"(?<=[.!?;])\s+|\n+")
_CLAUSE = re.compile(r"[,:]\s+(?:and\s+)?|\s+and\s+")
_LITTLE = frozenset(
    (
        *("a", "an", "the", "that", "this", "these", "to", "of", "in", "on", "at", "for", "and", "or"),
        *("is", "are", "was", "were", "be", "it", "its", "we", "i", "you"),
    )
)


def _any(*words: str) -> re.Pattern[str]:
    return re.compile("|".join(words), re.IGNORECASE)


_STANDING = r"from now on|going forward|in (?:the )?future|in general|generally|as a rule|by default|next time"
_LEAD = _any(
    r"^(?:please|also|and|but|so|then|ok(?:ay)?)\b[,:]?\s+",
    r"^(?:no|actually),\s+",
    r"^(?:remember|note|important|reminder|decision|decided|agreed|correction|fact|rule|fyi)\s*[:—–]\s*",
    r"^(?:remember|note|keep in mind|be aware)(?: that)?\s+(?!to\b)",
    r"^(?:remember|be sure|take care|do not forget|don['’]t forget) to\s+",
    r"^(?:make sure|be sure|ensure|take care|see to it)(?: that)?\s+",
    r"^(?:I want|I['’]d like|I would like) you to\s+",
    r"^you (?:should|must|have to|need to)\s+",
    r"^(?:we|I) (?:have |['’]ve )?(?:decided|agreed|chose) (?:to|that)\s+",
    rf"^(?:{_STANDING}),?\s+",
)
_SHOULD_NOT = _any(r"^you (?:(?:should|must|may) not|(?:should|must)n['’]t|(?:are not|aren['’]t) (?:supposed )?to)\s+")
_THIS = "the|this|that|these|those|his|her|its|our|your|my"
_ONE = _any(r"\b(?:this|these|those|today|tonight|tomorrow|yesterday|right now|for now|for once|once more)\b")
_ALWAYS = _any(rf"\b(?:always|never|whenever|{_STANDING})\b")
_EVERY = _any(
    r"^(?:(?:before|after) )?(?:every|each|all|any|no) (?!(?:of|the|this|that|these|those|two|three|\d+)\b)\w+",
    r"^(?:anything|everything|nothing)\b",
)
"""Of whom a statement is. Within an order "every" says no more than how much there is to do once."""
_OURS = _any(
    r"\bwe (?:always |never |only |no longer )?"
    r"(?:use|keep|write|prefer|name|call|put|avoid|test|run|ship|want|do not|don['’]t)\b"
)
_WISH = _any(r"\b(?:I|the operator) (?:always |never )?(?:prefers?|wants?|likes?|dislikes?) (?!the\b|an?\b|it\b|you\b)")
_KIND = re.compile(
    rf"^(?!(?:{_THIS})\b)(?:(?!the )[a-z][\w-]* ){{0,2}}?(?P<kind>[a-z]\w*[^\Ws])s\s+"
    r"(?:are(?! (?:in|on|at|under|here|there|now|still|red|green|broken|missing|wrong)\b)|have|must|should|need|may|go"
    r"|end|start|begin|use|live|stay|belong|come|carry|say|do|don['’]t|take|get|contain|stand|follow|name|tell|read)\b",
    re.IGNORECASE,
)
_GENERIC = re.compile(r"^an? (?P<kind>[\w-]+(?: [\w-]+)?) (?:must|should|needs?|has|gets?|is|ends?|begins?)\b", re.I)
_CASE = _any(
    r"^(?:when|if|where) (?:an? |you |tests? |something |nothing )",
    rf"^(?:before|after|when) \w+ing\b(?! (?:{_THIS})\b)",
)
_BARE = r"(?!(?:the|this|that|an?|it|them|my|your|our|his|her|one|both|another|more|him)\b)"
_MANNER = re.compile(
    rf"^(?:(?:use|prefer|avoid|spell|cite) {_BARE}|(?:do not|don['’]t|stop) \w+(?:ing)? {_BARE}[\w-]+s\b"
    rf"|(?:keep|end|begin|start|name|format|quote|write|put|state|say|round) {_BARE}(?:[\w-]+ ){{0,2}}?[\w-]+s\b"
    r" (?:in|with|by|before|after|first|as|at|without|under|short|small|plain|\w+ly\b))",
    re.IGNORECASE,
)


def sentences(text: str) -> list[str]:
    """The sentences of a text and its lines, each in one line and without a list's mark; of at least two words."""
    flat = (" ".join(sentence.split()).strip("-*• ") for sentence in _SENTENCE.split(text))
    return [text for text in flat if len(text.split()) > 1]


def distil(sentence: str) -> Rule:
    """The rule in a sentence: without what only leads up to it, and without its full stop. "Please make sure that docs
    end with a full stop." says "docs end with a full stop", of a kind of thing: docs."""
    flat = " ".join(sentence.split())
    bare, before = flat, ""
    while bare != before:
        before, bare = bare, _LEAD.sub("", _SHOULD_NOT.sub("do not ", bare), count=1)
    bare = bare.rstrip(" .;!") or flat
    first = bare.split(" ", 1)[0]
    if first[1:].islower() and bare != flat.rstrip(" .;!"):
        bare = bare[0].lower() + bare[1:]
    return Rule(bare, *_generalises(flat, bare))


def rules(text: str) -> list[Rule]:
    """The rules in a text, each once."""
    return list({lesson_id(rule.text): rule for rule in map(distil, sentences(text))}.values())


def added(original: str, edited: str) -> list[str]:
    """What somebody put into a text: the sentences of `edited` that are not in `original`; of one that goes on where
    one of `original` ends, how it goes on."""
    before = [folded(text).split() for text in sentences(original)]
    new = [text for text in sentences(edited) if folded(text).split() not in before]
    return [_goes_on(text, before) for text in new]


def _goes_on(sentence: str, before: list[list[str]]) -> str:
    words = sentence.split()
    for former in before:
        rest = words[len(former) :]
        if len(rest) > 1 and folded(" ".join(words[: len(former)])).split() == former:
            return " ".join(rest)
    return sentence


def folded(text: str) -> str:
    """The words of a text as exact matches compare them: without case, signs and white space."""
    return " ".join(re.findall(r"\w+", text.casefold())) or " ".join(text.casefold().split())


def lesson_id(text: str) -> str:
    """The id of the lesson that a rule or a sentence says; little words, case and signs make no other."""
    words = [word for word in folded(distil(text).text).split() if word not in _LITTLE]
    return LESSON + hashlib.sha256(" ".join(words or [folded(text)]).encode(errors="replace")).hexdigest()[:12]


def lessons_of(texts: Iterable[str]) -> frozenset[str]:
    """The lessons that these texts say, one each."""
    return frozenset(map(lesson_id, texts))


def without(text: str, lessons: frozenset[str]) -> str:
    """A text without the sentences, and the ends of sentences, that say one of these lessons; everything else stays."""
    if not lessons:
        return text
    parts = re.split(r"((?<=[.!?;])\s+|\n+)", text)
    sentences_and_gaps = zip(parts[::2], [*parts[1::2], ""], strict=True)
    cleaned = ((_unless(text, lessons), text, gap) for text, gap in sentences_and_gaps)
    return "".join(remaining + gap for remaining, text, gap in cleaned if remaining or not text)


def _unless(sentence: str, lessons: frozenset[str]) -> str:
    """A sentence up to where it says a lesson, and its end sign; "" when it begins with it."""
    begins = [0, *(clause.start() for clause in _CLAUSE.finditer(sentence))]
    says = (at for at in begins if lesson_id(_CLAUSE.sub("", sentence[at:], count=at > 0)) in lessons)
    if not (cut := next(says, len(sentence))):
        return ""
    end = sentence.rstrip(".!?;")
    return sentence[: min(cut, len(end))] + sentence[len(end) :]


_TOPICS = {
    "tests": r"tests?|pytest|coverage|fixtures?|assert\w*",
    "documentation": r"docs?|docstrings?|readme|documentation|manual|change ?log",
    "writing": r"sentences?|words?|spelling|tone|titles?|summar(?:y|ies)|prose",
    "frontend interface": r"buttons?|screens?|layout|colou?rs?|css|dialogs?|pages?",
    "backend": r"database|schema|migrations?|api|endpoints?|servers?|sql|quer(?:y|ies)",
    "code": r"functions?|class(?:es)?|modules?|types?|lint\w*|imports?|refactor\w*|variables?|exceptions?|comments?",
    "finance": r"costs?|prices?|budgets?|money|cents?",
    "research analysis": r"sources?|figures?|measure\w*|evidence|benchmarks?",
}
_TOPIC = {name: re.compile(rf"\b(?:{pattern})\b", re.IGNORECASE) for name, pattern in _TOPICS.items()}


def category(text: str, work: str = "") -> str:
    """What a lesson concerns, in words: the topics that it names, and those of the `work` in which it was met."""
    named = [name for name, pattern in _TOPIC.items() if pattern.search(text)]
    return " ".join(dict.fromkeys(re.findall(r"[a-z0-9]+", " ".join([*named, work]).lower())))


def _generalises(flat: str, bare: str) -> tuple[bool, str]:
    if text := _ONE.search(bare):
        return False, f"about one thing: “{text[0]}”"
    if word := _ALWAYS.search(flat) or _EVERY.match(bare):
        return True, f"about a kind of thing: “{word[0].strip()}”"
    for pattern in (_KIND, _GENERIC):
        if (match := pattern.match(bare)) is not None:
            plural = "s" if pattern is _KIND else ""
            return True, f"about a kind of thing: {match['kind']}{plural}"
    if _OURS.search(bare) or _WISH.search(bare):
        return True, "about how things are done here"
    if _CASE.search(bare) or _MANNER.match(bare):
        return True, "about a kind of case"
    return False, "about one thing; three tasks must confirm it"
