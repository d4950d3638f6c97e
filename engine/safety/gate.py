"""The human gate (SPEC 3.6): decides which work needs a person's approval.

An operator's approval satisfies every rule but one (SPEC 3.2): if no sandbox works, the operator must confirm each run,
unless the settings of the workspace allow runs without one. Without an approval, each rule that applies asks, and after
a hit of the content filter it blocks. The rules for work that runs by itself (SPEC 2.5, 2.6, 7.3, 7.4) are here too, so
that no such work can bypass them.
"""

from __future__ import annotations

from engine.frozen import frozen
from engine.model import MICRO, REASON_SEPARATOR, SANDBOX_FIX, GateRuleName, RailVerdict, Verdict

RAIL = "gate"
MIN_CONFIDENCE = 0.6
COSTLY_ABOVE = 1 * MICRO
MAX_REJECTIONS = 3
NO_CONFINEMENT = f"no sandbox on this machine, so nothing confines what this runs: {SANDBOX_FIX} to get one"
MIN_DECISIONS = 10
"""Minimum number of decisions before anything runs by itself."""
MIN_APPROVAL_BOUND = 0.8
"""Minimum of Wilson's lower bound of past approvals before a card runs by itself (SPEC 2.5)."""


@frozen
class GateFacts:
    """The conditions that the gate checks. Money in micro-dollars."""

    confidence: float
    estimate: int
    targets: tuple[str, ...]
    """The production targets that it touches, in words."""
    novel_pair: str
    """In words, that no work between these channels has passed yet; "" if some has."""
    rejections: int
    decisions: int
    content: Verdict
    day_cost: int
    day_cap: int
    by_operator: bool
    autonomous: bool = True
    workspace_acts: bool = True
    quiet: bool = False
    phase: int = 1
    approval_bound: float = 1.0
    threshold: float = 0.8
    suggested: bool = False
    ordered: bool = False
    """Whether the operator ordered the work to run by itself."""
    confined: bool = True
    """Whether a sandbox works on this machine."""
    waived: bool = False
    """Whether the workspace's settings allow runs without a sandbox."""
    confirmed: bool = False
    """Whether the operator confirmed the run without a sandbox for this decision."""
    always_asked: bool = False


@frozen
class GateRule:
    """A rule of the gate that applies."""

    rule: GateRuleName
    verdict: Verdict
    words: str


def gate_rules(facts: GateFacts) -> list[GateRule]:
    """The rules that apply, also for an operator's approval. First come those that an operator must know before an
    approval, then those that hold for all work, then those about this work alone."""
    is_guess = not facts.ordered  # an order of the operator needs no confidence and no past approvals
    below_threshold = MIN_CONFIDENCE <= facts.confidence < facts.threshold
    no_sandbox = GateRuleName.SANDBOX_WAIVED if facts.waived else GateRuleName.NO_SANDBOX
    table: tuple[tuple[bool, GateRuleName, str], ...] = (
        (not facts.confined, no_sandbox, NO_CONFINEMENT),
        (bool(facts.targets), GateRuleName.PRODUCTION, f"touches production: {', '.join(facts.targets[:3])}"),
        (facts.content is not Verdict.ALLOW, GateRuleName.CONTENT, _CONTENT_WORDS.get(facts.content, "")),
        (facts.estimate > COSTLY_ABOVE, GateRuleName.COSTLY, f"${facts.estimate / MICRO:.2f} is more than $1.00"),
        (
            facts.suggested,
            GateRuleName.SUGGESTED,
            "somebody else may have written this suggestion or task, so it waits for you",
        ),
        (
            facts.always_asked,
            GateRuleName.INSTALLS,
            "it installs packages over the network, so it always waits for you",
        ),
        (
            not facts.autonomous,
            GateRuleName.AUTONOMY_OFF,
            "nothing runs by itself until you turn autonomous mode on: clawpy config set autonomousModeEnabled true",
        ),
        (
            is_guess and facts.phase < 1,
            GateRuleName.COLD_START,
            "nothing runs by itself in phase 0: there are too few decisions of yours to learn from",
        ),
        (
            facts.decisions < MIN_DECISIONS,
            GateRuleName.ONBOARDING,
            f"first days: {facts.decisions} of {MIN_DECISIONS} decisions made, so everything waits for you as a card",
        ),
        (not facts.workspace_acts, GateRuleName.WORKSPACE, "the autonomy of this workspace is not set to `act`"),
        (facts.quiet, GateRuleName.QUIET, "quiet hours: nothing runs by itself"),
        (facts.rejections >= MAX_REJECTIONS, GateRuleName.REJECTIONS, f"{facts.rejections} rejections in a row"),
        (is_near_cap(facts.day_cost, facts.day_cap), GateRuleName.DAY_COST, "more than 80 % of the day's cap is spent"),
        (
            is_guess and facts.confidence < MIN_CONFIDENCE,
            GateRuleName.LOW_CONFIDENCE,
            f"its confidence {facts.confidence:.2f} is below {MIN_CONFIDENCE:.2f}",
        ),
        (
            is_guess and below_threshold,
            GateRuleName.BELOW_THRESHOLD,
            f"its confidence {facts.confidence:.2f} is below {facts.threshold:.2f}",
        ),
        (
            is_guess and facts.approval_bound < MIN_APPROVAL_BOUND,
            GateRuleName.TRACK_RECORD,
            f"you approved too few cards like it: the lower bound of your approval rate, {facts.approval_bound:.2f}, "
            f"is below {MIN_APPROVAL_BOUND:.2f}",
        ),
        (is_guess and bool(facts.novel_pair), GateRuleName.NOVEL_PAIR, f"NEW: {facts.novel_pair}"),
    )
    verdicts = {GateRuleName.CONTENT: facts.content}
    return [GateRule(rule, verdicts.get(rule, Verdict.ASK), words) for applies, rule, words in table if applies]


_CONTENT_WORDS = {
    Verdict.BLOCK: "blocked by the content filter, and kept for review",
    Verdict.ASK: "the content filter asks for your decision",
}


def decide_gate(facts: GateFacts) -> RailVerdict:
    """The verdict of the gate. Its `rule` has the names of all rules that apply, separated by commas. `novel-pair`
    among them is the NEW badge."""
    applying = gate_rules(facts)
    rule = ",".join(row.rule for row in applying)
    words = REASON_SEPARATOR.join(row.words for row in applying)
    if facts.by_operator and not (facts.confined or facts.waived or facts.confirmed):
        return RailVerdict(RAIL, Verdict.ASK, words, rule)
    if facts.by_operator:
        return RailVerdict(RAIL, Verdict.ALLOW, f"approved by you ({words})" if words else "approved", rule)
    if not applying:
        return RailVerdict(RAIL, Verdict.ALLOW, "nothing to ask")
    blocked = any(row.verdict is Verdict.BLOCK for row in applying)
    return RailVerdict(RAIL, Verdict.BLOCK if blocked else Verdict.ASK, words, rule)


def is_near_cap(spent: int, cap: int) -> bool:
    """Whether more than 80 % of `cap` is spent. A cap of 0 is always near."""
    return spent * 5 > cap * 4 or cap == 0
