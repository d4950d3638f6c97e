"""The embedded Twin's mind (SPEC 2.3b): a fold over past decisions, one at a time, oldest first. Pure.

What is known of a proposal becomes a short row of features: what it has to do with its evidence (`relevance.py`), what
was chosen of the like (`habits.py`), of the nearest in meaning, and when. A logistic regression that knows how sure it
is (`belief.py`) weighs them. Before it learns from a decision it says what it expects; from these scores, each made
before its decision was known, a second one learns how far the first may be believed.

The same decisions make the same learner. The cost of one, a tenth of a millisecond, does not grow with those before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy

from engine.learning.decisions.belief import Belief
from engine.learning.decisions.calibration import Calibration, KindCalibration, logit
from engine.learning.decisions.habits import SAID, Habits, levels, places, subjects, times
from engine.learning.decisions.neighbours import Neighbours
from engine.learning.decisions.query import NAMES, Query, unpacked
from engine.model import PastDecision

FEATURES: tuple[tuple[str, float, float], ...] = (
    ("always", 0.0, 0.3),
    *((name, 0.0, 0.3) for name in NAMES),
    ("altogether", 1.0, 0.2),
    ("kind", 1.0, 0.3),
    ("channel", 0.7, 0.3),
    ("workspace", 0.7, 0.3),
    ("altogether lately", 0.2, 0.2),
    ("kind lately", 0.6, 0.3),
    ("channel lately", 0.2, 0.2),
    ("workspace lately", 0.2, 0.2),
    ("part of the day", 0.7, 0.3),
    ("day of the week", 0.7, 0.3),
    ("hour", 0.7, 0.3),
    ("this workspace", 0.3, 0.3),
    ("this channel", 0.3, 0.3),
    ("near in meaning", 0.7, 0.3),
    ("what its words were chosen for", 0.4, 0.3),
    ("what its best word was chosen for", 0.3, 0.3),
    ("what its worst word was chosen for", 0.3, 0.3),
)
"""Name, what its weight is expected to be before the first decision, and how far that may be off. All but those of the
evidence are log-odds, what a level adds to the one above; so the first expectation is what the counts say."""


@dataclass(frozen=True, slots=True)
class Word:
    """The learner's answer: a probability that the operator approves, before and after calibration, in (0, 1)."""

    raw: float
    probability: float


class Learner:
    """All that was learnt from decisions up to `upto`; see the module."""

    def __init__(self) -> None:
        self.habits = Habits()
        self.neighbours = Neighbours()
        self._belief = Belief([mean for _, mean, _ in FEATURES], [spread for _, _, spread in FEATURES])
        self.trust = Calibration(level=0.0, slope=0.3)
        """How far the Twin's own probability may be believed."""
        self.sums = KindCalibration()
        """How far the whole confidence may be believed (SPEC 8.6)."""
        self.upto = 0

    def score(self, query: Query) -> Word:
        """What is expected of the operator."""
        return self._word(self._row(query))

    def learn(self, decision: PastDecision) -> Word:
        """Take in one decision, younger than all before; returns what was expected of it."""
        seen = unpacked(decision.seen)
        query = Query(
            decision.kind, decision.channel, decision.workspace, decision.flow, decision.words, decision.part,
            decision.weekend, decision.at, decision.hour, seen,
        )  # fmt: skip
        row = self._row(query)
        expected = self._word(row)
        if decision.weight >= SAID:
            self.trust.learn(expected.raw, decision.chosen, decision.weight)
            if decision.raw is not None:
                self.sums.learn(decision.kind, decision.raw, decision.chosen, decision.weight)
        self._belief.learn(row, decision.chosen, decision.weight)
        self.habits.add(decision)
        self.neighbours.add(decision, seen)
        self.upto = max(self.upto, decision.id)
        return expected

    def pattern(self, query: Query) -> float:
        """The shrunk share approved among the most similar past decisions (SPEC 2.5), in [0, 1]."""
        return self.neighbours.pattern(query, self.habits.down([()])[0][0])

    def _word(self, row: Any) -> Word:
        raw = self._belief.probability(row)
        return Word(raw, self.trust.apply(raw))

    def _row(self, query: Query) -> Any:
        habits = self.habits
        down = habits.down(levels(query))
        long = [logit(share) for share, _ in down]
        kind = down[1][0]
        in_time = [long[1], *(logit(share) for share, _ in habits.down(times(query), kind))]
        in_time += [in_time[-1]] * (4 - len(in_time))
        whole = down[0][0]
        words = [logit(habits.down([key], whole)[0][1]) - long[0] for key in subjects(query)] or [0.0]
        row = [
            1.0,
            *query.seen.numbers,
            *(mine - above for mine, above in zip(long, [0.0, *long], strict=False)),
            *(logit(lately) - mine for (_, lately), mine in zip(down, long, strict=True)),
            *(mine - above for above, mine in pairwise(in_time)),
            *(logit(habits.down([key], whole)[0][0]) - long[0] for key in places(query)),
            logit(self.neighbours.meant(query, kind)) - long[1],
            sum(words) / len(words) ** 0.5,
            max(words),
            min(words),
        ]
        return numpy.array(row)
