"""The simulated operator: plans days, approves or dismisses cards, and writes prompts (SPEC 2.7, 3.2).

A `PlannedDay` says when the operator does what, and which oddity the day has. It is drawn from a seeded random
generator, and `engine.simulation.simulate` runs it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime, timedelta
from enum import StrEnum

from engine.engine import Engine
from engine.files import read_table
from engine.frozen import frozen
from engine.model import Card, DecidedBy, Refusal, Source, Status
from engine.simulation.projects import PRODUCTION_FILES, SimulatedProject

ACTION_MINUTES = (8, 18)
"""Minimum and maximum minutes between two actions of the operator."""

ORDINARY_DAYS = 6
"""Number of days at the start that have no oddity, so that cards can earn the right to run by themselves."""

STRETCHES_BY_WEEKDAY = {**dict.fromkeys(range(5), ((9, 40), (14, 40))), 5: ((13, 30),)}
"""The stretches of work of each weekday (0 is Monday): the hour at which one begins, and its minutes."""

HABITS = read_table(__file__, "operator.toml")

APPROVAL_RATES: Mapping[str, float] = HABITS["approval_rates"]

PROMPTS: Mapping[str, Sequence[str]] = HABITS["prompts"]

GRUMPY_DISMISSALS = 3
"""Number of cards dismissed in a row on a grumpy day. Those that are least likely to be approved are chosen."""

UNDECIDED_SHARE = 0.2
"""The share of cards that the operator looks at and leaves undecided."""

UNDONE_FROM, EDITED_FROM, SNOOZED_FROM = 0.93, 0.96, 0.97
"""A number is drawn for each card, from 0 to 1. Above the first of these an approval is undone, above the second a card
that runs tests is edited, and above the third a dismissal is undone and a card that would be approved is snoozed."""


def find_approval_rate(card: Card) -> float:
    """The probability, in [0, 1], that the operator approves a card of this kind."""
    return APPROVAL_RATES.get(card.kind, 0.5)


class Oddity(StrEnum):
    """Something unusual about a day. The comment names the rail that it meets."""

    GRUMPY = "grumpy"  # the pause after three dismissals in a row
    DESTRUCTIVE = "destructive prompts"  # content filter
    SPREE = "many expensive prompts"  # cost caps
    KILL = "kill switch"  # F12, and an approval during the stop
    CHATTY = "agents that trigger each other"  # loop detector, rate limiter
    DEPLOY = "work on production"  # human gate


class OperatorAction(StrEnum):
    """An action of the operator."""

    ARRIVE = "arrive"
    WORK = "work"
    STOP = "press F12"
    RESUME = "resume"


@frozen
class PlannedDay:
    """The plan of one day."""

    number: int
    """From 0."""
    begin: datetime
    oddity: Oddity | None = None
    moments: tuple[tuple[datetime, OperatorAction], ...] = ()
    """The actions of the operator, in order of time."""


def deal_oddities(random_source: random.Random) -> Iterator[Oddity]:
    """Deal oddities without end, like cards from a shuffled deck: each is dealt once before any is dealt again."""
    while True:
        deck = list(Oddity)
        random_source.shuffle(deck)
        yield from reversed(deck)


def plan_day(number: int, begin: datetime, oddities: Iterator[Oddity], random_source: random.Random) -> PlannedDay:
    """Plan the day with this number (from 0), which begins at the local midnight `begin`. It has two stretches of work,
    one on Saturdays, and none on Sundays."""
    oddity = next(oddities) if number >= ORDINARY_DAYS and begin.weekday() < 6 else None
    moments: list[tuple[datetime, OperatorAction]] = []
    for hour, minutes in STRETCHES_BY_WEEKDAY.get(begin.weekday(), ()):
        at = begin + timedelta(hours=hour, minutes=random_source.randint(0, 15))
        until = at + timedelta(minutes=minutes)
        moments.append((at, OperatorAction.ARRIVE))
        while (at := at + timedelta(minutes=random_source.randint(*ACTION_MINUTES))) < until:
            moments.append((at, OperatorAction.WORK))
    if oddity is Oddity.KILL:
        place = random_source.randrange(1, len(moments))
        pressed = moments[place][0] + timedelta(minutes=1)
        resumed = pressed + timedelta(minutes=random_source.randint(20, 90))
        moments += [(pressed, OperatorAction.STOP), (resumed, OperatorAction.RESUME)]
    return PlannedDay(number, begin, oddity, tuple(sorted(moments)))


class SimulatedOperator:
    """An operator with habits, who uses the services of the engine as a person would. What the engine refuses is in its
    log, which the report reads."""

    def __init__(
        self,
        engine: Engine,
        projects: list[SimulatedProject],
        random_source: random.Random,
        finish_sessions: Callable[[], object],
    ) -> None:
        """`finish_sessions` waits until all sessions have ended."""
        self._engine = engine
        self._projects = projects
        self._random_source = random_source
        self._grumpy_on: date | None = None
        self._edits_left = 1
        self._reviewed: set[str] = set()
        """The ids of the cards whose work was reviewed."""
        self._finish_sessions = finish_sessions

    def arrive(self) -> None:
        """Open the console, and review the work that ran by itself."""
        self._engine.autonomy.note_activity()
        for card in self._engine.cards.list_recent(20):
            ran_by_itself = card.decided_by is DecidedBy.AUTONOMY and card.status is Status.EXECUTED
            if ran_by_itself and card.id not in self._reviewed:
                self._reviewed.add(card.id)
                self._engine.cards.mark_reviewed(card.id)

    def work(self, oddity: Oddity | None) -> None:
        """Edit, commit or push; decide cards; sometimes write a prompt."""
        self._engine.autonomy.note_activity()
        self._edit(oddity)
        self.decide_cards(oddity)
        if oddity is Oddity.DESTRUCTIVE and self._random_source.random() < 0.5:
            self._propose_own(self._random_source.choice(PROMPTS["destructive"]))
        if oddity is Oddity.SPREE:
            for prompt in self._random_source.sample(PROMPTS["expensive"], 3):
                self._propose_own(prompt, channel="dream-weaver")
        elif self._random_source.random() < 0.04:
            self._propose_own(self._random_source.choice(PROMPTS["harmless"]))

    def decide_cards(self, oddity: Oddity | None) -> None:
        """Decide the cards of the stack from the top."""
        cards = [card for card in self._engine.cards.list_pending() if card.source is not Source.OPERATOR]
        self._engine.cards.mark_shown([card.id for card in cards])
        if oddity is Oddity.GRUMPY and self._grumpy_on != self._engine.clock.now().date():
            if len(cards) >= GRUMPY_DISMISSALS:
                self._dismiss_unloved_cards(cards)
            return
        for card in cards:
            self._decide(card)

    def _dismiss_unloved_cards(self, cards: Sequence[Card]) -> None:
        """Dismiss the cards that are approved least often, once on a grumpy day."""
        self._grumpy_on = self._engine.clock.now().date()
        for card in sorted(cards, key=find_approval_rate)[:GRUMPY_DISMISSALS]:
            with suppress(Refusal):  # it has expired
                self._engine.cards.dismiss(card.id)

    def _decide(self, card: Card) -> None:
        """Approve or dismiss a card by the operator's habits; sometimes snooze it, undo the decision or leave it."""
        mood = self._random_source.random()
        if mood < UNDECIDED_SHARE:
            return
        approval_rate = find_approval_rate(card)
        with suppress(Refusal):  # by a rail, or because it has expired
            if self._random_source.random() >= approval_rate:
                self._engine.cards.dismiss(card.id)
                if mood > SNOOZED_FROM:
                    self._engine.cards.undo(card.id)
            elif mood > SNOOZED_FROM:
                self._engine.cards.snooze(card.id, span=timedelta(hours=1))
            elif mood > EDITED_FROM and card.assignment.flow == "run_tests" and self._edits_left:
                self._edits_left -= 1
                self._engine.cards.approve(card.id, edit="paths=cart.py")
            else:
                self._engine.cards.approve(card.id)
                if mood > UNDONE_FROM and approval_rate < 1:
                    self._finish_sessions()  # else the effect of the undo would depend on how fast the session is
                    self._engine.cards.undo(card.id)
                    self._finish_sessions()

    def _propose_own(self, prompt: str, channel: str | None = None) -> None:
        """Write a prompt and approve it. If a rail asks for a second approval, approve it again or dismiss it."""
        project = self._projects[0]
        try:
            card = self._engine.cards.propose(prompt, workspace=project.workspace, channel=channel)
            self._engine.cards.approve(card.id)
            return
        except Refusal as refusal:
            if refusal.code != "needs_acknowledgement":
                return
        with suppress(Refusal):
            if self._random_source.random() < 0.3:
                self._engine.cards.approve(card.id)
            else:
                self._engine.cards.dismiss(card.id)

    def _edit(self, oddity: Oddity | None) -> None:
        now = self._engine.clock.now()
        if oddity is Oddity.DEPLOY:
            self._projects[0].edit(self._random_source, now, PRODUCTION_FILES)
        for project in self._projects:
            luck = self._random_source.random()
            if luck < 0.6:
                project.edit(self._random_source, now)
            elif luck < 0.75 and project.files:
                project.commit(self._random_source, now)
            elif luck < 0.82:
                project.push()
            elif luck < 0.88:
                commits = self._random_source.choice((0, 2, 5))
                if commits:
                    project.receive_base_commits(commits)
                else:
                    project.merge_base()
