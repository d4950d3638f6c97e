"""Do the cards become visibly better? Made-up operators with stated tastes decide on what the real cycle shows.

pytest tests/benchmarks/test_twin_tastes.py -m benchmark -s

In each round there is work of six kinds in two repositories about five subjects. The operator decides on every card at
once. Beside what he was shown stand, from the same work: what signals alone would have shown (the templates), and what
one who knows his taste would have. Rates are how likely he is to approve what was shown, so that chance in his answers
is not in the figures.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from engine.clock import FakeClock
from engine.events import EventBus
from engine.memory.ledger import append
from engine.prediction.choosing import MOST_ALIKE
from engine.prediction.twin import EmbeddedTwin
from engine.storage.database import Database
from engine.values import CalibrationCheck, Proposal
from tests.prediction.deciding import SHOP, World, proposal

pytestmark = pytest.mark.benchmark

KINDS = ("run_tests", "bisect", "lint", "draft_changelog", "review_unpushed", "report_branches")
SUBJECTS = ("cart", "stock", "login", "search", "prices")
BLOG = "/blog"
SHOWN, POOL = 5, 12
LEARNT, AFTER, SETTLED = 100, 100, 50
LIKED, DISLIKED = 0.9, 0.1
SEEDS = (7, 8, 9)

Taste = Callable[[Proposal, int, int], bool]
"""Does he like this, at this hour, after so many decisions?"""

CHANGE = LEARNT + AFTER

TASTES: dict[str, Taste] = {
    "by kind": lambda one, hour, decided: one.kind in KINDS[:2],
    "by time of day": lambda one, hour, decided: one.kind in (KINDS[:2] if hour < 12 else KINDS[2:4]),
    "by repository": lambda one, hour, decided: one.workspace == SHOP,
    "by subject": lambda one, hour, decided: one.facts["subject"] in SUBJECTS[:2],
    "changes half-way": lambda one, hour, decided: one.kind in (KINDS[:2] if decided < CHANGE else KINDS[3:5]),
}


@dataclass
class Follows:
    """The calibrator of a Twin that is made later."""

    twin: EmbeddedTwin | None = None

    def apply(self, score: float) -> float:
        assert self.twin is not None
        return self.twin.apply(score)

    def check(self) -> CalibrationCheck:
        assert self.twin is not None
        return self.twin.check()


def work(chance: random.Random, number: int) -> list[Proposal]:
    found = []
    for place in range(POOL):
        kind, subject = chance.choice(KINDS), chance.choice(SUBJECTS)
        found.append(
            proposal(
                f"{number}.{place}", kind=kind, workspace=chance.choice((SHOP, BLOG)), share=chance.random(),
                prompt=f"{kind.replace('_', ' ')} for the {subject}", reasoning=f"{subject} changed",
                facts={"name": f"{number}.{place}", "subject": subject},
            )
        )  # fmt: skip
    return found


def best(found: Sequence[Proposal], key: Callable[[Proposal], float]) -> list[Proposal]:
    """The first five by `key` under the rule of variety that all obey."""
    taken: list[Proposal] = []
    for one in sorted(found, key=key, reverse=True):
        if len(taken) < SHOWN and sum(other.kind == one.kind for other in taken) < MOST_ALIKE:
            taken.append(one)
    return taken


def live(world: World, clock: FakeClock, taste: Taste, until: int, seed: int) -> list[tuple[int, float, float, float]]:
    """(decisions made before, rate of what was shown, of the templates', of the oracle's), round by round; each with
    as many rows as cards were shown, none in a round without any."""
    chance, decided, rounds = random.Random(seed), 0, []
    for number in range(10_000):
        if decided >= until:
            break
        hour = clock.local().hour
        found = work(chance, number)

        def rate(some: Sequence[Proposal], hour: int = hour, decided: int = decided) -> float:
            return sum(LIKED if taste(one, hour, decided) else DISLIKED for one in some) / len(some)

        wanted = [one for one in found if taste(one, hour, decided)]
        known = best(wanted, lambda one: 1.0) if wanted else best(found, lambda one: 0.0)[:1]
        by_facts = {one.facts["name"]: one for one in found}
        cards = world.see(*found)
        shown = [by_facts[card.assignment.parameters["paths"][0]] for card in cards]
        for card, one in zip(cards, shown, strict=True):
            likes = taste(one, hour, decided)
            rounds.append((decided, rate([one]), rate(best(found, lambda one: one.signals[0].share)), rate(known)))
            if chance.random() < (LIKED if likes else DISLIKED):
                world.cards.approve(card.id)
                world.bench.end(card.id)
            else:
                world.cards.dismiss(card.id)
            decided += 1
        clock.advance(timedelta(hours=4 if 9 <= hour < 17 else 16))
    return rounds


def mean(rounds: Sequence[tuple[int, float, float, float]], first: int, last: int) -> tuple[float, float, float]:
    chosen = [one[1:] for one in rounds if first <= one[0] < last]
    twin, templates, oracle = (sum(column) / len(chosen) for column in zip(*chosen, strict=True))
    return twin, templates, oracle


@pytest.mark.parametrize("name", TASTES)
def test_operator(name: str, tmp_path: Path, clock: FakeClock) -> None:
    changes = name == "changes half-way"
    rounds = []
    for seed in SEEDS:
        database = Database(tmp_path / f"{seed}.db", clock=clock, bus=EventBus(), recorder=append, durable=False)
        follows = Follows()
        world = World(database, clock, calibrator=follows)
        follows.twin = world.twin
        world.workspaces = [SHOP, BLOG]
        rounds += live(world, clock, TASTES[name], CHANGE + (SETTLED + AFTER if changes else 0), seed)
        database.close()
    spans = {"after 100 decisions": (LEARNT, CHANGE)}
    if changes:
        spans["from 50 after the change"] = (CHANGE + SETTLED, CHANGE + SETTLED + AFTER)
    for when, span in spans.items():
        twin, templates, oracle = mean(rounds, *span)
        way = (twin - templates) / (oracle - templates)
        print(f"\n{name}, {when}: approves {twin:.0%} of what is shown; templates {templates:.0%}, "
              f"oracle {oracle:.0%}; {way:.0%} of the way (bar 50%)")  # fmt: skip
        assert way >= 0.5
