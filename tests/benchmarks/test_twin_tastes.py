"""How much better cards become: simulated operators with stated tastes decide on what the real cycle shows (SPEC 2.5).

pytest tests/benchmarks/test_twin_tastes.py -m benchmark -s

The cards are compared with what the templates alone would have shown, and with what an oracle that knows the taste
would have. Of the cards that the operator likes at least half must have a confidence of 0.8 or more, and of all cards
with so much eight in ten must be approved.
"""

from contextlib import closing
from pathlib import Path
from statistics import mean

import pytest

from engine.clock import FakeClock
from engine.events import EventBus
from engine.storage.database import Database
from tests.benchmarks.simulated_operators import KINDS, LIKED_RATE, SUBJECTS, Taste, open_world, simulate
from tests.prediction.deciding import SHOP

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
