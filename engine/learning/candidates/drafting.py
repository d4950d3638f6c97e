"""Drafts the effect of a candidate from what happened in sessions (SPEC 5.2, 5.4). Pure, apart from reading `Sources`.

Where the evidence does not say what to change, nothing is drafted and the reason is reported. Repairs and commands
come from what agents said and did, so they are quotes (SPEC 6.8). The choice of a model or a limit comes from
measurements.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from engine.frozen import frozen
from engine.learning.candidates import transcripts
from engine.learning.candidates.effects import map_texts, validate_effect
from engine.learning.candidates.evaluation import Opportunity
from engine.learning.candidates.sources import Sources
from engine.learning.candidates.transcripts import MAX_QUOTE_LENGTH, one_line, quote
from engine.model import Trust, dollars
from engine.model.adaptation import (
    MAX_PATCH,
    CandidateType,
    Effect,
    FixTemplate,
    FlowOffload,
    LearningRecord,
    PolicyTweak,
    PromptFragment,
    RecordKind,
    RoutingHint,
)
from engine.model.lessons import distil
from engine.model.secrets import redact
from engine.model.text import count

MAX_PRICE_RATIO = 0.8
"""Maximum price of a cheaper model, as a share of the price of the current one."""

COST_MARGIN = 1.5
"""A new cost cap is this factor above the dearest heal."""

MIN_COST = 50_000
"""Minimum cost cap of healing in micro-dollars."""

MAX_LINES = 5
"""Maximum number of lines of a prompt fragment."""

MIN_TASKS = 3
"""Minimum number of tasks with the same instruction before it becomes a lesson (SPEC 6.8)."""


@frozen
class Draft:
    """An effect with its title, its scope ("" for everywhere) and its trust (SPEC 6.8)."""

    effect: Effect
    title: str
    agent_id: str = ""
    run_kind: str = ""
    workspace: str = ""
    trust: Trust = Trust.QUOTED


class NothingToDraft(Exception):
    """The evidence does not say what to change. The message says why."""


class StillRunning(NothingToDraft):
    """A session of the evidence still runs; the opportunity is tried again later."""


def require_ended(session_id: str, sources: Sources) -> str:
    """The id of a session that is over. Raises `StillRunning`."""
    if not sources.session_ended(session_id):
        raise StillRunning(f"session {session_id} is still running")
    return session_id


def draft_candidate(opportunity: Opportunity, records: Sequence[LearningRecord], sources: Sources) -> Draft:
    """Draft the change that an opportunity suggests, from the `records` of its scope, newest first. Secrets are
    redacted (SPEC 11.1). Raises `NothingToDraft`, and what `validate_effect` raises."""
    proposal = DRAFTERS[opportunity.type](opportunity.record, records, sources)
    secrets = tuple(sources.secrets())
    effect = map_texts(proposal.effect, lambda text: redact(text, secrets))
    if isinstance(effect, FlowOffload) and not effect.commands:
        raise NothingToDraft("its commands contain a key or a password")
    return replace(proposal, effect=validate_effect(effect), title=redact(proposal.title, secrets))


# -- a repair that worked


def _draft_fix_template(record: LearningRecord, records: Sequence[LearningRecord], sources: Sources) -> Draft:
    test = str(record.details["test"])
    heal = record if record.kind is RecordKind.SUCCESSFUL_HEAL else _find_heal(test, records)
    if heal is None:
        raise NothingToDraft(f"nothing has fixed {test} yet")
    session = require_ended(heal.session_id, sources)
    patch = sources.patch(session, landed="landed" in heal.details)
    repairs = transcripts.healing_lines(
        sources.transcript(session), patch, sources.changed_files(session), sources.summary(session)
    )
    if not repairs:
        raise NothingToDraft(f"session {session} fixed {test} but does not say how")
    failing = tuple(dict.fromkeys([test, *map(str, heal.details["failing"])]))
    more = f" and {len(failing) - 1} more" if len(failing) > 1 else ""
    causes = tuple(map(str, heal.details.get("causes", ())))
    return Draft(
        FixTemplate(
            failing, repairs, patch if len(patch) <= MAX_PATCH else "", causes, heal.details.get("project", "")
        ),
        f"Keep the repair of {test}{more} as a playbook",
        run_kind="heal",
        workspace=record.workspace,
    )


def _find_heal(test: str, records: Sequence[LearningRecord]) -> LearningRecord | None:
    heals = (record for record in records if record.kind is RecordKind.SUCCESSFUL_HEAL)
    return next((heal for heal in heals if heal.details.get("test") == test), None)


# -- a cheaper model


def _draft_routing_hint(record: LearningRecord, records: Sequence[LearningRecord], sources: Sources) -> Draft:
    models = sources.models(record.agent)
    if models is None:
        raise NothingToDraft(f"the price of the model of {record.agent} is not known")
    if not models.current.price:
        raise NothingToDraft(f"{models.current.model} costs nothing")
    cheaper = [model for model in models.others if model.price <= MAX_PRICE_RATIO * models.current.price]
    if not cheaper:
        raise NothingToDraft(f"no configured model is cheaper than {models.current.model}")
    # The dearest of the cheaper ones: the least step down that helps.
    chosen = max(cheaper, key=lambda model: (model.price, model.model))
    saved = 1 - chosen.price / models.current.price
    details = record.details
    match record.kind:
        case RecordKind.BUDGET_INCIDENT:
            spent, budget = dollars(details["spent"]), dollars(details["budget"])
            why = f"{record.agent} spent ${spent:.2f} of its ${budget:.2f} on {details['day']}"
        case RecordKind.TASK_CONFLICT:
            why = f"the work of {record.agent} conflicted with other work in {', '.join(details['conflicting'][:3])}"
        case _:
            why = f"{record.agent} does good work: {details['leader']} adopted its finding {details['pattern']}"
    words = f"{why}; {chosen.model} costs {saved:.0%} less than {models.current.model}"
    return Draft(
        RoutingHint(chosen.model, models.channel, models.median_prompt, words),
        f"Give shorter tasks of {record.agent} to {chosen.model}",
        agent_id=record.agent,
        run_kind="task",
        workspace=record.workspace if record.kind is RecordKind.TASK_CONFLICT else "",
        trust=Trust.MEASURED,
    )


# -- tighter bounds


def _draft_policy_tweak(record: LearningRecord, records: Sequence[LearningRecord], sources: Sources) -> Draft:
    """A limit below the attempts that failed, and not below those that ever fixed a test."""
    agent = record.scope_id if record.scope_type == "agent" else ""
    failed_retries = [
        item for item in records if item.kind is RecordKind.REPEATED_RETRY and item.session_id != record.session_id
    ]
    if record.kind is RecordKind.REPEATED_RETRY:
        failed_retries = [record]
    if not failed_retries:
        raise NothingToDraft("no failed attempt here would be avoided by a lower limit")
    heals = [
        record for record in records if record.kind is RecordKind.SUCCESSFUL_HEAL and "landed" not in record.details
    ]
    needed = max((int(record.details["attempts"]) - 1 for record in heals), default=1)
    attempts = min(
        max(int(record.details["attempts"]) - 1 for record in failed_retries), sources.max_healing_attempts()
    )
    if needed >= attempts:
        raise NothingToDraft(f"a repair took {needed} attempts and a failure {attempts}: no limit separates them")
    spent = max(int(record.details["cost"]) for record in failed_retries)
    dearest = max((int(record.details["cost"]) for record in heals), default=0)
    cost = max(MIN_COST, round(COST_MARGIN * dearest)) if heals else None
    if cost is not None and cost >= spent:
        cost = None
    capped = f", for at most ${dollars(cost):.2f}" if cost is not None else ""
    return Draft(
        PolicyTweak(needed, cost),
        f"Try a repair at most {_times(needed)}{capped}: attempt {attempts} changed nothing"
        + (f" for {agent}" if agent else ""),
        agent_id=agent,
        trust=Trust.MEASURED,
    )


def _times(number: int) -> str:
    return {1: "once", 2: "twice"}.get(number, f"{number} times")


# -- a fragment of the prompt


def _draft_prompt_fragment(record: LearningRecord, records: Sequence[LearningRecord], sources: Sources) -> Draft:
    lines, title, trust = FRAGMENT_DRAFTERS[record.kind](record, records, sources)
    lines = [line for line in dict.fromkeys(map(one_line, lines)) if line][:MAX_LINES]
    if not lines:
        raise NothingToDraft(f"{record.source_label} does not say what to do otherwise")
    agent = record.scope_id if record.scope_type == "agent" else ""
    workspace = record.scope_id if record.scope_type == "workspace" else ""
    return Draft(PromptFragment(tuple(lines)), title, agent_id=agent, workspace=workspace, trust=trust)


# -- a flow without a model


def _flow(record: LearningRecord, records: Sequence[LearningRecord], sources: Sources) -> Draft:
    calls = tuple(map(str, record.details["calls"]))
    sessions = [sources.transcript(str(session)) for session in record.details["sessions"][-10:]]
    run = transcripts.common_commands(sessions, calls)
    if not run:
        raise NothingToDraft("no session has its steps as commands that run without a shell")
    return Draft(
        FlowOffload(_flow_name(calls), " > ".join(run)[:MAX_QUOTE_LENGTH], run),
        f"Run {' > '.join(call.removeprefix('exec:') for call in calls)} as a flow, without a model",
        agent_id=record.agent,
        workspace=record.workspace,
    )


def _flow_name(calls: Sequence[str]) -> str:
    """A flow's name, from what it runs: `git_status_then_pytest`, at most 40 letters."""
    words = ["_".join(re.findall(r"[a-z0-9]+", call.removeprefix("exec:").lower())) for call in calls]
    return f"{'' if words[0][:1].isalpha() else 'run_'}{'_then_'.join(words)}"[:40].strip("_")


