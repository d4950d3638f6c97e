"""Lessons: the rule in a sentence, whether it is about a kind of thing, and its id (SPEC 6.8).

The id follows from the words of the rule, so it is the same in learning entries, patterns, souls and prompts:
`make_lesson_id("Please always test the parser.")` is that of "always test parser". So a retracted lesson can be found
wherever it stands (`remove_lessons`).

English is read by patterns. What seems to be about one thing must be confirmed by three tasks before it counts.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable

from engine.frozen import frozen
from engine.text import compile_any, hex_hash

LESSON_PREFIX = "les_"
"""Prefix of the id of a lesson."""


@frozen
class DistilledRule:
    """The rule in one sentence."""

    text: str
    is_general: bool
    """Whether it is about a kind of thing, not about one thing."""
    why: str
    """The words that show this."""


NOT_GENERAL_YET = "about one thing; three tasks must confirm it"
"""Why an order of the operator is no rule yet (SPEC 6.8)."""

_SENTENCE_BREAK = re.compile(r"(?<=[.!?;])\s+|\n+")
_CLAUSE_BREAK = re.compile(r"[,:]\s+(?:and\s+)?|\s+and\s+")
"""The places at which a lesson may begin within a sentence."""

_LISTED_WORDS = """
    a an the that this these to of in on at for and or is are was were be it its we i you
