"""What workers found out, taken from facts of the ledger (SPEC 1.7, 6.7): a break that tests saw mended, and what the
operator corrected before he approved. Each with the evidence that its confidence and importance come from.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from engine.storage.database import Database
from engine.storage.facts_read import Fact, Facts, FactsRead
from engine.values import Basis, Bubble, Learning, Refusal, Touched, Trust
from engine.values.evidence import confidence, importance
from engine.values.trust import of_names

log = logging.getLogger(__name__)

CURSOR = "hierarchy.discoveries"
NAMED = 3
"""So many failing tests are named."""

QUOTED = 160
"""Characters of a prompt that are quoted."""

_SENTENCE = re.compile(r"(?<=[.!?;])\s+|\n+")

MOST_WORDS = 8
"""Words of a category."""


@dataclass(frozen=True, slots=True)
class Correction:
    """What the operator made of a card's prompt. `like` is how often he did so on cards of this kind and channel,
    `estimate` what it would have cost, in micro-dollars."""

    agent: str
    original: str
    edited: str
    kind: str
    channel: str
    session: str
    estimate: int
    like: int


def healed(session: str, workspace: str, payload: dict[str, Any], seconds: float) -> Learning:
    """From a `ValidationHealed`: which tests to run before anything is handed over. `seconds` is how long the session
    took. Pure."""
    failing = tuple(str(one) for one in payload.get("failing", ()))
    more = f" and {len(failing) - NAMED} more" if len(failing) > NAMED else ""
    touched = Touched(failure_avoided=True, seconds=seconds, cost=int(payload.get("cost", 0)), reach=len(failing))
    place = PurePath(workspace).name or "the workspace"
    return Learning(
        id=f"healed:{session}",
        text=f"In {place} run {', '.join(failing[:NAMED])}{more} before handing over: a change broke it unnoticed",
        category=" ".join(category_of(failing)),
        agent=str(payload.get("agent", "")),
        session=session,
        confidence=confidence(Basis.TESTS),
        importance=importance(touched),
        evidence=(f"red at first, green after {payload.get('attempts', 0)} attempts", *failing[:NAMED]),
        workspace=workspace,
        trust=of_names(failing),
    )


def corrected(card: str, workspace: str, one: Correction) -> Learning:
    """From an approval with an edit: what the operator put into it. Where the operator only took something out, what is
    told are words of others. Pure."""
    new = _new(one.original, one.edited)
    said = f"the operator wants “{_short(new)}”" if new else f"the operator does not want “{_short(one.original)}”"
    return Learning(
        id=f"corrected:{card}",
        text=f"On {one.channel} {said}",
        category=" ".join(dict.fromkeys(re.findall(r"[a-z0-9]+", f"{one.kind} {one.channel}".lower()))),
        agent=one.agent,
        session=one.session,
        confidence=confidence(Basis.OPERATOR),
        importance=importance(Touched(failure_avoided=True, cost=one.estimate, reach=one.like)),
        evidence=(f"card {card} was edited before it was approved",),
        workspace=workspace,
        trust=Trust.OPERATOR if new else Trust.QUOTED,
    )


def category_of(tests: Iterable[str]) -> list[str]:
    """Words for what tests concern: that they are tests, and the words of their files."""
    words = ["tests"]
    for name in tests:
        words += re.findall(r"[a-z0-9]{3,}", name.split("::")[0].lower())
    return list(dict.fromkeys(words))[:MOST_WORDS]


class Discoveries:
    """Follows the ledger with a durable cursor and offers what it finds, each once, and once again harmlessly."""

    def __init__(
        self,
        database: Database,
        *,
        facts: Facts,
        offer: Callable[[Learning], Bubble],
        seconds: Callable[[str], float],
        correction: Callable[[str], Correction | None],
    ) -> None:
        """`seconds` says how long a session took; `correction` what the operator made of a card, None when it was not
        edited."""
        self._facts = FactsRead(database, facts, CURSOR, _tells)
        self._offer = offer
        self._seconds = seconds
        self._correction = correction
        self._busy = threading.Lock()

    def catch_up(self) -> int:
        """Take in all facts since the last time; returns how many learnings were offered. One thread at a time."""
        if not self._busy.acquire(blocking=False):
            return 0
        try:
            offered: list[Learning] = []
            self._facts.each(lambda facts: offered.extend(self._offered(facts)))
            return len(offered)
        finally:
            self._busy.release()

    def _offered(self, facts: Iterable[Fact]) -> Iterator[Learning]:
        for fact in facts:
            learning = self._learning(fact)
            if learning is None:
                continue
            try:
                self._offer(learning)
            except Refusal as refusal:  # its agent was retired meanwhile
                log.warning("%s was not offered: %s", learning.id, refusal)
            else:
                yield learning

    def _learning(self, fact: Fact) -> Learning | None:
        if fact.kind == "ValidationHealed":
            return healed(fact.subject, fact.workspace, fact.payload, self._seconds(fact.subject))
        found = self._correction(fact.subject)
        return None if found is None else corrected(fact.subject, fact.workspace, found)


def _tells(fact: Fact) -> bool:
    """Whether there is something to learn: a break that was mended, a prompt that was corrected."""
    if fact.kind == "ValidationHealed":
        return bool(fact.payload.get("agent") and fact.payload.get("failing"))
    return fact.kind == "PredictionConfirmed" and bool(fact.payload.get("edited"))


def _new(original: str, edited: str) -> str:
    """The sentences of `edited` that are not in `original`."""
    known = {" ".join(one.split()) for one in _SENTENCE.split(original)}
    said = (" ".join(one.split()) for one in _SENTENCE.split(edited))
    return " ".join(one for one in said if one and one not in known)


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= QUOTED else flat[: QUOTED - 1] + "…"
