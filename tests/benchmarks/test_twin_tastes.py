"""Do the cards become visibly better? Made-up operators with stated tastes decide on what the real cycle shows.

pytest tests/benchmarks/test_twin_tastes.py -m benchmark -s

In each round there is work of six kinds in two repositories about five subjects. The operator decides on every card at
once. Beside what he was shown stand, from the same work: what signals alone would have shown (the templates), and what
one who knows his taste would have. Rates are how likely he is to approve what was shown, so that chance in his answers
is not in the figures. And is it sure where it may be? Of the cards that he likes at least half are to come with 0.8 or
more, while his taste stays, and of all that do eight in ten are to be approved.
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
from engine.model import CalibrationCheck, Proposal, Signal, Status
from engine.prediction.card_rules import MAX_SAME_KIND
from engine.prediction.twin import EmbeddedTwin
from engine.storage.database import Database
from tests.prediction.deciding import SHOP, World, proposal

pytestmark = pytest.mark.benchmark

KINDS = ("run_tests", "bisect", "lint", "draft_changelog", "review_unpushed", "report_branches")
SUBJECTS = ("cart", "stock", "login", "search", "prices")
BLOG = "/blog"
SHOWN, POOL = 5, 12
LEARNT, AFTER, SETTLED = 100, 100, 50
LIKED, DISLIKED = 0.9, 0.1
SURE, TRUE, SURE_OF = 0.8, 0.8, 0.5
SEEDS = (7, 8, 9)

Taste = Callable[[Proposal, int, int], bool]
"""Does he like this, at this hour, after so many decisions?"""

CHANGE = LEARNT + AFTER


@dataclass(frozen=True, slots=True)
class Shown:
    """A card that was shown after so many decisions: how likely he is to approve it, with which confidence it came,
    and what stood beside it."""

    decided: int
    rate: float
    confidence: float
    templates: float
    oracle: float


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

    def calibrate(self, kind: str, score: float) -> float:
        return self.twin.calibrate(kind, score)

    def check(self) -> CalibrationCheck:
        return self.twin.check()


def work(chance: random.Random, number: int) -> list[Proposal]:
    found = []
    for place in range(POOL):
        kind, subject = chance.choice(KINDS), chance.choice(SUBJECTS)
        found.append(
            proposal(
                f"{number}.{place}", kind=kind, workspace=chance.choice((SHOP, BLOG)),
                signals=(Signal("git", 1.0, chance.random()),),
                prompt=f"{kind.replace('_', ' ')} for the {subject}", reasoning=f"{subject} changed",
                facts={"name": f"{number}.{place}", "subject": subject},
            )
        )  # fmt: skip
    return found


def best(found: Sequence[Proposal], key: Callable[[Proposal], float]) -> list[Proposal]:
    """The first five by `key` under the rule of variety that all obey."""
    taken: list[Proposal] = []
    for one in sorted(found, key=key, reverse=True):
        if len(taken) < SHOWN and sum(other.kind == one.kind for other in taken) < MAX_SAME_KIND:
            taken.append(one)
    return taken


def live(world: World, clock: FakeClock, taste: Taste, until: int, seed: int) -> list[Shown]:
    """What was shown, card by card; nothing of a round without any."""
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
        cards = world.cycle(*found)
        shown = [by_facts[card.assignment.parameters["paths"][0]] for card in cards]
        for card, one in zip(cards, shown, strict=True):
            likes = taste(one, hour, decided)
            templates = rate(best(found, lambda one: one.signals[0].share))
            rounds.append(Shown(decided, rate([one]), card.confidence, templates, rate(known)))
            if world.cards.get(card.id).status is not Status.PENDING:
                continue  # it went with a kind that was switched off
            if chance.random() < (LIKED if likes else DISLIKED):
                world.cards.approve(card.id)
                world.sessions.end(card.id)
            else:
                world.cards.dismiss(card.id)
                for mute in world.cards.muted():  # what the Twin makes of it is measured, not what is switched off
                    world.cards.unmute(mute.id)
            decided += 1
        clock.advance(timedelta(hours=4 if 9 <= hour < 17 else 16))
    return rounds


def mean(some: Sequence[float]) -> float:
    return sum(some) / len(some)


@pytest.mark.parametrize("name", TASTES)
def test_operator(name: str, tmp_path: Path, clock: FakeClock) -> None:
    changes = name == "changes half-way"
    rounds = []
    for seed in SEEDS:
        database = Database(tmp_path / f"{seed}.db", clock=clock, bus=EventBus(), durable=False)
        follows = Follows()
        world = World(database, clock, calibrator=follows)
        follows.twin = world.twin
        world.workspaces = [SHOP, BLOG]
        rounds += live(world, clock, TASTES[name], CHANGE + (SETTLED + AFTER if changes else 0), seed)
        database.close()
    spans = {"after 100 decisions": (LEARNT, CHANGE)}
    if changes:
        spans["from 50 after the change"] = (CHANGE + SETTLED, CHANGE + SETTLED + AFTER)
    for when, (first, last) in spans.items():
        shown = [round_ for round_ in rounds if first <= round_.decided < last]
        twin = mean([one.rate for one in shown])
        templates, oracle = mean([one.templates for one in shown]), mean([one.oracle for one in shown])
        way = (twin - templates) / (oracle - templates)
        print(f"\n{name}, {when}: approves {twin:.0%} of what is shown; templates {templates:.0%}, "
              f"oracle {oracle:.0%}; {way:.0%} of the way (bar 50%)")  # fmt: skip
        sure = [one for one in shown if one.confidence >= SURE]
        true = mean([one.rate for one in sure])
        of_liked = mean([one.confidence >= SURE for one in shown if one.rate == LIKED])
        print(f"  {SURE} or more on {len(sure)} of {len(shown)} cards, approves {true:.0%} of them (bar {TRUE:.0%}); "
              f"on {of_liked:.0%} of those he likes (bar {SURE_OF:.0%} before a change)")  # fmt: skip
        assert way >= 0.5
        assert true >= TRUE
        assert of_liked >= SURE_OF or first > CHANGE