"""
_FUNCTION_WORDS = frozenset(_LISTED_WORDS.split())
"""Words that do not distinguish one lesson from another."""

_STANDING_WORDS = r"from now on|going forward|in (?:the )?future|in general|generally|as a rule|by default|next time"
"""Words that make an order a rule."""

_INTRODUCTION = compile_any(
    r"^(?:please|also|and|but|so|then|ok(?:ay)?)\b[,:]?\s+",
    r"^(?:no|actually),\s+",
    r"^(?:remember|note|important|reminder|decision|decided|agreed|correction|fact|rule|fyi)\s*[:—–]\s*",
    r"^(?:remember|note|keep in mind|be aware)(?: that)?\s+(?!to\b)",
    r"^(?:remember|be sure|take care|do not forget|don['’]t forget) to\s+",
    r"^(?:make sure|be sure|ensure|take care|see to it)(?: that)?\s+",
    r"^(?:I want|I['’]d like|I would like) you to\s+",
    r"^you (?:should|must|have to|need to)\s+",
    r"^(?:we|I) (?:have |['’]ve )?(?:decided|agreed|chose) (?:to|that)\s+",
    rf"^(?:{_STANDING_WORDS}),?\s+",
)
"""The beginning of a sentence that is not part of the rule, such as "Remember: " or "make sure that "."""

_SHOULD_NOT = compile_any(
    r"^you (?:(?:should|must|may) not|(?:should|must)n['’]t|(?:are not|aren['’]t) (?:supposed )?to)\s+"
)
"""The beginning of a prohibition, such as "you must not " or "you aren't supposed to ". It becomes "do not "."""

_POINTING_WORDS = "the|this|that|these|those|his|her|its|our|your|my"
"""Words before one certain thing."""

_SINGLE_CASE = compile_any(
    r"\b(?:this|these|those|today|tonight|tomorrow|yesterday|right now|for now|for once|once more)\b"
)
"""Words that make a sentence one about one case, whatever else it says: "Always run this test today"."""

_ALWAYS = compile_any(rf"\b(?:always|never|whenever|{_STANDING_WORDS})\b")
"""Words that make a sentence a rule: "Never push on Fridays"."""

_ABOUT_ALL = compile_any(
    r"^(?:(?:before|after) )?(?:every|each|all|any|no) (?!(?:of|the|this|that|these|those|two|three|\d+)\b)\w+",
    r"^(?:anything|everything|nothing)\b",
)
"""The beginning of a sentence about all of a kind: "Every migration has a test". Further on in a sentence "every" only
says how much there is to do once: "Fix every test"."""

_OUR_PRACTICE = compile_any(
    r"\bwe (?:always |never |only |no longer )?"
    r"(?:use|keep|write|prefer|name|call|put|avoid|test|run|ship|want|do not|don['’]t)\b"
)
"""How things are done here: "in reviews we keep functions short"."""

_OPERATORS_WISH = compile_any(
    r"\b(?:I|the operator) (?:always |never )?(?:prefers?|wants?|likes?|dislikes?) (?!the\b|an?\b|it\b|you\b)"
)
"""What the operator likes of a kind of thing: "I prefer short commits", but not "I want the tests"."""

_PLURAL_SUBJECT = re.compile(
    rf"^(?!(?:{_POINTING_WORDS})\b)(?:(?!the )[a-z][\w-]* ){{0,2}}?(?P<kind>[a-z]\w*[^\Ws])s\s+"
    r"(?:are(?! (?:in|on|at|under|here|there|now|still|red|green|broken|missing|wrong)\b)|have|must|should|need|may|go"
    r"|end|start|begin|use|live|stay|belong|come|carry|say|do|don['’]t|take|get|contain|stand|follow|name|tell|read)\b",
    re.IGNORECASE,
)
"""A sentence about things in the plural: "Error messages must name the file", but not "Tests are red"."""

_GENERIC_SUBJECT = re.compile(
    r"^an? (?P<kind>[\w-]+(?: [\w-]+)?) (?:must|should|needs?|has|gets?|is|ends?|begins?)\b", re.I
)
"""A sentence about any thing of a kind: "A commit message should say why"."""

_KIND_OF_CASE = compile_any(
    r"^(?:when|if|where) (?:an? |you |tests? |something |nothing )",
    rf"^(?:before|after|when) \w+ing\b(?! (?:{_POINTING_WORDS})\b)",
)
"""A sentence about what to do in a kind of case: "When tests hang, ..." or "Before merging, ..."."""

_NO_ARTICLE = r"(?!(?:the|this|that|an?|it|them|my|your|our|his|her|one|both|another|more|him)\b)"
"""What follows is not one certain thing."""

_MANNER_OF_WORK = re.compile(
    rf"^(?:(?:use|prefer|avoid|spell|cite) {_NO_ARTICLE}|(?:do not|don['’]t|stop) \w+(?:ing)? {_NO_ARTICLE}[\w-]+s\b"
    rf"|(?:keep|end|begin|start|name|format|quote|write|put|state|say|round) {_NO_ARTICLE}(?:[\w-]+ ){{0,2}}?[\w-]+s\b"
    r" (?:in|with|by|before|after|first|as|at|without|under|short|small|plain|\w+ly\b))",
    re.IGNORECASE,
)
"""An order about how to work, rather than what to do: "Use double quotes", "keep functions short"."""


def split_sentences(text: str) -> list[str]:
    """The sentences of a text with at least two words, each in one line and without a list mark."""
    line = (" ".join(sentence.split()).strip("-*• ") for sentence in _SENTENCE_BREAK.split(text))
    return [text for text in line if len(text.split()) > 1]


def distil_rule(sentence: str) -> DistilledRule:
    """The rule in a sentence, without its introduction and its full stop: "Please make sure that docs end with a full
    stop." becomes "docs end with a full stop", a rule about a kind of thing, docs."""
    line = " ".join(sentence.split())
    rule_text, former_text = line, ""
    while rule_text != former_text:
        former_text, rule_text = rule_text, _INTRODUCTION.sub("", _SHOULD_NOT.sub("do not ", rule_text), count=1)
    rule_text = rule_text.rstrip(" .;!") or line
    first = rule_text.split(" ", 1)[0]
    if first[1:].islower() and rule_text != line.rstrip(" .;!"):
        rule_text = rule_text[0].lower() + rule_text[1:]
    return DistilledRule(rule_text, *_judge_generality(line, rule_text))


