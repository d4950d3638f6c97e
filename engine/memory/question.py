"""Parses a question: its topic, the speakers it is about, and the dates it names. Pure.

Many words of a question say nothing about its topic: "Can you list the order in which I brought up ..." is about what
follows. Names of speakers are compared with the speaker of a memory, not with its text.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterable, Iterator
from datetime import date, datetime, timedelta

from engine.frozen import frozen

WORD_PATTERN = re.compile(r"([^\W_]+)(?:['’][a-z]{1,2}\b)?")
"""A word. Its group is the word without a possessive or another short ending."""

_STOP_WORDS = """
a an the is are was were be been being am do does did doing have has had having i you he she it we they me him her us
them my your his its our their mine yours this that these those what which who whom whose when where why how of in on at
to for from with by about as into than then so and or but if not no yes can could will would shall should may might must
just very too also there here s t d ll m re ve don didn doesn isn wasn
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())
"""Words that are too common to narrow a search."""

USER_ROLES = frozenset({"user", "human", "me", "operator", "customer"})
ASSISTANT_ROLES = frozenset({"assistant", "ai", "bot", "model", "agent"})
"""Speakers that are roles. A question in the first person is about the user, "what did you suggest" about the
assistant."""

_TALK_WORDS = r"(?:conversations?|discussions?|chats?|sessions?|talks?|requests?|messages?)"
_QUESTION_FRAME = re.compile(
    "|".join(
        (
            r"\bmention only\b[^.?!]*[.?!]?",
            r"^\W*(?:can|could|would|will) you (?:please )?(?:help me )?(?:list|give me|provide(?: me(?: with)?)?|"
            r"walk me through|tell me|show me|remind me(?: of)?|summari[sz]e|describe|explain|outline|recap)\b",
            r"\b(?:the )?order (?:in which|that) (?:i|we) (?:brought up|mentioned|raised|discussed|talked about)\b",
            r"\b(?:different|various) (?:aspects|ideas|topics|things|details|ways)\b(?: of| about| related to)?",
            r"\b(?:an? |the )?(?:(?:comprehensive|complete|quick|short|brief|detailed|full) )*"
            r"(?:summary|overview|recap)(?: of)?\b",
            rf"\b(?:throughout|across|over|during|in|from|based on|all) (?:all )?(?:of )?(?:our|my|the|these|those) "
            rf"(?:\w+ )?{_TALK_WORDS}\b",
            r"\b(?:in order|over time|so far)\b",
            r"\b(?:i|we)(?:['’]ve| have)? (?:discussed|talked about|mentioned)\b",
            r"\bdid (?:i|you|we) (?:say|mention|tell(?: me| you)?)\b",
        )
    ),
    re.IGNORECASE,
)
"""The words of a question that do not belong to its topic."""

_SAYING_VERBS = (
    "said|told|suggested|recommended|mentioned|advised|proposed|provided|gave|given|listed|explained|answered|wrote|"
    "written|showed|shown"
)
_YOU_SAID = re.compile(
    r"\b(?:did|have|had|were|are) you\b|"
    rf"\byou(?:['’]ve| have| had)?\b.{{0,25}}\b(?:{_SAYING_VERBS})\b|"
    r"\byour\b.{0,25}\b(?:advice|answer|suggestions?|recommendations?|reply|proposal|explanation)\b",
    re.IGNORECASE,
)
_ASKS_SUMMARY = re.compile(r"\b(?:summar(?:y|i[sz]e|ies)|overview|recap)\b", re.IGNORECASE)
_ASKS_ADVICE = re.compile(
    r"\b(?:would|could|can|do) you (?:suggest|recommend|show|help|advise)|\b(?:suggest|recommend)\b.{0,40}\?|"
    r"\bshould i\b|\bhow (?:can|should|do) i\b|\bwhat are some\b",
    re.IGNORECASE,
)
_ASKS_TIME = re.compile(
    r"^\W*(?:when|since when|how long|what (?:date|day|month|year|time)|which (?:date|day|month|year))\b", re.I
)
_ASKS_LATEST = re.compile(
    r"\b(?:latest|newest|most recent(?:ly)?|last time|currently|current|now|nowadays|these days)\b", re.I
)

_MONTH_NAMES = "january february march april may june july august september october november december"
MONTHS = {name: number for number, name in enumerate(_MONTH_NAMES.split(), 1)}
"""The number of each month by its name in lower case."""