# -- what a fragment says

FragmentDraft = tuple[list[str], str, Trust]
"""The lines of a fragment, the title of the candidate, and its trust."""


def _fragment_from_approval(
    record: LearningRecord, records: Sequence[LearningRecord], sources: Sources
) -> FragmentDraft:
    details = record.details
    if "added" in details:
        rule = distil(details["added"])
        met = sum(item.source_label == record.source_label for item in records)
        if not rule.general and met < MIN_TASKS:
            raise NothingToDraft(f"an instruction about a single case is not a lesson: {quote(details['added'], 60)}")
        return [rule.text], f"Tell {record.agent} what you keep adding: {quote(rule.text)}", Trust.OPERATOR
    if "text" not in details:
        raise NothingToDraft("you approved the proposal unchanged, so nothing needs to change")
    title = f"Add a fact that you kept to every prompt: {quote(details['text'], 60)}"
    return [str(details["text"])], title, Trust(details.get("trust", Trust.QUOTED))


def _fragment_from_error(record: LearningRecord, records: Sequence[LearningRecord], sources: Sources) -> FragmentDraft:
    details = record.details
    tool, message = str(details["tool"]), str(details["message"])
    cause = message.partition(": ")[2] or message
    line = f"A call of {tool} failed: {quote(cause)}."
    session = require_ended(record.session_id, sources)
    instead = transcripts.calls_after_error(sources.transcript(session), tool, message)
    corrections = list(sources.corrections(session))
    if not instead and not corrections:
        raise NothingToDraft(f"no remedy is known for {record.source_label}")
    if instead:
        line += f" What worked then: {', '.join(f'`{one_line(call)}`' for call in instead)}."
    return [line, *corrections], f"Warn {record.agent} about an error of {tool}: {quote(cause, 60)}", Trust.QUOTED


