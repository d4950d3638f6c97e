"""How much better cards become: simulated operators with stated tastes decide on what the real cycle shows (SPEC 2.5).

pytest tests/benchmarks/test_twin_tastes.py -m benchmark -s

The cards are compared with what the templates alone would have shown, and with what an oracle that knows the taste
would have. Of the cards that the operator likes at least half must have a confidence of 0.8 or more, and of all cards
with so much eight in ten must be approved.
"""

import random
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from statistics import mean

import pytest

from engine.clock import FakeClock
from engine.events import EventBus
from engine.model import CalibrationCheck, Card, Proposal, Signal, Status
from engine.prediction.stack import MAX_SAME_KIND
from engine.prediction.twin import EmbeddedTwin
from engine.storage.database import Database
from tests.prediction.deciding import SHOP, DecisionWorld, make_proposal

KINDS = ("run_tests", "bisect", "lint", "draft_changelog", "review_unpushed", "report_branches")
SUBJECTS = ("cart", "stock", "login", "search", "prices")
BLOG = "/blog"

MAX_SHOWN = 5
"""Cards that are shown in a round."""

PROPOSALS_PER_ROUND = 12

LIKED_RATE, DISLIKED_RATE = 0.9, 0.1
"""The probability that a card is approved, by whether the operator likes it."""

Taste = Callable[[Proposal, int, int], bool]
"""Whether the operator likes a proposal at this hour, after so many decisions."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A card that was shown. A rate is a probability of an approval."""

    decided: int
    """The number of decisions before it."""
    confidence: float
    rate: float
    templates_rate: float
    """The mean rate of the cards that the templates alone would have shown."""
    oracle_rate: float
    """The rate of the cards that an oracle would have shown."""


def open_world(database: Database, clock: FakeClock) -> DecisionWorld:
    """A cycle over two repositories, whose cards have the confidence that the Twin's calibration gives them."""
    calibrator = LateCalibrator()
    world = DecisionWorld(database, clock, calibrator=calibrator)
    calibrator.twin = world.twin
    world.workspaces = [SHOP, BLOG]
    return world


def simulate(world: DecisionWorld, taste: Taste, until: int, seed: int) -> list[Shown]:
    """Let an operator with this taste make `until` decisions. Returns the cards that were shown."""
    chance, rounds, decided, cards_shown = random.Random(seed), 0, 0, []
    while decided < until:
        hour = world.clock.local().hour
        proposals = make_proposals(chance, rounds)
        rates = {
            proposal.facts["name"]: LIKED_RATE if taste(proposal, hour, decided) else DISLIKED_RATE
            for proposal in proposals
        }
        templates_rate = mean([rates[proposal.facts["name"]] for proposal in select_as_templates(proposals)])
        oracle_rate = max(rates.values())
        for card in world.check(*proposals):
            rate = rates[card.assignment.parameters["paths"][0]]
            cards_shown.append(Shown(decided, card.confidence, rate, templates_rate, oracle_rate))
            if world.cards.get(card.id).status is not Status.PENDING:
                continue  # withdrawn with its kind
            decide(world, card, chance.random() < rate)
            decided += 1
        rounds += 1
        world.clock.advance(timedelta(hours=4 if 9 <= hour < 17 else 16))
    return cards_shown


def make_proposals(chance: random.Random, number: int) -> list[Proposal]:
    """The proposals of one round."""
    proposals = []
    for index in range(PROPOSALS_PER_ROUND):
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


def select_as_templates(proposals: Sequence[Proposal]) -> list[Proposal]:
    """What would be shown without a Twin: the proposals with the strongest signals, at most `MAX_SAME_KIND` of a
    kind."""
    best = []
    for candidate in sorted(proposals, key=lambda proposal: proposal.signals[0].share, reverse=True):
        if len(best) < MAX_SHOWN and sum(earlier.kind == candidate.kind for earlier in best) < MAX_SAME_KIND:
            best.append(candidate)
    return best


def decide(world: DecisionWorld, card: Card, is_approved: bool):
    """Approve or dismiss a card. No kind stays muted, because the Twin is measured, not mutes."""
    if is_approved:
        world.cards.approve(card.id)
        world.sessions.end(card.id)
        return
    world.cards.dismiss(card.id)
    for mute in world.cards.list_mutes():
        world.cards.unmute(mute.id)


