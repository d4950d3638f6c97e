"""The human gate (SPEC 3.6): decides which work needs a person's approval.

An operator's approval satisfies every rule but one (SPEC 3.2): if no sandbox works, the operator must confirm each run,
unless the settings of the workspace allow runs without one. Without an approval, each rule that applies asks, and after
a hit of the content filter it blocks. The rules for work that runs by itself (SPEC 2.5, 2.6, 7.3, 7.4) are here too, so
that no such work can bypass them.
"""

from __future__ import annotations

from engine.frozen import frozen_kw_only
from engine.installed import SANDBOX_FIX
from engine.model import MAX_REJECTIONS, MICRO, GateRuleName, RailVerdict, Verdict, join_reasons
from engine.wording import money

RAIL = "gate"
"""The name of the rail in verdicts."""
MIN_CONFIDENCE = 0.6
"""Minimum confidence of work that nobody approved, whatever the settings say."""
COSTLY_ABOVE_MICROUSD = 1 * MICRO
"""Work with a higher estimate needs an approval."""
ALWAYS_ASKED = frozenset({"prepare_environment", "update_lock"})
"""Flows that need a person's approval each time, because they install foreign packages from the network (SPEC 3.6)."""

NO_CONFINEMENT = f"no sandbox on this machine, so nothing confines what this runs: {SANDBOX_FIX} to get one"
"""The reason of a rule about a missing sandbox."""
NOT_SET_TO_ACT = "the autonomy of this workspace is not set to `act`"
"""The reason of a rule about the settings of a workspace."""
MIN_DECISIONS_TO_ACT = 10
"""Minimum number of decisions before anything runs by itself."""
MIN_APPROVAL_BOUND = 0.8
"""Minimum of Wilson's lower bound of past approvals before a card runs by itself (SPEC 2.5)."""

_CONTENT_WORDS = {
    Verdict.BLOCK: "blocked by the content filter, and kept for review",
    Verdict.ASK: "the content filter asks for your decision",
}


@frozen_kw_only
class GateFacts:
    """The conditions that the gate checks. All must be stated, because one that is forgotten could open the gate.
    Money in micro-dollars."""

    confidence: float
    """From 0 to 1."""
    estimate: int
    targets: tuple[str, ...]
    """The production targets that it touches, in words."""
    novel_pair: str
    """In words, that no work between these channels has passed yet; "" if some has."""
    rejections: int
    """The number of rejections in a row."""
    decisions: int
    """The number of all decisions."""
    content: Verdict
    """What the content filter says."""
    day_cost: int
    day_cap: int
    by_operator: bool
    """Whether the operator approved it."""
    autonomous: bool
    """Whether autonomous mode is on."""
    workspace_acts: bool
    """Whether the autonomy of the workspace is `act`."""
    quiet: str
    """Why it is quiet now, "" if it is not."""
    phase: int
    """The phase of the Twin (SPEC 2.6), from 0."""
    approval_bound: float
    """Wilson's lower bound of the approval rate of cards like it."""
    threshold: float
    """The minimum confidence that the settings ask for."""
    suggested: bool
    """Whether somebody else may have written it."""
    ordered: bool
    """Whether the operator ordered the work to run by itself."""
    confined: bool
    """Whether a sandbox works on this machine."""
    waived: bool
    """Whether the workspace's settings allow runs without a sandbox."""
    confirmed: bool
    """Whether the operator confirmed the run without a sandbox for this decision."""
    always_asked: bool
    """Whether it installs packages, which always needs an approval."""


def find_gate_rules(facts: GateFacts) -> list[tuple[GateRuleName, str]]:
    """The rules that apply, also for an operator's approval, each with its reason. First come those that an operator
    must know before an approval, then those that hold for all work, then those about this work alone."""
    is_guess = not facts.ordered  # an order of the operator needs no confidence and no past approvals
    below_threshold = MIN_CONFIDENCE <= facts.confidence < facts.threshold
    no_sandbox = GateRuleName.SANDBOX_WAIVED if facts.waived else GateRuleName.NO_SANDBOX
    table: tuple[tuple[bool, GateRuleName, str], ...] = (
        (not facts.confined, no_sandbox, NO_CONFINEMENT),
        (bool(facts.targets), GateRuleName.PRODUCTION, f"touches production: {', '.join(facts.targets[:3])}"),
        (facts.content is not Verdict.ALLOW, GateRuleName.CONTENT, _CONTENT_WORDS.get(facts.content, "")),
        (facts.estimate > COSTLY_ABOVE_MICROUSD, GateRuleName.COSTLY, f"{money(facts.estimate)} is more than $1.00"),
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
            "nothing runs by itself in phase 0: too few decisions of yours to learn from",
        ),
        (
            facts.decisions < MIN_DECISIONS_TO_ACT,
            GateRuleName.ONBOARDING,
            describe_first_days(facts.decisions),
        ),
        (not facts.workspace_acts, GateRuleName.WORKSPACE, NOT_SET_TO_ACT),
        (bool(facts.quiet), GateRuleName.QUIET, facts.quiet),
        (facts.rejections >= MAX_REJECTIONS, GateRuleName.REJECTIONS, f"{facts.rejections} dismissals in a row"),
        (
            facts.day_cost * 5 > facts.day_cap * 4 or facts.day_cap == 0,
            GateRuleName.DAY_COST,
            "more than 80 % of the day's cap is spent",
        ),
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
            "you approved too few cards like it: the lower bound of your approval rate is "
            f"{facts.approval_bound:.2f} of {MIN_APPROVAL_BOUND:.2f}",
        ),
        (is_guess and bool(facts.novel_pair), GateRuleName.NOVEL_PAIR, f"NEW: {facts.novel_pair}"),
    )
    return [(rule, reason) for applies, rule, reason in table if applies]


def describe_first_days(decisions: int) -> str:
    """Why nothing runs by itself in the first days: the decisions made so far, and the minimum."""
    return f"first days: {decisions} of {MIN_DECISIONS_TO_ACT} decisions made"


def decide_gate(facts: GateFacts) -> RailVerdict:
    """The verdict of the gate. Its `rule` has the names of all rules that apply, separated by commas. `novel-pair`
    among them is the NEW badge."""
    applying = find_gate_rules(facts)
    rule = ",".join(name for name, _ in applying)
    reasons = join_reasons(reason for _, reason in applying)
    if facts.by_operator and not (facts.confined or facts.waived or facts.confirmed):
        return RailVerdict(RAIL, Verdict.ASK, reasons, rule)
    if facts.by_operator:
        return RailVerdict(RAIL, Verdict.ALLOW, f"approved by you ({reasons})" if reasons else "approved", rule)
    if not applying:
        return RailVerdict(RAIL, Verdict.ALLOW, "nothing to ask")
    return RailVerdict(RAIL, Verdict.BLOCK if facts.content is Verdict.BLOCK else Verdict.ASK, reasons, rule)