def _fragment_from_noisy(record: LearningRecord, records: Sequence[LearningRecord], sources: Sources) -> FragmentDraft:
    details = record.details
    if "candidate_id" in details:
        raise NothingToDraft("a harmful candidate is rolled back, not worked around")
    text, trust = sources.guidance_text(str(details["ref"]))
    if not text:
        raise NothingToDraft(f"{details['ref']} is no longer in use")
    line = (
        f"{details['leader']} says {quote(text)}. Of {details['told']} sessions with it {details['told_bad']} ended "
        f"badly, of {details['untold']} without it {details['untold_bad']}: where it and the task disagree, the task "
        "and its tests count."
    )
    return [line], f"Weaken advice from {details['leader']}: {quote(text, 60)}", trust


def _fragment_from_stale(record: LearningRecord, records: Sequence[LearningRecord], sources: Sources) -> FragmentDraft:
    details = record.details
    text, trust = sources.guidance_text(str(details["ref"]))
    if not text:
        raise NothingToDraft(f"{details['ref']} is no longer in use")
    why = (
        [f"it is {count(details['days'], 'day')} old, where {details['most']} are the rule"] if details["most"] else []
    )
    why += [f"files that it names are gone: {', '.join(map(str, details['gone'][:5]))}"] if details["gone"] else []
    past = " and ".join(why)
    line = f"{details['leader']} says {quote(text)}, and {past}: look whether it still holds before you follow it."
    return [line], f"Mark advice from {details['leader']} as possibly out of date: {quote(text, 60)}", trust


def _fragment_from_recalled(
    record: LearningRecord, records: Sequence[LearningRecord], sources: Sources
) -> FragmentDraft:
    text, trust = sources.memory_text(str(record.details["memory"]))
    if not text:
        raise NothingToDraft("the memory has been forgotten since")
    return [text], f"Always show {record.agent} what it recalls repeatedly: {quote(text, 60)}", trust


def _fragment_from_nothing(
    record: LearningRecord, records: Sequence[LearningRecord], sources: Sources
) -> FragmentDraft:
    raise NothingToDraft(f"{record.kind} records a success, so nothing needs to change")


FRAGMENT_DRAFTERS: Mapping[RecordKind, Callable[[LearningRecord, Sequence[LearningRecord], Sources], FragmentDraft]] = {
    RecordKind.HUMAN_APPROVAL: _fragment_from_approval,
    RecordKind.AGENT_ERROR: _fragment_from_error,
    RecordKind.GUIDANCE_NOISY: _fragment_from_noisy,
    RecordKind.STALE_GUIDANCE: _fragment_from_stale,
    RecordKind.CLOUD_MEMORY_RECALL_HIT: _fragment_from_recalled,
    RecordKind.GUIDANCE_APPLIED: _fragment_from_nothing,
    RecordKind.TEACHING_REFRESH: _fragment_from_nothing,
}


DRAFTERS: Mapping[CandidateType, Callable[[LearningRecord, Sequence[LearningRecord], Sources], Draft]] = {
    CandidateType.FIX_TEMPLATE: _draft_fix_template,
    CandidateType.ROUTING_HINT: _draft_routing_hint,
    CandidateType.POLICY_TWEAK: _draft_policy_tweak,
    CandidateType.PROMPT_FRAGMENT: _draft_prompt_fragment,
    CandidateType.FLOW_OFFLOAD: _flow,
}
