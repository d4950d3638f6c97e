"""What each feature of a candidate counts (see `features`), and why. Data: fitted, and a few set by hand.

`tests/benchmarks/refit_recall.py` fits the first kind again and prints this table; the others, where the conversations
say nothing, it leaves as they are. A negative weight counts the feature's absence.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Weight:
    """`group` is the score part that a person sees; `fitted` False: set by hand; `least`: what a fit may make of it, so
    that nothing speaks against a candidate but what should."""

    feature: str
    group: str
    weight: float
    why: str
    fitted: bool = True
    least: float = 0.0


WEIGHTS = (
    Weight("words", "words", 1.0, "how well its own words fit, beside the best of all"),
    Weight("coverage", "words", 0.6, "how many of the question's words it has, rare ones counting more", least=0.6),
    Weight("meaning", "meaning", 2.04, "its vector, seen in its context, is near to the question's"),
    Weight("tokens", "meaning", 2.29, "each word of the question finds a near one in it"),
    Weight("tokens_relative", "meaning", 1.55, "and nearer ones than in others"),
    Weight("tokens_worst", "meaning", 1.86, "even the word that is worst off"),
    Weight("beside_best", "neighbours", 0.53, "the turn before or after it fits: what answers, or was asked"),
    Weight("window_coverage", "neighbours", 1.47, "it and the turns around it have all the words together"),
    Weight("two_before", "neighbours", 0.72, "the turn before the last fits"),
    Weight("two_after", "neighbours", 0.78, "the turn after the next fits"),
    Weight("answers", "neighbours", 1.35, "it follows a question that fits"),
    Weight("asked", "speaker", 2.12, "the one whom the question is about says it"),
    Weight("other_of_you", "speaker", -0.72, "somebody else says it to him", least=-9.0),
    Weight("other_asks", "speaker", 1.06, "somebody else asks him: the answer follows"),
    Weight("asks", "words", -0.61, "a question tells less than an answer", least=-9.0),
    Weight("date", "date", 6.01, "it was said when the question says"),
    Weight("when_and_time", "date", 1.84, "the question asks for a time, and it names one"),
    Weight("names", "words", 1.47, "it names something"),
    Weight("session", "session", 3.2, "its session is about what is asked"),
    Weight("recent", "recency", 1.0, "of two that fit alike the newer, above all when the latest is asked for", False),
)
