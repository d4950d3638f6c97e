"""The human gate (SPEC 3.6): decides which work needs a person's approval.

An operator's approval satisfies every rule but one (SPEC 3.2): if no sandbox works, the operator must confirm each run,
unless the settings of the workspace allow runs without one. Without an approval, each rule that applies asks, and after
a hit of the content filter it blocks. The rules for work that runs by itself (SPEC 2.5, 2.6, 7.3, 7.4) are here too, so
that no such work can bypass them.
"""

from __future__ import annotations

from collections.abc import Iterator

from engine.frozen import frozen_kw_only
from engine.installed import SANDBOX_FIX
from engine.model import MAX_REJECTIONS, GateRuleName, RailVerdict, Verdict, join_reasons
from engine.wording import MICRO, money

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
"""The reason by what the content filter says."""


@frozen_kw_only
class GateFacts:
    """The conditions that the gate checks. All must be stated, because one that is forgotten could open the gate.
    Money in micro-dollars."""

    confidence: float
    """From 0 to 1."""
    estimate: int
    targets: tuple[str, ...]
    """The production targets that it touches, in words."""
    novel_pair_reason: str
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
    is_autonomous: bool
    """Whether autonomous mode is on."""
    workspace_acts: bool
    """Whether the autonomy of the workspace is `act`."""
    quiet_reason: str
    """Why it is quiet now, "" if it is not."""
    phase: int
    """The phase of the Twin (SPEC 2.6), from 0."""
    approval_bound: float
    """Wilson's lower bound of the approval rate of cards like it."""
    threshold: float
    """The minimum confidence that the settings ask for."""
    is_suggested: bool
    """Whether somebody else may have written it."""
    is_ordered: bool
    """Whether the operator ordered the work to run by itself."""
    is_confined: bool
    """Whether a sandbox works on this machine."""
    is_sandbox_waived: bool
    """Whether the workspace's settings allow runs without a sandbox."""
    is_confirmed: bool
    """Whether the operator confirmed the run without a sandbox for this decision."""
    is_always_asked: bool
    """Whether it installs packages, which always needs an approval."""


def find_gate_rules(facts: GateFacts) -> list[tuple[GateRuleName, str]]:
    """The rules that apply, also for an operator's approval, each with its reason."""
    return [*_find_rules_before_approval(facts), *_find_rules_on_all_work(facts), *_find_rules_on_this_work(facts)]


def _find_rules_before_approval(facts: GateFacts) -> Iterator[tuple[GateRuleName, str]]:
    """What an operator must know before an approval."""
    if not facts.is_confined:
        yield GateRuleName.SANDBOX_WAIVED if facts.is_sandbox_waived else GateRuleName.NO_SANDBOX, NO_CONFINEMENT
    if facts.targets:
        yield GateRuleName.PRODUCTION, f"touches production: {', '.join(facts.targets[:3])}"
    if facts.content is not Verdict.ALLOW:
        yield GateRuleName.CONTENT, _CONTENT_WORDS[facts.content]
    if facts.estimate > COSTLY_ABOVE_MICROUSD:
        yield GateRuleName.COSTLY, f"{money(facts.estimate)} is more than {money(COSTLY_ABOVE_MICROUSD)}"
    if facts.is_suggested:
        yield GateRuleName.SUGGESTED, "somebody else may have written this suggestion or task, so it waits for you"
    if facts.is_always_asked:
        yield GateRuleName.INSTALLS, "it installs packages over the network, so it always waits for you"


def _find_rules_on_all_work(facts: GateFacts) -> Iterator[tuple[GateRuleName, str]]:
    """Why nothing runs by itself now."""
    if not facts.is_autonomous:
        fix = "clawpy config set autonomousModeEnabled true"
        yield GateRuleName.AUTONOMY_OFF, f"nothing runs by itself until you turn autonomous mode on: {fix}"
    if not facts.is_ordered and facts.phase < 1:
        yield GateRuleName.COLD_START, "nothing runs by itself in phase 0: too few decisions of yours to learn from"
    if facts.decisions < MIN_DECISIONS_TO_ACT:
        yield GateRuleName.ONBOARDING, describe_first_days(facts.decisions)
    if not facts.workspace_acts:
        yield GateRuleName.WORKSPACE, NOT_SET_TO_ACT
    if facts.quiet_reason:
        yield GateRuleName.QUIET, facts.quiet_reason
    if facts.rejections >= MAX_REJECTIONS:
        yield GateRuleName.REJECTIONS, f"{facts.rejections} dismissals in a row"
    if facts.day_cost * 5 > facts.day_cap * 4 or facts.day_cap == 0:
        yield GateRuleName.DAY_COST, "more than 80 % of the day's cap is spent"


def _find_rules_on_this_work(facts: GateFacts) -> Iterator[tuple[GateRuleName, str]]:
    """Why this work alone does not run by itself. An order of the operator needs no confidence and no past
    approvals."""
    if facts.is_ordered:
        return
    if facts.confidence < MIN_CONFIDENCE:
        yield GateRuleName.LOW_CONFIDENCE, f"its confidence {facts.confidence:.2f} is below {MIN_CONFIDENCE:.2f}"
    elif facts.confidence < facts.threshold:
        yield GateRuleName.BELOW_THRESHOLD, f"its confidence {facts.confidence:.2f} is below {facts.threshold:.2f}"
    if facts.approval_bound < MIN_APPROVAL_BOUND:
        bound = f"{facts.approval_bound:.2f} of {MIN_APPROVAL_BOUND:.2f}"
        reason = f"you approved too few cards like it: the lower bound of your approval rate is {bound}"
        yield GateRuleName.TRACK_RECORD, reason
    if facts.novel_pair_reason:
        yield GateRuleName.NOVEL_PAIR, f"NEW: {facts.novel_pair_reason}"


def describe_first_days(decisions: int) -> str:
    """Why nothing runs by itself in the first days: the decisions made so far, and the minimum."""
    return f"first days: {decisions} of {MIN_DECISIONS_TO_ACT} decisions made"


def decide_gate(facts: GateFacts) -> RailVerdict:
    """The verdict of the gate. Its `rule` has the names of all rules that apply, separated by commas. `novel-pair`
    among them is the NEW badge."""
    applying = find_gate_rules(facts)
    rule = ",".join(name for name, _ in applying)
    reasons = join_reasons(reason for _, reason in applying)
    if facts.by_operator and not (facts.is_confined or facts.is_sandbox_waived or facts.is_confirmed):
        return RailVerdict(RAIL, Verdict.ASK, reasons, rule)
    if facts.by_operator:
        return RailVerdict(RAIL, Verdict.ALLOW, f"approved by you ({reasons})" if reasons else "approved", rule)
    if not applying:
        return RailVerdict(RAIL, Verdict.ALLOW, "nothing to ask")
    return RailVerdict(RAIL, Verdict.BLOCK if facts.content is Verdict.BLOCK else Verdict.ASK, reasons, rule)
