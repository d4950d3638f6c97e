"""Operators with a stated taste, who decide on the cards of a real cycle, for the benchmark of the Twin.

In each round there is work of six kinds in two repositories about five subjects. The operator decides on every card at
once. Rates are the probability of an approval, so that chance in the answers is not in the figures.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from statistics import mean

from engine.clock import FakeClock
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