_ANY_MONTH = "|".join(MONTHS)
_IN_MONTH = re.compile(
    rf"\b(?:(\d{{1,2}})(?:st|nd|rd|th)?,? (?:of )?)?({_ANY_MONTH})\b"
    r"(?: (\d{1,2})(?:st|nd|rd|th)?\b)?(?:,? (?:of )?(\d{4})\b)?",
    re.I,
)
_ISO_DATE = re.compile(r"\b(\d{4})-(\d{2})-(\d{2})\b")
_SPAN_AGO = re.compile(r"\b(\d{1,3}|an?|one|two|three|four|five|six|seven) (day|week|month|year)s? ago\b", re.I)
_NUMBER_WORDS = {"a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7}
"""Numbers that are written as words."""

_DAYS_OF_UNIT = {"day": 1, "week": 7, "month": 30, "year": 365}
"""The days of each unit of time, roughly."""

_RELATIVE_DATE = re.compile(r"\b(today|yesterday|(?:last|this|past) (?:week|month|year))\b", re.I)

MONTH_FIT = 0.67
"""How well a day fits a month, or a span of more than three days."""

OTHER_DAY_FIT = 0.33
"""How well a day fits another day of its month."""

_WORD_ENDINGS = ("ingly", "edly", "ing", "ed", "ly", "ment", "ness", "ful", "er")
"""Endings that a stem lacks, the longest first."""


# -- reading a question


@frozen
class DateRange:
    """A date that a question names, with the parts that it names; or the days from `first` to `last`."""

    year: int | None = None
    month: int | None = None
    day: int | None = None
    first: date | None = None
    last: date | None = None

    def fits(self, day: date) -> float:
        """How well a day fits, in [0, 1]: 1 for the named day or the one beside it, `MONTH_FIT` for a day of the named
        month, `OTHER_DAY_FIT` for another day of the month if a day was named."""
        if self.first is not None and self.last is not None:
            if not self.first <= day <= self.last:
                return 0.0
            return 1.0 if (self.last - self.first).days <= 3 else MONTH_FIT
        if self.month != day.month or (self.year is not None and self.year != day.year):
            return 0.0
        if self.day is None:
            return MONTH_FIT
        return 1.0 if abs(self.day - day.day) <= 1 else OTHER_DAY_FIT


@frozen
class ParsedQuestion:
    """A question as the ranking reads it.

    `topic` is what it asks for, without the names of speakers. `words` are the words of its topic without stop words,
    `terms` their stems. `speakers` are the speakers, in lower case, whose lines it is about. `asks_advice`: the user's
    preferences count.
    """

    text: str
    words: tuple[str, ...]
    terms: tuple[str, ...]
    speakers: frozenset[str]
    topic: str
    dates: tuple[DateRange, ...]
    asks_when: bool
    asks_latest: bool
    asks_advice: bool

    def compute_date_fit(self, at: str) -> float:
        """How well a time (ISO 8601) fits the dates that the question names, in [0, 1]; 0 if it names none."""
        return max((named_date.fits(date.fromisoformat(at[:10])) for named_date in self.dates), default=0.0)


def parse_question(text: str, speakers: Iterable[str] = (), *, now: datetime | None = None) -> ParsedQuestion:
    """Read a question that is asked of what `speakers` said."""
    lower_speakers = {speaker.casefold() for speaker in speakers if speaker}
    names = {speaker: _split_names(speaker) for speaker in lower_speakers - USER_ROLES - ASSISTANT_ROLES}
    topic = _find_topic(text)
    lower = topic.casefold()
    all_words = list(dict.fromkeys(WORD_PATTERN.findall(lower)))
    named_speakers = frozenset(
        speaker for speaker, words in names.items() if _is_named(lower, all_words, speaker, words)
    )
    used_names = {word for speaker in named_speakers for word in names[speaker]}
    words = [word for word in all_words if word not in STOP_WORDS and word not in used_names]
    words = words or [word for word in all_words if word not in used_names] or all_words
    asked_about = named_speakers or _find_roles(text, lower_speakers)
    if len(named_speakers) > 1:
        asked_about = frozenset()
    return ParsedQuestion(
        text=text,
        words=tuple(words),
        terms=tuple(dict.fromkeys(make_stem(word) for word in words)),
        speakers=asked_about,
        topic=_remove_names(topic, used_names),
        dates=(*_find_absolute_dates(text), *(_find_relative_dates(text, now.date()) if now else ())),
        asks_when=bool(_ASKS_TIME.search(text)),
        asks_latest=bool(_ASKS_LATEST.search(text)),
        asks_advice=bool(_ASKS_ADVICE.search(text)),
    )


# -- words


def find_stems(text: str) -> list[str]:
    """The words of a text by their stems, in order."""
    return [make_stem(word) for word in WORD_PATTERN.findall(text.casefold())]


@functools.lru_cache(maxsize=50_000)
def make_stem(word: str) -> str:
    """A word without its ending, roughly: `plans`, `planned`, `planning` and `plan` have one stem. It need not be a
    word, because both sides of a comparison are stemmed."""
    word = _remove_ending(_make_singular(word))
    if len(word) > 3 and word.endswith("e"):
        word = word[:-1]
    return word[:-1] + "i" if len(word) > 3 and word.endswith("y") else word


def _make_singular(word: str) -> str:
    if len(word) > 3 and word.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 4 and word.endswith("sses"):
        return word[:-2]
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


def _remove_ending(word: str) -> str:
    """A word without the first of `_WORD_ENDINGS` that leaves three letters or more, and without a consonant that was
    doubled before it: `planned` becomes `plan`."""
    for ending in _WORD_ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            stem = word.removesuffix(ending)
            is_doubled = len(stem) > 3 and stem[-1] == stem[-2] and stem[-1] not in "lsz"
            return stem[:-1] if is_doubled else stem
    return word


def _split_names(speaker: str) -> tuple[str, ...]:
    """The names by which a speaker may be called: the words of the name."""
    return tuple(word for word in WORD_PATTERN.findall(speaker) if len(word) > 1 and word not in STOP_WORDS)


def _is_named(lower: str, words: Collection[str], speaker: str, names: tuple[str, ...]) -> bool:
    """Whether a question names a speaker: by the first name, or by the whole name."""
    return bool(names) and (names[0] in words or (len(names) > 1 and speaker in lower))


def _find_roles(text: str, speakers: set[str]) -> frozenset[str]:
    """Whose lines count if a user talks with an assistant: the user's. But if the question is about what the assistant
    did, or asks for a summary, the assistant's count, because its answers summarise what the user said."""
    users, assistants = speakers & USER_ROLES, speakers & ASSISTANT_ROLES
    if not users or not assistants:
        return frozenset()
    return frozenset(assistants if _YOU_SAID.search(text) or _ASKS_SUMMARY.search(text) else users)


def _find_topic(text: str) -> str:
    """The topic of a question: the question without its frame, or all of it if too little is left."""
    topic = re.sub(r"\s+", " ", _QUESTION_FRAME.sub(" ", text)).strip(" ,.;:?")
    return topic if len(WORD_PATTERN.findall(topic)) > 1 else text


def _remove_names(text: str, names: set[str]) -> str:
    if not names:
        return text
    alternatives = "|".join(re.escape(word) for word in sorted(names, key=len, reverse=True))
    topic = re.sub(rf"\b(?:{alternatives})\b(?:['’]s)?", "", text, flags=re.IGNORECASE)
    return re.sub(r"\s+", " ", topic).strip() or text


# -- dates


def _find_absolute_dates(text: str) -> Iterator[DateRange]:
    """Dates that are named by day, month or year."""
    for match in _ISO_DATE.finditer(text):
        yield DateRange(int(match[1]), int(match[2]), int(match[3]))
    for match in _IN_MONTH.finditer(text):
        day_before, name, day_after, year = match.groups()
        day = day_before or day_after
        # "may" and "march" are months only beside something of a date.
        if name.islower() and not (day or year) and not re.search(rf"\b(?:in|of|on|since|during) {name}\b", text):
            continue
        yield DateRange(int(year) if year else None, MONTHS[name.lower()], int(day) if day else None)


def _find_relative_dates(text: str, today: date) -> Iterator[DateRange]:
    """Dates that are named by their distance from today."""
    for match in _SPAN_AGO.finditer(text):
        unit = _DAYS_OF_UNIT[match[2].lower()]
        number = _NUMBER_WORDS.get(match[1].lower()) or int(match[1])
        centre, slack = today - timedelta(days=min(number * unit, 100_000)), timedelta(days=unit // 2)
        yield DateRange(first=centre - slack, last=centre + slack)
    for match in _RELATIVE_DATE.finditer(text):
        phrase = match[1].lower()
        if phrase in ("today", "yesterday"):
            day_meant = today - timedelta(days=phrase == "yesterday")
            yield DateRange(first=day_meant, last=day_meant)
        else:
            span = _DAYS_OF_UNIT[phrase.split()[1]]
            yield DateRange(first=today - timedelta(days=span * (2 if phrase.startswith("last") else 1)), last=today)
