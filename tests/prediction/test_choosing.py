"""Which drafts get the seats: what signals and confidence say, variety, and a small share to learn (SPEC 2.5, 2.9)."""

from __future__ import annotations

from typing import Any

from engine.clock import FakeClock
from engine.prediction.choosing import EXPLORED_IN, in_turn
from engine.prediction.intake import Draft
from engine.storage.database import Database
from engine.values import Assignment, ConfidenceParts, Randomness, RunnerInfo, Source
from tests.prediction.deciding import World, proposal


def draft(name: str, total: float, *, kind: str = "run_tests", share: float = 0.5) -> Draft:
    one = proposal(name, kind=kind, share=share)
    parts = ConfidenceParts(total, total, 0.5, total, total)
    return Draft(
        one, Assignment(one.prompt, "koji-core", "/shop", "flow", kind), "builder", parts, Source.EMBEDDED_TWIN,
        RunnerInfo(True), "",
    )  # fmt: skip


class Draws(Randomness):
    """Chance that always says the same."""

    def __init__(self, number: float) -> None:
        super().__init__(1)
        self._number = number

    def uniform(self) -> float:
        return self._number


NEVER, ALWAYS = Draws(0.99), Draws(0.0)


def names(drafts: list[Draft]) -> list[Any]:
    return [one.proposal.facts["name"] for one in drafts]


def test_before_anything_is_learnt_signals_alone_rank() -> None:
    drafts = [draft("low", 0.4, share=0.2), draft("high", 0.4, share=0.9)]
    assert names(in_turn(drafts, 1, learning=False, randomness=ALWAYS)) == ["high", "low"]


def test_from_phase_1_on_confidence_speaks_too() -> None:
    drafts = [draft("loud", 0.35, share=0.5, kind="docs"), draft("wanted", 0.75, share=0.3)]
    assert names(in_turn(drafts, 1, learning=True, randomness=NEVER)) == ["wanted", "loud"]


def test_below_three_tenths_is_left_out() -> None:
    drafts = [draft("out", 0.299999), draft("in", 0.3)]
    assert names(in_turn(drafts, 5, learning=True, randomness=NEVER)) == ["in"]
    assert names(in_turn(drafts, 5, learning=False, randomness=ALWAYS)) == ["in"]


def test_another_kind_comes_before_more_of_the_same() -> None:
    drafts = [draft(f"same{number}", 0.6) for number in range(4)] + [draft("other", 0.5, kind="docs")]
    assert "other" in names(in_turn(drafts, 5, learning=True, randomness=NEVER))[:3]


def test_a_small_share_is_shown_to_learn_and_says_so() -> None:
    drafts = [draft("liked", 0.8), draft("disliked", 0.1, kind="docs")]
    explored = in_turn(drafts, 5, learning=True, randomness=ALWAYS)
    assert names(explored) == ["disliked", "liked"]
    assert "shown to learn" in explored[0].parts.words[-1]
    assert names(in_turn(drafts, 5, learning=True, randomness=NEVER)) == ["liked"]


def test_the_share_is_what_it_says() -> None:
    drafts = [draft("liked", 0.8), draft("disliked", 0.1, kind="docs")]
    chance = Randomness(4)
    many = sum(len(in_turn(drafts, 5, learning=True, randomness=chance)) == 2 for _ in range(1_000))
    assert 0.8 * 1_000 / EXPLORED_IN < many < 1.2 * 1_000 / EXPLORED_IN


def test_never_five_of_one_kind(database: Database, clock: FakeClock) -> None:
    world = World(database, clock)
    assert len(world.see(*(proposal(str(number)) for number in range(8)))) == 4
    assert len(world.see(*world.seen, proposal("other", kind="lint"))) == 1
