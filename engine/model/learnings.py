"""Lessons, and the entries of the promotion chain that have them (SPEC 6).

A lesson is the rule in a sentence. Its id follows from the words of the rule, so it is the same in learning entries,
patterns, souls and prompts: `make_lesson_id("Please always test the parser.")` is that of "always test parser". So a
retracted lesson can be found wherever it stands (`remove_lessons`).

The first half reads English: it distils a rule from a sentence, and judges whether the rule is about a kind of thing.
What seems to be about one thing must be confirmed by three tasks before it counts.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from dataclasses import field
from datetime import datetime
from enum import StrEnum

from engine.frozen import frozen
from engine.model.base import Trust, may_guide
from engine.text import compile_any, hex_hash

LESSON_PREFIX = "les_"
"""Prefix of the id of a lesson."""


@frozen
class Rule:
    """The rule in one sentence."""

    text: str
    general: bool
    """Whether it is about a kind of thing, not about one thing."""
    why: str
    """The words that show this."""


@frozen
class Correction:
    """The operator's edit of a card's prompt before approval."""

    original: str
    edited: str
    agent: str = ""
    kind: str = ""
    channel: str = ""
    session: str = ""
    estimate: int = 0
    """Estimated cost of the work in micro-dollars."""
    reach: int = 1
    """Number of cards on the same channel among the latest 200 decided ones, at least 1."""


_SENTENCE_BREAK = re.compile(r"(?<=[.!?;])\s+|\n+")
_CLAUSE_BREAK = re.compile(r"[,:]\s+(?:and\s+)?|\s+and\s+")
"""The places at which a lesson may begin within a sentence."""

_FUNCTION_WORDS = frozenset(
    (
        *("a", "an", "the", "that", "this", "these", "to", "of", "in", "on", "at", "for", "and", "or"),
        *("is", "are", "was", "were", "be", "it", "its", "we", "i", "you"),
    )
)
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


def distil_rule(sentence: str) -> Rule:
    """The rule in a sentence, without its introduction and its full stop: "Please make sure that docs end with a full
    stop." becomes "docs end with a full stop", a rule about a kind of thing, docs."""
    line = " ".join(sentence.split())
    bare, before = line, ""
    while bare != before:
        before, bare = bare, _INTRODUCTION.sub("", _SHOULD_NOT.sub("do not ", bare), count=1)
    bare = bare.rstrip(" .;!") or line
    first = bare.split(" ", 1)[0]
    if first[1:].islower() and bare != line.rstrip(" .;!"):
        bare = bare[0].lower() + bare[1:]
    return Rule(bare, *_judge_generality(line, bare))


def _judge_generality(line: str, bare: str) -> tuple[bool, str]:
    """(whether a sentence is about a kind of thing, the words that show this). `bare` is the sentence `line` without
    its introduction. In doubt it is about one thing."""
    if text := _SINGLE_CASE.search(bare):
        return False, f"about one thing: “{text[0]}”"
    if word := _ALWAYS.search(line) or _ABOUT_ALL.match(bare):
        return True, f"about a kind of thing: “{word[0].strip()}”"
    for pattern in (_PLURAL_SUBJECT, _GENERIC_SUBJECT):
        if (match := pattern.match(bare)) is not None:
            plural = "s" if pattern is _PLURAL_SUBJECT else ""
            return True, f"about a kind of thing: {match['kind']}{plural}"
    if _OUR_PRACTICE.search(bare) or _OPERATORS_WISH.search(bare):
        return True, "about how things are done here"
    if _KIND_OF_CASE.search(bare) or _MANNER_OF_WORK.match(bare):
        return True, "about a kind of case"
    return False, "about one thing; three tasks must confirm it"


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


