"""Judges candidates: whether an effect is valid, what its texts are and how it reads in a preview (SPEC 5.4), and how
well other records support a candidate (SPEC 5.3). Pure.

Records from which the candidate was drafted do not count, and each session counts once. Records against a candidate are
listed but do not change its score: the operator compares both.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import astuple, replace
from datetime import datetime
from difflib import SequenceMatcher
from itertools import chain
from statistics import fmean

from engine.config.sections import find_model_problem
from engine.frozen import frozen
from engine.learning.learnings.recurrence import may_be_same
from engine.model import Refusal, sanitise
from engine.model.adaptation import (
    Candidate,
    CandidateStatus,
    Effect,
    EffectPreview,
    FixTemplate,
    FlowOffload,
    LearningRecord,
    PolicyTweak,
    PromptFragment,
    RecordKind,
    RoutingHint,
)
from engine.model.learnings import list_content_words, normalise
from engine.model.text import jaccard, money, name_command, one_line

# -- effects

MAX_LINES = 20
"""Maximum number of lines of guidance, repairs or commands in one effect."""

MAX_LINE_CHARS = 500
"""Maximum number of characters of each line."""

_FLOW_NAME = re.compile(r"[a-z][a-z0-9_]{1,39}")
"""A valid name of a flow."""


def validate_effect(effect: Effect) -> Effect:
    """Check an effect, and return it with each text in a single line. Raises `Refusal` `bad_effect` with the
    problem."""
    match effect:
        case PromptFragment():
            return PromptFragment(_validate_lines("guidance", effect.guidance))
        case FixTemplate():
            _require(effect.failing, "it names no failing test")
            return replace(effect, repairs=_validate_lines("repairs", effect.repairs))
        case RoutingHint():
            problem = find_model_problem(effect.model)
            _require(not problem, problem)
        case PolicyTweak():
            _require((effect.tries, effect.cost) != (None, None), "it changes no limit")
        case FlowOffload(name):
            problem = f"{sanitise(name)[:80]!r} is not a valid flow name: use lower-case letters, digits and _"
            _require(_FLOW_NAME.fullmatch(name), problem)
            commands = _validate_lines("commands", effect.commands)
            for command in commands:
                split_command(command)
            return FlowOffload(name, _validate_line(effect.title) or name, commands)
    return effect


def split_command(command: str) -> list[str]:
    """The program and arguments of a flow's command, which runs without a shell. Raises `Refusal` `bad_effect`."""
    shown = f"{command[:80]!r}"
    try:
        tokens = list(shlex.shlex(command, posix=True, punctuation_chars=True))
        arguments = shlex.split(command)
    except ValueError as error:
        raise _make_invalid_effect_refusal(f"{shown} is not a command: {error}") from error
    _require(arguments and not arguments[0].startswith("-"), f"{shown} is not a command")
    _require(not any(token and set(token) <= set("();<>|&") for token in tokens), f"{shown} needs a shell")
    return arguments


def _validate_lines(name: str, texts: Sequence[str]) -> tuple[str, ...]:
    """Check the texts of the field `name`, and return each that is not empty in a single line."""
    lines = tuple(filter(None, map(_validate_line, texts)))
    _require(lines, f"{name} says nothing")
    _require(len(lines) <= MAX_LINES, f"{name} has {len(lines)} lines, at most {MAX_LINES}")
    return lines


def _validate_line(text: str) -> str:
    """Check the length of a text, and return it in a single line."""
    line = one_line(text)
    problem = f"a line has {len(line)} characters, at most {MAX_LINE_CHARS}: {line[:60]}…"
    _require(len(line) <= MAX_LINE_CHARS, problem)
    return line


def _require(condition: object, problem: str) -> None:
    """Refuse an effect with this problem unless the condition is true."""
    if not condition:
        raise _make_invalid_effect_refusal(problem)


def _make_invalid_effect_refusal(problem: str) -> Refusal:
    """The refusal of an effect with this problem."""
    return Refusal("bad_effect", f"this change cannot be activated: {problem}", "reject its candidate")


