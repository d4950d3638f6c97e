"""What a candidate would change, drafted from what really happened (SPEC 5.2, 5.4). Pure but for `Material`.

Nothing is drafted where the evidence does not say what to do: the reason is told then, and the record waits for more.
Repairs and commands are what agents said and did, so they are quotes (SPEC 6.8); which model and how many tries is
reckoned from what was measured.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from engine.adaptation import reading
from engine.adaptation.digest import Opportunity
from engine.adaptation.material import Draft, Material, NothingToDraft, ended
from engine.adaptation.overlays import checked
from engine.adaptation.saying import QUOTED, SAY, flat
from engine.adaptation.sequences import commands
from engine.values import Trust, dollars
from engine.values.adaptation import (
    LONGEST_PATCH,
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
from engine.values.secrets import redact

LEAST_CHEAPER = 0.8
"""A model is cheaper that costs at most this share of the present one."""

COST_ROOM = 1.5
"""A tighter cap on cost leaves so much room above the dearest heal seen."""

LEAST_COST = 50_000
"""Micro-dollars that healing may cost in any case."""

MOST_LINES = 5
"""Lines of a prompt fragment."""


def draft(one: Opportunity, known: Sequence[LearningRecord], material: Material, secrets: Iterable[str] = ()) -> Draft:
    """What an opportunity would change. `known` are the records of its scope, the newest first; `secrets` and what
    looks like one are cut out (SPEC 11.1). Raises `NothingToDraft`, and what `overlays.checked` does of an effect that
    cannot be in force."""
    found = DRAFTERS[one.type](one.record, known, material)
    cut = tuple(secrets)
    return replace(found, effect=checked(_without_secrets(found.effect, cut)), title=redact(found.title, cut))


def _without_secrets(effect: Effect, known: Sequence[str]) -> Effect:
    """The effect without secrets. A command without its key would be another: there is no flow of it."""

    def clean(texts: Sequence[str]) -> tuple[str, ...]:
        return tuple(redact(one, known) for one in texts)

    match effect:
        case PromptFragment():
            return PromptFragment(clean(effect.guidance))
        case FixTemplate(patch=patch):
            # A diff without its key would be another; nothing is applied then.
            whole = redact(patch, known) == patch
            return replace(
                effect, repairs=clean(effect.repairs), patch=patch if whole else "", causes=clean(effect.causes)
            )
        case FlowOffload() if clean(effect.commands) != effect.commands:
            raise NothingToDraft("a key or a password stands in its commands")
    return effect


# -- a repair that worked


def _fix(record: LearningRecord, known: Sequence[LearningRecord], material: Material) -> Draft:
    test = str(record.details["test"])
    heal = record if record.kind is RecordKind.SUCCESSFUL_HEAL else _heal_of(test, known)
    if heal is None:
        raise NothingToDraft(f"nothing has mended {test} yet")
    session = ended(heal.session_id, material)
    repairs = reading.healing(
        material.transcript(session), material.edits(session), material.changed(session), material.summary(session)
    )
    if not repairs:
        raise NothingToDraft(f"session {session} mended {test} and does not say how")
    failing = tuple(dict.fromkeys([test, *map(str, heal.details["failing"])]))
    more = f" and {len(failing) - 1} more" if len(failing) > 1 else ""
    patch = material.patch(session, landed="landed" in heal.details)
    causes = tuple(map(str, heal.details.get("causes", ())))
    return Draft(
        FixTemplate(
            failing, repairs, patch if len(patch) <= LONGEST_PATCH else "", causes, heal.details.get("project", "")
        ),
        f"Keep the repair of {test}{more} as a playbook",
        run_kind="heal",
        workspace=record.workspace,
    )


def _heal_of(test: str, known: Sequence[LearningRecord]) -> LearningRecord | None:
    return next(
        (one for one in known if one.kind is RecordKind.SUCCESSFUL_HEAL and one.details.get("test") == test), None
    )


# -- a cheaper model


def _route(record: LearningRecord, known: Sequence[LearningRecord], material: Material) -> Draft:
    used = material.models(record.agent)
    if used is None:
        raise NothingToDraft(f"it is not known what the model of {record.agent} costs")
    fitting = [one for one in used.others if one.price <= LEAST_CHEAPER * used.present.price]
    if not fitting:
        raise NothingToDraft(f"no configured model is cheaper than {used.present.model}")
    # The dearest of the cheaper ones: the least step down that helps.
    chosen = max(fitting, key=lambda one: (one.price, one.model))
    saved = 1 - chosen.price / used.present.price if used.present.price else 0.0
    told = record.details
    match record.kind:
        case RecordKind.BUDGET_INCIDENT:
            spent, budget = dollars(told["spent"]), dollars(told["budget"])
            why = f"{record.agent} spent ${spent:.2f} of its ${budget:.2f} on {told['day']}"
        case RecordKind.TASK_CONFLICT:
            why = f"what {record.agent} did conflicted with other work in {', '.join(told['conflicting'][:3])}"
        case _:
            why = f"{record.agent} has what it takes: {told['leader']} took over its finding {told['pattern']}"
    words = f"{why}; {chosen.model} costs {saved:.0%} less than {used.present.model}"
    return Draft(
        RoutingHint(chosen.model, used.channel, used.median_prompt, words),
        f"Give shorter tasks of {record.agent} to {chosen.model}",
        agent_id=record.agent,
        run_kind="task",
        workspace=record.workspace if record.kind is RecordKind.TASK_CONFLICT else "",
        trust=Trust.MEASURED,
    )


# -- tighter bounds


def _tighten(record: LearningRecord, known: Sequence[LearningRecord], material: Material) -> Draft:
    """Tries that never helped: fewer than were made in vain, no fewer than ever healed anything."""
    agent = record.scope_id if record.scope_type == "agent" else ""
    vain = [one for one in known if one.kind is RecordKind.REPEATED_RETRY and one.session_id != record.session_id]
    if record.kind is RecordKind.REPEATED_RETRY:
        vain = [record]
    if not vain:
        raise NothingToDraft("no try was made in vain here that a tighter bound would save")
    heals = [one for one in known if one.kind is RecordKind.SUCCESSFUL_HEAL and "landed" not in one.details]
    needed = max((int(one.details["attempts"]) - 1 for one in heals), default=1)
    made = min(max(int(one.details["attempts"]) - 1 for one in vain), material.tries())
    if needed >= made:
        raise NothingToDraft(f"a heal took {needed} tries, and {made} were made in vain: no bound parts them")
    spent = max(int(one.details["cost"]) for one in vain)
    dearest = max((int(one.details["cost"]) for one in heals), default=0)
    cost = max(LEAST_COST, round(COST_ROOM * dearest)) if heals else None
    if cost is not None and cost >= spent:
        cost = None
    capped = f", for at most ${dollars(cost):.2f}" if cost is not None else ""
    return Draft(
        PolicyTweak(needed, cost),
        f"Heal at most {_times(needed)}{capped}: try {made} changed nothing" + (f" for {agent}" if agent else ""),
        agent_id=agent,
        trust=Trust.MEASURED,
    )


def _times(number: int) -> str:
    return {1: "once", 2: "twice"}.get(number, f"{number} times")


# -- a fragment of the prompt


def _fragment(record: LearningRecord, known: Sequence[LearningRecord], material: Material) -> Draft:
    lines, title, trust = SAY[record.kind](record, known, material)
    lines = [one for one in dict.fromkeys(map(flat, lines)) if one][:MOST_LINES]
    if not lines:
        raise NothingToDraft(f"{record.source_label} does not say what to do otherwise")
    agent = record.scope_id if record.scope_type == "agent" else ""
    workspace = record.scope_id if record.scope_type == "workspace" else ""
    return Draft(PromptFragment(tuple(lines)), title, agent_id=agent, workspace=workspace, trust=trust)


# -- a flow without a model


def _flow(record: LearningRecord, known: Sequence[LearningRecord], material: Material) -> Draft:
    calls = tuple(map(str, record.details["calls"]))
    if commands(calls) is None:
        raise NothingToDraft("not all of its steps are commands")
    transcripts = [material.transcript(str(session)) for session in record.details["sessions"][-10:]]
    run = reading.commands_run(transcripts, calls)
    if not run:
        raise NothingToDraft("no session tells its steps as commands that run without a shell")
    return Draft(
        FlowOffload(_name(calls), " > ".join(run)[:QUOTED], run),
        f"Run {' > '.join(one.removeprefix('exec:') for one in calls)} as a flow, without a model",
        agent_id=record.agent,
        workspace=record.workspace,
    )


def _name(calls: Sequence[str]) -> str:
    """A flow's name, from what it runs: `git_status_then_pytest`, at most 40 letters."""
    words = ["_".join(re.findall(r"[a-z0-9]+", one.removeprefix("exec:").lower())) for one in calls]
    return f"{'' if words[0][:1].isalpha() else 'run_'}{'_then_'.join(words)}"[:40].strip("_")


DRAFTERS: Mapping[CandidateType, Callable[[LearningRecord, Sequence[LearningRecord], Material], Draft]] = {
    CandidateType.FIX_TEMPLATE: _fix,
    CandidateType.ROUTING_HINT: _route,
    CandidateType.POLICY_TWEAK: _tighten,
    CandidateType.PROMPT_FRAGMENT: _fragment,
    CandidateType.FLOW_OFFLOAD: _flow,
}