def _judge_generality(line: str, rule_text: str) -> tuple[bool, str]:
    """(whether a sentence is about a kind of thing, the words that show this). `rule_text` is the sentence `line`
    without its introduction. In doubt it is about one thing."""
    if text := _SINGLE_CASE.search(rule_text):
        return False, f"about one thing: “{text[0]}”"
    if word := _ALWAYS.search(line) or _ABOUT_ALL.match(rule_text):
        return True, f"about a kind of thing: “{word[0].strip()}”"
    for pattern in (_PLURAL_SUBJECT, _GENERIC_SUBJECT):
        if (match := pattern.match(rule_text)) is not None:
            plural = "s" if pattern is _PLURAL_SUBJECT else ""
            return True, f"about a kind of thing: {match['kind']}{plural}"
    if _OUR_PRACTICE.search(rule_text) or _OPERATORS_WISH.search(rule_text):
        return True, "about how things are done here"
    if _KIND_OF_CASE.search(rule_text) or _MANNER_OF_WORK.match(rule_text):
        return True, "about a kind of case"
    return False, NOT_GENERAL_YET


def find_added_sentences(original: str, edited: str) -> list[str]:
    """The sentences of `edited` that are not in `original`; of one that extends a sentence of `original`, only the
    extension."""
    before = [normalise(text).split() for text in split_sentences(original)]
    new = [text for text in split_sentences(edited) if normalise(text).split() not in before]
    return [_find_extension(text, before) for text in new]


def _find_extension(sentence: str, before: list[list[str]]) -> str:
    """The end of a sentence after the words of a former one, which are listed as in `normalise`; else the sentence."""
    words, normalised = sentence.split(), normalise(sentence).split()
    sizes = itertools.accumulate(len(re.findall(r"\w+", word.casefold())) for word in words)
    end_by_size = {size: end for end, size in enumerate(sizes, start=1)}  # "cart.py" counts as two words
    for former in before:
        rest = words[end_by_size.get(len(former), len(words)) :]
        if len(rest) > 1 and normalised[: len(former)] == former:
            return " ".join(rest)
    return sentence


def normalise(text: str) -> str:
    """A text for exact comparison: its words in lower case, without punctuation."""
    return " ".join(re.findall(r"\w+", text.casefold())) or " ".join(text.casefold().split())


def list_content_words(text: str) -> list[str]:
    """The words of a text in lower case and in order, without function words such as "the"."""
    return [word for word in normalise(text).split() if word not in _FUNCTION_WORDS]


def make_lesson_id(text: str) -> str:
    """The id of the lesson in a rule or sentence; it does not depend on function words, case and punctuation."""
    words = list_content_words(distil_rule(text).text) or [normalise(text)]
    return LESSON_PREFIX + hex_hash(" ".join(words), 12)


def find_lessons(texts: Iterable[str]) -> frozenset[str]:
    """The ids of the lessons in these texts, one for each text."""
    return frozenset(map(make_lesson_id, texts))


def remove_lessons(text: str, lessons: frozenset[str]) -> str:
    """A text without the sentences, and ends of sentences, that contain one of these lessons."""
    if not lessons:
        return text
    parts = re.split(r"((?<=[.!?;])\s+|\n+)", text)
    sentences_and_gaps = zip(parts[::2], [*parts[1::2], ""], strict=True)
    cleaned = ((_cut_at_lesson(text, lessons), text, gap) for text, gap in sentences_and_gaps)
    return "".join(remaining + gap for remaining, text, gap in cleaned if remaining or not text)


def _cut_at_lesson(sentence: str, lessons: frozenset[str]) -> str:
    """A sentence up to the lesson in it, with its punctuation; "" when it begins with the lesson."""
    starts = [0, *(clause.start() for clause in _CLAUSE_BREAK.finditer(sentence))]
    matches = (
        start for start in starts if make_lesson_id(_CLAUSE_BREAK.sub("", sentence[start:], count=start > 0)) in lessons
    )
    cut = next(matches, len(sentence))
    if not cut:
        return ""
    end = sentence.rstrip(".!?;")
    return sentence[: min(cut, len(end))] + sentence[len(end) :]