def free_name(name: str, used_names: Collection[str]) -> str:
    """An unused name for a flow, at most 40 characters: `name`, with a number if `name` is used already."""
    unused, number = name, 2
    while unused in used_names:
        unused, number = f"{name[:36].rstrip('_')}_{number}", number + 1
    return unused


def list_texts(effect: Effect) -> tuple[str, ...]:
    """Every text of an effect."""
    values = (value if isinstance(value, tuple) else (value,) for value in astuple(effect))
    return tuple(text for text in chain.from_iterable(values) if isinstance(text, str))


def map_texts(effect: Effect, change: Callable[[str], str]) -> Effect:
    """The effect with `change` applied to each text, without texts that become empty. If a diff or a command of a flow
    changes, the whole diff or all commands are removed, because the rest would do something else."""

    def change_all(lines: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(filter(None, map(change, lines)))

    match effect:
        case PromptFragment():
            return PromptFragment(change_all(effect.guidance))
        case FixTemplate(failing, repairs, patch, causes):
            patch = patch if change(patch) == patch else ""
            return FixTemplate(change_all(failing), change_all(repairs), patch, change_all(causes), effect.project)
        case RoutingHint():
            return replace(effect, why=change(effect.why))
        case FlowOffload(name, title, commands):
            return FlowOffload(name, change(title) or name, commands if change_all(commands) == commands else ())
    return effect


def is_same_change(effect: Effect, other: Effect) -> bool:
    """Whether two effects make the same change: the same repair of a test, the same model for a channel, or equal
    effects."""
    match effect, other:
        case FixTemplate(), FixTemplate():
            return bool({*effect.failing} & {*other.failing}) and effect.repairs == other.repairs
        case RoutingHint(), RoutingHint():
            return (effect.model, effect.channel) == (other.model, other.channel)
    return effect == other


def make_preview(
    effect: Effect, others: Sequence[Effect], *, model: str, tries: int, cost: int, flows: Collection[str]
) -> EffectPreview:
    """The behaviour with the `others`, and with the effect as well, as lines that a screen can compare. The others are
    active effects of its type, oldest first. `model`, `tries`, `cost` (in micro-dollars) and `flows` are the values
    without effects."""

    def describe(effects: Sequence[Effect]) -> tuple[str, ...]:
        if isinstance(effect, PolicyTweak):
            return _describe_limits([PolicyTweak(tries, cost), *effects])
        lines = [f"model: {model}"] if isinstance(effect, RoutingHint) else []
        return *lines, *_describe_effects(effects, flows)

    return EffectPreview(describe(others), describe([*others, effect]))


def _describe_limits(tweaks: Sequence[Effect]) -> tuple[str, ...]:
    """The lowest of these limits."""
    limits = [tweak for tweak in tweaks if isinstance(tweak, PolicyTweak)]
    tries = min(limit.tries for limit in limits if limit.tries is not None)
    cost = min(limit.cost for limit in limits if limit.cost is not None)
    return f"tries to heal: {tries}", f"cost of healing: {money(cost)} at most"


def _describe_effects(effects: Sequence[Effect], flows: Collection[str]) -> list[str]:
    """The lines of effects in a preview. A flow gets the name that it would get beside the earlier ones."""
    lines, flow_names = list[str](), set(flows)
    for effect in effects:
        match effect:
            case PromptFragment():
                lines += [f"- {line}" for line in effect.guidance]
            case FixTemplate():
                lines += [f"failing: {name}" for name in effect.failing]
                lines += [f"advice: {line}" for line in effect.repairs]
                lines += [line for line in effect.patch.splitlines() if not line.startswith("index ")]
            case RoutingHint():
                limit = f" of at most {effect.longest_prompt} characters" if effect.longest_prompt is not None else ""
                lines.append(f"prompts{limit} on {effect.channel or 'any channel'}: {effect.model} ({effect.why})")
            case FlowOffload():
                name = free_name(effect.name, flow_names)
                flow_names.add(name)
                lines.append(f"flow: {name} ({effect.title})")
                lines += [f"  $ {shlex.join(shlex.split(command))}" for command in effect.commands]
    return lines


# -- evaluations

PROPOSED = (CandidateStatus.DRAFTED, CandidateStatus.REVIEW, CandidateStatus.ACTIVE)
"""Statuses of candidates that were neither rejected nor rolled back."""

MIN_REVIEW_SCORE = 60.0
"""Minimum score of a candidate in review."""

MAX_UNCORROBORATED = 45.0
"""Maximum score of a candidate without supporting records."""

MEAN_WEIGHT, BONUS, MAX_BONUS = 0.85, 5.0, 15.0
"""The factors of `compute_score`."""

MIN_FACT_SIMILARITY = 0.6
"""Minimum Jaccard similarity of the words of two facts that support each other."""

MIN_NEW_EVIDENCE = 3
"""Minimum number of new supporting records that reopen a rejected candidate."""


@frozen
class Evaluation:
    """A score from 0 to 100, and the records for and against the candidate."""

    score: float
    corroborated_by: tuple[str, ...]
    against: tuple[str, ...]
    reason: str

    @property
    def has_passed(self) -> bool:
        """Whether the candidate goes to review."""
        return bool(self.corroborated_by) and self.score >= MIN_REVIEW_SCORE


def compute_score(drafted: float, scores: Sequence[float]) -> float:
    """The maximum over n of `min(100, 0.85·mean + min(15, 5·n))` of the n highest `scores` of supporting records. It is
    at least `drafted`, of which at most 45 count. So an additional supporting record never lowers it."""
    strongest = sorted(scores, reverse=True)
    supported = (
        MEAN_WEIGHT * fmean(strongest[:number]) + min(MAX_BONUS, BONUS * number)
        for number in range(1, len(strongest) + 1)
    )
    return round(min(100.0, max(min(MAX_UNCORROBORATED, drafted), *supported, 0.0)), 6)


def select_supporting(
    candidate: Candidate, drafted: Iterable[LearningRecord], records: Iterable[LearningRecord]
) -> list[LearningRecord]:
    """The records that support a candidate, in the order of `records`.

    They have its scope, and either its label or a fact similar to its own fact. Records of sessions from which it was
    drafted are left out. Of each other session, the record with the highest score counts.
    """
    drafted = list(drafted)
    drafted_sessions = {record.session_id for record in drafted if record.session_id}
    facts = [_find_kept_fact(record) for record in drafted]

    def supports(record: LearningRecord) -> bool:
        if (record.scope_type, record.scope_id) != (candidate.scope_type, candidate.scope_id):
            return False
        if record.id in candidate.drafted_from or record.session_id in drafted_sessions:
            return False
        return record.source_label == candidate.source_label or any(
            _do_facts_agree(_find_kept_fact(record), fact) for fact in facts
        )

    return _select_best_of_each_session(filter(supports, records))


def _select_best_of_each_session(records: Iterable[LearningRecord]) -> list[LearningRecord]:
    """Of each session the first record with the highest score. A record without a session counts alone."""
    best: dict[str, LearningRecord] = {}
    for record in records:
        session = record.session_id or record.id
        if session not in best or record.score > best[session].score:
            best[session] = record
    return list(best.values())


def _find_kept_fact(record: LearningRecord) -> str:
    """The fact that the operator kept, "" for any other record."""
    return str(record.details["text"]) if "kept" in record.details else ""


def _do_facts_agree(fact: str, other: str) -> bool:
    """Whether two facts are similar and do not contradict each other.

    A fact may have words that the other does not have. If they have different content words in the same place, they
    count as a contradiction ("We install with uv" and "We install with pip"), because words alone do not show whether
    one is a synonym of the other.
    """
    if jaccard(normalise(fact).split(), normalise(other).split()) < MIN_FACT_SIMILARITY or not may_be_same(fact, other):
        return False
    changes = SequenceMatcher(None, list_content_words(fact), list_content_words(other), autojunk=False).get_opcodes()
    return all(tag != "replace" for tag, *_ in changes)


def evaluate(
    candidate: Candidate,
    drafted: Sequence[LearningRecord],
    records: Sequence[LearningRecord],
    *,
    active_since: datetime | None = None,
) -> Evaluation:
    """Evaluate a candidate by the `records` of its scope. It was drafted from the records `drafted`. `active_since` is
    None for a candidate that is not active."""
    supporting = select_supporting(candidate, drafted, records)
    score = compute_score(
        max((record.score for record in drafted), default=0.0), [record.score for record in supporting]
    )
    begin = min((record.at for record in drafted), default=candidate.created_at)
    against = [
        record
        for record in records
        if record.id not in candidate.drafted_from and speaks_against(candidate, record, begin, active_since)
    ]
    reason = f"{_describe_support(len(supporting))}: {score:.0f} of 100"
    if against:
        reason += f"; {len(against)} against it"
    return Evaluation(score, tuple(record.id for record in supporting), tuple(record.id for record in against), reason)


def _describe_support(number: int) -> str:
    """The number of supporting records in words."""
    if not number:
        return "no other record supports it yet"
    return "1 other record supports it" if number == 1 else f"{number} other records support it"


def speaks_against(
    candidate: Candidate, record: LearningRecord, begin: datetime, active_since: datetime | None
) -> bool:
    """Whether a record of the agent that a candidate is about is evidence against its effect.

    The evidence against a repair is a test that failed while the repair was active. Against a tighter limit it is a
    repair that needed more. Against a cheaper model it is tests that fail even with the present model. Against a
    fragment it is other guidance of the agent with which work went worse. Against a flow it is a command of the flow
    that could not run. The last three count only after `begin`, the time of the first record of the draft.
    """
    if candidate.agent_id and record.agent != candidate.agent_id:
        return False
    is_after_draft = record.at >= begin
    match candidate.effect, record.kind:
        case FixTemplate() as template, RecordKind.FAILED_TDD:
            was_active = active_since is not None and record.at > active_since
            return was_active and record.details["test"] in template.failing
        case PolicyTweak() as tweak, RecordKind.SUCCESSFUL_HEAL:
            return _exceeds_limit(record, tweak)
        case RoutingHint(), RecordKind.FAILED_TDD:
            return is_after_draft
        case PromptFragment(), RecordKind.GUIDANCE_NOISY:
            return is_after_draft and record.source_label != candidate.source_label
        case FlowOffload() as flow, RecordKind.AGENT_ERROR:
            return is_after_draft and _is_error_of_flow(record, flow)
    return False


def _exceeds_limit(heal: LearningRecord, tweak: PolicyTweak) -> bool:
    """Whether a repair by an agent needed more than a limit allows. A landed change set has no number of attempts."""
    if "landed" in heal.details:
        return False
    needs_more_tries = tweak.tries is not None and heal.details["attempts"] - 1 > tweak.tries
    needs_more_money = tweak.cost is not None and heal.details["cost"] > tweak.cost
    return needs_more_tries or needs_more_money


def _is_error_of_flow(error: LearningRecord, flow: FlowOffload) -> bool:
    """Whether a command of a flow could not run."""
    failed_command = str(error.details["message"]).partition(": ")[0]
    return error.details["tool"] == "exec" and failed_command in {name_command([line]) for line in flow.commands}


def has_new_evidence(
    candidate: Candidate, drafted: Sequence[LearningRecord], records: Sequence[LearningRecord]
) -> bool:
    """Whether there is enough evidence from after the rejection to reopen a rejected candidate. It needs at least three
    new supporting records, at least as many as before the rejection (drafts included), and the new ones alone must pass
    the evaluation."""
    new_evidence = [
        record for record in select_supporting(candidate, drafted, records) if record.at > candidate.changed_at
    ]
    before = len(candidate.drafted_from) + len(candidate.corroborated_by)
    enough = len(new_evidence) >= max(MIN_NEW_EVIDENCE, before)
    return enough and compute_score(0.0, [record.score for record in new_evidence]) >= MIN_REVIEW_SCORE
