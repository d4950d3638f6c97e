"""How much better cards become: simulated operators with stated tastes decide on what the real cycle shows.

pytest tests/benchmarks/test_twin_tastes.py -m benchmark -s

In each round there is work of six kinds in two repositories about five subjects. The operator decides on every card at
once. The cards are compared with what the templates alone would have shown, and with what an oracle that knows the
taste would have. Rates are the probability of an approval, so that chance in the answers is not in the figures. Of the
cards that the operator likes at least half must have a confidence of 0.8 or more while the taste stays, and of all
cards with so much eight in ten must be approved.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from statistics import mean

import pytest

from engine.clock import FakeClock
from engine.events import EventBus
from engine.model import CalibrationCheck, Proposal, Signal, Status
from engine.prediction.card_rules import MAX_SAME_KIND
from engine.prediction.twin import EmbeddedTwin
from engine.storage.database import Database
from tests.prediction.deciding import SHOP, World
from tests.prediction.deciding import proposal as make_proposal

KINDS = ("run_tests", "bisect", "lint", "draft_changelog", "review_unpushed", "report_branches")
SUBJECTS = ("cart", "stock", "login", "search", "prices")
BLOG = "/blog"
SHOWN, POOL = 5, 12
"""Cards that are shown in a round, of how many proposals."""

LEARNED, AFTER, SETTLED = 100, 100, 50
"""Decisions before the Twin is measured, while it is measured, and after a change of the taste before it is measured
again."""

LIKED, DISLIKED = 0.9, 0.1
"""The probability that a card is approved, by whether the operator likes it."""

SURE, MIN_TRUE_SHARE, MIN_SURE_SHARE = 0.8, 0.8, 0.5
"""The confidence of a sure card, the least share of sure cards that is approved, and the least share of liked cards
that is sure."""

SEEDS = (7, 8, 9)

Taste = Callable[[Proposal, int, int], bool]
"""Whether the operator likes a proposal at this hour, after so many decisions."""

CHANGE = LEARNED + AFTER
"""The number of decisions after which a taste changes."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A card that was shown after so many decisions: the probability that the operator approves it, its confidence, and
    the mean probabilities of what the templates and an oracle would have shown."""

    decided: int
    rate: float
    confidence: float
    templates: float
    oracle: float


TASTES: dict[str, Taste] = {
    "by kind": lambda proposal, hour, decided: proposal.kind in KINDS[:2],
    "by time of day": lambda proposal, hour, decided: proposal.kind in (KINDS[:2] if hour < 12 else KINDS[2:4]),
    "by repository": lambda proposal, hour, decided: proposal.workspace == SHOP,
    "by subject": lambda proposal, hour, decided: proposal.facts["subject"] in SUBJECTS[:2],
    "changes half-way": lambda proposal, hour, decided: (
        proposal.kind in (KINDS[:2] if decided < CHANGE else KINDS[3:5])
    ),
}


@dataclass
class LateCalibrator:
    """The calibrator of a Twin that is created later."""

    twin: EmbeddedTwin | None = None

    def calibrate(self, kind: str, score: float) -> float:
        return self.twin.calibrate(kind, score)

    def check(self) -> CalibrationCheck:
        return self.twin.check()


def make_proposals(chance: random.Random, number: int) -> list[Proposal]:
    """The proposals of one round."""
    proposals = []
    for index in range(POOL):
        kind, subject = chance.choice(KINDS), chance.choice(SUBJECTS)
        proposals.append(
            make_proposal(
                f"{number}.{index}", kind=kind, workspace=chance.choice((SHOP, BLOG)),
                signals=(Signal("git", 1.0, chance.random()),),
                prompt=f"{kind.replace('_', ' ')} for the {subject}", reasoning=f"{subject} changed",
                facts={"name": f"{number}.{index}", "subject": subject},
            )
        )  # fmt: skip
    return proposals


def select_best(proposals: Sequence[Proposal], key: Callable[[Proposal], float]) -> list[Proposal]:
    """The first `SHOWN` proposals by `key`, at most `MAX_SAME_KIND` of a kind."""
    chosen: list[Proposal] = []
    for candidate in sorted(proposals, key=key, reverse=True):
        if len(chosen) < SHOWN and sum(earlier.kind == candidate.kind for earlier in chosen) < MAX_SAME_KIND:
            chosen.append(candidate)
    return chosen


def simulate(world: World, clock: FakeClock, taste: Taste, until: int, seed: int) -> list[Shown]:
    """Let an operator with this taste make `until` decisions. Returns the cards that were shown."""
    chance, decided, cards_shown = random.Random(seed), 0, []
    for number in range(10_000):
        if decided >= until:
            break
        hour = clock.local().hour
        proposals = make_proposals(chance, number)

        def rate(shown_proposals: Sequence[Proposal], hour: int = hour, decided: int = decided) -> float:
            return mean([LIKED if taste(proposal, hour, decided) else DISLIKED for proposal in shown_proposals])

        wanted = [proposal for proposal in proposals if taste(proposal, hour, decided)]
        ideal = select_best(wanted, lambda _: 1.0) if wanted else select_best(proposals, lambda _: 0.0)[:1]
        by_facts = {proposal.facts["name"]: proposal for proposal in proposals}
        cards = world.cycle(*proposals)
        shown = [by_facts[card.assignment.parameters["paths"][0]] for card in cards]
        for card, proposal in zip(cards, shown, strict=True):
            likes = taste(proposal, hour, decided)
            templates = rate(select_best(proposals, lambda proposal: proposal.signals[0].share))
            cards_shown.append(Shown(decided, rate([proposal]), card.confidence, templates, rate(ideal)))
            if world.cards.get(card.id).status is not Status.PENDING:
                continue  # withdrawn with its kind
            if chance.random() < (LIKED if likes else DISLIKED):
                world.cards.approve(card.id)
                world.sessions.end(card.id)
            else:
                world.cards.dismiss(card.id)
                for mute in world.cards.muted():  # the Twin is measured, not mutes
                    world.cards.unmute(mute.id)
            decided += 1
        clock.advance(timedelta(hours=4 if 9 <= hour < 17 else 16))
    return cards_shown


@pytest.mark.parametrize("name", TASTES)
def test_the_twin_of_an_operator_with_a_taste(name: str, tmp_path: Path, clock: FakeClock) -> None:
    changes = name == "changes half-way"
    cards_shown = []
    for seed in SEEDS:
        database = Database(tmp_path / f"{seed}.db", clock=clock, bus=EventBus(), durable=False)
        calibrator = LateCalibrator()
        world = World(database, clock, calibrator=calibrator)
        calibrator.twin = world.twin
        world.workspaces = [SHOP, BLOG]
        cards_shown += simulate(world, clock, TASTES[name], CHANGE + (SETTLED + AFTER if changes else 0), seed)
        database.close()
    spans = {"after 100 decisions": (LEARNED, CHANGE)}
    if changes:
        spans["from 50 after the change"] = (CHANGE + SETTLED, CHANGE + SETTLED + AFTER)
    for when, (first, last) in spans.items():
        shown = [card for card in cards_shown if first <= card.decided < last]
        twin = mean([card.rate for card in shown])
        templates, oracle = mean([card.templates for card in shown]), mean([card.oracle for card in shown])
        share_of_way = (twin - templates) / (oracle - templates)
        print(f"\n{name}, {when}: approves {twin:.0%} of what is shown; templates {templates:.0%}, "
              f"oracle {oracle:.0%}; {share_of_way:.0%} of the way (bar 50%)")  # fmt: skip
        sure_cards = [card for card in shown if card.confidence >= SURE]
        true = mean([card.rate for card in sure_cards])
        of_liked = mean([card.confidence >= SURE for card in shown if card.rate == LIKED])
        print(f"  {SURE} or more on {len(sure_cards)} of {len(shown)} cards, "
              f"{true:.0%} of them approved (bar {MIN_TRUE_SHARE:.0%})")  # fmt: skip
        print(f"  and on {of_liked:.0%} of those that the operator likes (bar {MIN_SURE_SHARE:.0%} before a change)")
        assert share_of_way >= 0.5
        assert true >= MIN_TRUE_SHARE
        if first < CHANGE:
            assert of_liked >= MIN_SURE_SHARE