_TOPIC_WORDS = {
    "tests": r"tests?|pytest|coverage|fixtures?|assert\w*",
    "documentation": r"docs?|docstrings?|readme|documentation|manual|change ?log",
    "writing": r"sentences?|words?|spelling|tone|titles?|summar(?:y|ies)|prose",
    "frontend interface": r"buttons?|screens?|layout|colou?rs?|css|dialogs?|pages?",
    "backend": r"database|schema|migrations?|api|endpoints?|servers?|sql|quer(?:y|ies)",
    "code": r"functions?|class(?:es)?|modules?|types?|lint\w*|imports?|refactor\w*|variables?|exceptions?|comments?",
    "finance": r"costs?|prices?|budgets?|money|cents?",
    "research analysis": r"sources?|figures?|measure\w*|evidence|benchmarks?",
}
"""The words of each topic. A leader gets the findings on the topics of its domain."""

_TOPIC_PATTERNS = {name: re.compile(rf"\b(?:{pattern})\b", re.IGNORECASE) for name, pattern in _TOPIC_WORDS.items()}


def find_topics(text: str, work: str = "") -> str:
    """The topics of a lesson, in words: those of its text and of the `work` in which it was found."""
    named = [name for name, pattern in _TOPIC_PATTERNS.items() if pattern.search(text)]
    return " ".join(dict.fromkeys(re.findall(r"[a-z0-9]+", " ".join([*named, work]).lower())))


class LearningScope(StrEnum):
    """Where a learning is valid, most specific first (SPEC 6.1)."""

    TEAM = "team"  # the workers of one leader, in one session
    SESSION = "session"
    PROJECT = "project"
    GLOBAL = "global"


class LearningKind(StrEnum):
    """The subject of an entry. Kinds are never mixed (SPEC 6.1, 6.3)."""

    INSTITUTIONAL = "institutional"  # how things are done here: `institutional.md`
    TASK = "task"  # about a piece of work: `tasks/`
    PROXY = "proxy"  # about the operator: `proxy.md`, `proxy-tasks/`; never promoted


class LearningType(StrEnum):
    """The sort of statement of an entry."""

    DECLARATIVE = "declarative"  # how something is
    PROCEDURAL = "procedural"  # how something is done
    DIRECTIVE = "directive"  # how something must be
    CORRECTIVE = "corrective"  # what was wrong, and what is right


class LearningStatus(StrEnum):
    """Whether an entry is valid. A compacted one was merged into another."""

    ACTIVE = "active"
    RETIRED = "retired"  # "retracted" for the operator
    COMPACTED = "compacted"


PROSPECTIVE, IN_FLIGHT = "prospective", "in-flight"
"""The phases of a risk, which is found before a session, and of an assumption of its agent."""

UNPROVEN_PHASES = (PROSPECTIVE, IN_FLIGHT)


@frozen
class EntrySource:
    """The source of a promoted entry: another entry, and the session that it came from."""

    entry: str
    session: str = ""