class LateCalibrator:
    """The calibrator of a Twin that is created later."""

    twin: EmbeddedTwin

    def calibrate(self, kind: str, score: float) -> float:
        return self.twin.calibrate(kind, score)

    def check(self) -> CalibrationCheck:
        return self.twin.check()


LEARNED_DECISIONS = 100
"""Decisions before the Twin is measured."""

MEASURED_DECISIONS = 100

CHANGE = 200
"""The number of decisions after which a taste changes."""

SETTLING_DECISIONS = 50
"""Decisions after a change of the taste before the Twin is measured."""

SURE_CONFIDENCE = 0.8

MIN_SHARE_OF_WAY = 0.5
"""How far the Twin must come on the way from the rate of the templates to that of the oracle."""

MIN_TRUE_SHARE = 0.8
"""The least share of sure cards that is approved."""

MIN_SURE_SHARE = 0.5
"""The least share of liked cards that is sure."""

SEEDS = range(7, 37)
"""Thirty operators for each taste: with three, the share of the way is uncertain by 6 points."""

TASTES: dict[str, tuple[Taste, int]] = {
    "by kind": (lambda proposal, hour, decided: proposal.kind in KINDS[:2], LEARNED_DECISIONS),
    "by time of day": (
        lambda proposal, hour, decided: proposal.kind in (KINDS[:2] if hour < 12 else KINDS[2:4]),
        LEARNED_DECISIONS,
    ),
    "by repository": (lambda proposal, hour, decided: proposal.workspace == SHOP, LEARNED_DECISIONS),
    "by subject": (lambda proposal, hour, decided: proposal.facts["subject"] in SUBJECTS[:2], LEARNED_DECISIONS),
    "by kind, changed": (
        lambda proposal, hour, decided: proposal.kind in (KINDS[:2] if decided < CHANGE else KINDS[3:5]),
        CHANGE + SETTLING_DECISIONS,
    ),
}
"""Tastes, and the number of decisions after which the Twin is measured."""


@pytest.mark.parametrize("name", TASTES)
def test_the_twin_learns_a_taste(name: str, tmp_path: Path, clock: FakeClock):
    taste, first = TASTES[name]
    cards_shown = []
    for seed in SEEDS:
        with closing(Database(tmp_path / f"{seed}.db", clock=clock, bus=EventBus(), durable=False)) as database:
            cards_shown += simulate(open_world(database, clock), taste, first + MEASURED_DECISIONS, seed)
    measured = [card for card in cards_shown if first <= card.decided < first + MEASURED_DECISIONS]
    sure_cards = [card for card in measured if card.confidence >= SURE_CONFIDENCE]
    liked_cards = [card for card in measured if card.rate == LIKED_RATE]
    twin_rate = mean(card.rate for card in measured)
    templates_rate = mean(card.templates_rate for card in measured)
    oracle_rate = mean(card.oracle_rate for card in measured)
    share_of_way = (twin_rate - templates_rate) / (oracle_rate - templates_rate)
    true_share = mean(card.rate for card in sure_cards)
    sure_share = mean(card.confidence >= SURE_CONFIDENCE for card in liked_cards)
    print(f"\n{name}, after {first} decisions: approves {twin_rate:.0%} of what is shown; "
          f"templates {templates_rate:.0%}, oracle {oracle_rate:.0%}; "
          f"{share_of_way:.0%} of the way (bar {MIN_SHARE_OF_WAY:.0%})\n"
          f"  {SURE_CONFIDENCE} or more on {len(sure_cards)} of {len(measured)} cards, "
          f"{true_share:.0%} of them approved (bar {MIN_TRUE_SHARE:.0%}),\n"
          f"  and on {sure_share:.0%} of those that the operator likes (bar {MIN_SURE_SHARE:.0%})")  # fmt: skip
    assert share_of_way >= MIN_SHARE_OF_WAY
    assert true_share >= MIN_TRUE_SHARE
    assert sure_share >= MIN_SURE_SHARE