@frozen
class LearningEntry:
    """One learning, an entry of a Markdown file."""

    id: str
    scope: LearningScope
    scope_id: str
    """The leader (team), the session's id, the project's key, or "" (global)."""
    kind: LearningKind
    type: LearningType
    domain: str
    """ "team" for how agents work together, "task" for the work itself."""
    text: str
    title: str
    importance: float
    """From 0 to 1."""
    confidence: float
    """From 0 to 1."""
    reasons: tuple[str, ...]
    """Of confidence and importance, in words (SPEC 6.7)."""
    phase: str
    """When in a session it was found: "observations", "escalation", "intent-alignment", "prospective", "in-flight" or
    "corrective"."""
    status: LearningStatus
    created_at: datetime | None
    reinforcement_count: int = 0
    last_reinforced: datetime | None = None
    session_id: str = ""
    session_task: str = ""
    promoted_from: tuple[EntrySource, ...] = ()
    promoted_at: datetime | None = None
    path: str = ""
    """Its file under the home's data folder."""
    workspace: str = ""
    agent: str = ""
    reinforced_by: tuple[str, ...] = ()
    """The sessions that found it again."""
    retired_because: str = ""
    merged_into: str = ""
    about: str = ""
    """The subject that a rule found. Entries with the same `about` are the same. "" for entries that are compared by
    their text."""
    review: str = ""
    """Why the operator must review it, "" for no reason."""
    review_causes: tuple[str, ...] = ()
    """The ids of the entries because of whose retraction it must be reviewed."""
    review_since: datetime | None = None
    continues: str = ""
    """The first of the sessions that its session continues, "" for none."""
    trust: Trust = Trust.QUOTED
    approved_at: datetime | None = None
    """When the operator approved its words, None for never."""
    lesson: str = ""
    """The id of its lesson (see `make_lesson_id`), also after the operator edits the text."""

    @property
    def may_guide(self) -> bool:
        """Whether prompts may contain it: the operator wrote or approved it, or the engine measured it."""
        return may_guide(self.trust, approved=self.approved_at is not None)

    @property
    def work(self) -> str:
        """The piece of work from which it comes. Sessions that continue each other are one piece of work."""
        return self.continues or self.session_id

    @property
    def source_sessions(self) -> frozenset[str]:
        """The sessions that its sources come from."""
        return frozenset(source.session for source in self.promoted_from)

    @property
    def active(self) -> bool:
        """Whether it is valid."""
        return self.status is LearningStatus.ACTIVE

    @property
    def is_comparable(self) -> bool:
        """Whether it is valid and may be compared with others. What is about the operator may not (SPEC 6.3)."""
        return self.active and not self.review and self.kind is not LearningKind.PROXY and bool(self.text.strip())

    @property
    def is_settled(self) -> bool:
        """Whether it may be promoted or used in a prompt: it is comparable, and no mere risk or assumption."""
        return self.is_comparable and self.phase not in UNPROVEN_PHASES

    @property
    def can_be_promoted(self) -> bool:
        """Whether the operator may have it used in all projects. If it waits for review, that comes first."""
        return self.is_settled and self.scope is LearningScope.PROJECT

    @property
    def can_be_kept(self) -> bool:
        """Whether it waits for review, or was retracted and not forgotten."""
        return bool(self.review) if self.active else self.status is LearningStatus.RETIRED and bool(self.text)


@frozen
class ScopeState:
    """The number of entries in a scope, the time of the newest, and `faults`: errors of its files, with file and
    line."""

    scope: LearningScope
    scope_id: str
    workspace: str
    path: str
    institutional: int = 0
    tasks: int = 0
    proxy: int = 0
    retired: int = 0
    newest: datetime | None = None
    faults: tuple[str, ...] = ()


@frozen
class LearningReach:
    """A model call whose prompt contained an entry."""

    call: str
    session: str
    agent: str
    at: datetime


@frozen
class LearningView:
    """An entry with its provenance (SPEC 6.5): the entries that it was promoted from, those that were promoted from it,
    directly or in steps, and its sessions. `prompts` is the number of calls that contained it, and `reached` are the
    newest of them. `gone` are ids of sources that are in no file any more."""

    entry: LearningEntry
    promoted_from: tuple[LearningEntry, ...] = ()
    promoted_to: tuple[LearningEntry, ...] = ()
    reached: tuple[LearningReach, ...] = ()
    prompts: int = 0
    sessions: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()


@frozen
class ChainReport:
    """The result of one run of the chain: ids of entries. `extracted` is by session; `judged` is the verdict on each
    project entry; `compacted` are entries that were merged into others; `faults` are errors."""

    extracted: Mapping[str, int] = field(default_factory=dict)
    promoted: tuple[str, ...] = ()
    reinforced: tuple[str, ...] = ()
    compacted: tuple[str, ...] = ()
    judged: Mapping[str, str] = field(default_factory=dict)
    faults: tuple[str, ...] = ()

    @property
    def nothing(self) -> bool:
        """Whether it changed nothing."""
        return not (self.extracted or self.promoted or self.reinforced or self.compacted)


@frozen
class RetractReport:
    """The result of a retraction: `retired` are the ids of retired entries; `queued` are those promoted from them,
    which wait for the operator; `sessions` are those that the entry comes from."""

    retired: tuple[str, ...]
    queued: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()
