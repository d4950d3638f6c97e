"""Drafts the effect of a candidate from what happened in sessions (SPEC 5.2, 5.4). Pure, but for reading the sources.

Transcripts and diffs show how agents solved a problem: the changes that fixed failing tests, the calls that worked
after an error, and the commands of a sequence. If the evidence does not show what to change, nothing is drafted, and
the reason is reported. Repairs and commands come from agents' messages and calls, so they are quotes (SPEC 6.8). The
choice of a model or a limit comes from measurements.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, takewhile

from engine.frozen import frozen
from engine.learning.candidates import CandidateSources, ModelPrice, ModelsUsed
from engine.learning.candidates.effects import replace_texts, validate_effect
from engine.learning.candidates.evaluation import Opportunity
from engine.learning.candidates.sequences import find_common_commands, has_failed
from engine.lessons import distil_rule
from engine.model import TranscriptLine, Trust
from engine.model.adaptation import (
    MAX_PATCH_CHARS,
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
from engine.model.prompts import RunKind
from engine.model.sessions import HANDED_BACK_MARK
from engine.redaction import redact
from engine.text import plain, quote
from engine.wording import money

# -- a draft and its evidence


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
    """Raised if the evidence does not show what to change. The message says why."""


class StillRunning(NothingToDraft):
    """Raised if a session of the evidence still runs. The opportunity is tried again later."""


@frozen
class DraftEvidence:
    """The evidence for a draft: the `record` of the opportunity, the `related` records of its scope, newest first, the
    `sources`, and the maximum number of healing attempts in the settings."""

    record: LearningRecord
    related: Sequence[LearningRecord]
    sources: CandidateSources
    max_attempts: int

    @property
    def scope_agent(self) -> str:
        """The agent that is the scope of the record, "" if the scope is a workspace or a leader."""
        return self.record.scope_id if self.record.scope_type == "agent" else ""

    def select_related(self, kind: RecordKind) -> list[LearningRecord]:
        """The related records of a kind."""
        return [record for record in self.related if record.kind is kind]

    def require_ended_session(self, session_id: str) -> str:
        """Return the id of a session if it is over. Raises `StillRunning`."""
        if not self.sources.has_ended(session_id):
            raise StillRunning(f"session {session_id} is still running")
        return session_id


def draft_candidate(
    opportunity: Opportunity, related: Sequence[LearningRecord], sources: CandidateSources, *, max_attempts: int
) -> Draft:
    """Draft the change that an opportunity suggests; see `DraftEvidence` for the arguments. Secrets are redacted (SPEC
    11.1). Raises `NothingToDraft`, and what `validate_effect` raises."""
    draft = DRAFTERS[opportunity.type](DraftEvidence(opportunity.record, related, sources, max_attempts))
    secrets = tuple(sources.list_secrets())
    effect = replace_texts(draft.effect, lambda text: redact(text, secrets))
    if isinstance(effect, FlowOffload) and not effect.commands:
        raise NothingToDraft("its commands contain a key or a password")
    return replace(draft, effect=validate_effect(effect), title=redact(draft.title, secrets))


# -- repairs


def _draft_fix_template(evidence: DraftEvidence) -> Draft:
    """Draft the repair of a test from the newest session that fixed it."""
    record, sources = evidence.record, evidence.sources
    test = str(record.details["test"])
    records = (record, *evidence.related)
    heals = (heal for heal in records if heal.kind is RecordKind.SUCCESSFUL_HEAL and heal.details.get("test") == test)
    if (heal := next(heals, None)) is None:
        raise NothingToDraft(f"nothing has fixed {test} yet")
    session = evidence.require_ended_session(heal.session_id)
    patch = sources.read_patch(session, landed="landed" in heal.details)
    repairs = _describe_heal(sources, session, patch)
    if not repairs:
        raise NothingToDraft(f"session {session} fixed {test} but does not say how")
    failing = tuple(dict.fromkeys([test, *map(str, heal.details["failing"])]))
    other_tests = f" and {len(failing) - 1} more" if len(failing) > 1 else ""
    template = FixTemplate(
        failing,
        repairs,
        patch=patch if len(patch) <= MAX_PATCH_CHARS else "",
        causes=tuple(map(str, heal.details.get("causes", ()))),
        project=heal.details.get("project", ""),
    )
    title = f"Keep the repair of {test}{other_tests} as a playbook"
    return Draft(template, title, run_kind=RunKind.HEAL, workspace=record.workspace)


# -- models and limits

MAX_PRICE_RATIO = 0.8
"""Maximum price of a cheaper model, as a share of the price of the current one."""

COST_MARGIN = 1.5
"""A new cost cap is this factor above the dearest heal."""

MIN_COST_MICROUSD = 50_000
"""Minimum cost cap of healing in micro-dollars."""


def _draft_routing_hint(evidence: DraftEvidence) -> Draft:
    """Draft a cheaper model for the shorter tasks of an agent."""
    record = evidence.record
    models = evidence.sources.find_models(record.agent)
    if models is None:
        raise NothingToDraft(f"the price of the model of {record.agent} is not known")
    cheaper_model = _choose_cheaper_model(models)
    saved = 1 - cheaper_model.price / models.current.price
    reason = f"{_explain_saving(record)}; {cheaper_model.model} costs {saved:.0%} less than {models.current.model}"
    return Draft(
        RoutingHint(cheaper_model.model, models.channel, models.median_prompt, reason),
        f"Give shorter tasks of {record.agent} to {cheaper_model.model}",
        agent_id=record.agent,
        run_kind=RunKind.TASK,
        workspace=record.workspace if record.kind is RecordKind.TASK_CONFLICT else "",
        trust=Trust.MEASURED,
    )


def _choose_cheaper_model(models: ModelsUsed) -> ModelPrice:
    """The most expensive of the models that are cheap enough, which is the smallest step that helps."""
    if not models.current.price:
        raise NothingToDraft(f"{models.current.model} costs nothing")
    cheaper = [model for model in models.others if model.price <= MAX_PRICE_RATIO * models.current.price]
    if not cheaper:
        raise NothingToDraft(f"no configured model is cheaper than {models.current.model}")
    return max(cheaper, key=lambda model: (model.price, model.model))


def _explain_saving(record: LearningRecord) -> str:
    """Why an agent should get a cheaper model, in words."""
    details = record.details
    match record.kind:
        case RecordKind.BUDGET_INCIDENT:
            spent, budget = money(details["spent"]), money(details["budget"])
            return f"{record.agent} spent {spent} of its {budget} on {details['day']}"
        case RecordKind.TASK_CONFLICT:
            return f"the work of {record.agent} conflicted with other work in {', '.join(details['conflicting'][:3])}"
    return f"{record.agent} does good work: {details['leader']} adopted its finding {details['pattern']}"


def _draft_policy_tweak(evidence: DraftEvidence) -> Draft:
    """Draft a limit that is lower than the number of attempts that failed, but not lower than any number of attempts
    that fixed a test."""
    failures = _find_failed_retries(evidence)
    if not failures:
        raise NothingToDraft("no failed attempt here would be avoided by a lower limit")
    heals = [heal for heal in evidence.select_related(RecordKind.SUCCESSFUL_HEAL) if "landed" not in heal.details]
    retries_needed = max(map(_count_retries, heals), default=1)
    retries_that_failed = min(max(map(_count_retries, failures)), evidence.max_attempts)
    if retries_needed >= retries_that_failed:
        raise NothingToDraft(
            f"a repair took {retries_needed} attempts and a failure {retries_that_failed}: no limit separates them"
        )
    cost_cap = _choose_cost_cap(heals, failures)
    capped = f", for at most {money(cost_cap)}" if cost_cap is not None else ""
    times = {1: "once", 2: "twice"}.get(retries_needed, f"{retries_needed} times")
    agent = evidence.scope_agent
    title = f"Try a repair at most {times}{capped}: attempt {retries_that_failed} changed nothing"
    title += f" for {agent}" if agent else ""
    return Draft(PolicyTweak(retries_needed, cost_cap), title, agent_id=agent, trust=Trust.MEASURED)


def _find_failed_retries(evidence: DraftEvidence) -> list[LearningRecord]:
    """The record itself if it is about attempts that changed nothing, else such records of other sessions."""
    record = evidence.record
    if record.kind is RecordKind.REPEATED_RETRY:
        return [record]
    retries = evidence.select_related(RecordKind.REPEATED_RETRY)
    return [retry for retry in retries if retry.session_id != record.session_id]


def _choose_cost_cap(heals: Sequence[LearningRecord], failures: Sequence[LearningRecord]) -> int | None:
    """A cap above the dearest heal, in micro-dollars; None if no failure cost more, or nothing was healed."""
    if not heals:
        return None
    cap = max(MIN_COST_MICROUSD, round(COST_MARGIN * max(int(heal.details["cost"]) for heal in heals)))
    return cap if cap < max(int(failure.details["cost"]) for failure in failures) else None


def _count_retries(record: LearningRecord) -> int:
    """The number of attempts after the first test run."""
    return int(record.details["attempts"]) - 1


# -- flows

MAX_FLOW_TITLE_CHARS = 240
"""Maximum number of characters of the title of a flow."""


def _draft_flow(evidence: DraftEvidence) -> Draft:
    """Draft a flow from the commands that the latest ten sessions with a sequence ran."""
    record = evidence.record
    calls = tuple(map(str, record.details["calls"]))
    sessions = [evidence.sources.read_transcript(str(session)) for session in record.details["sessions"][-10:]]
    commands = find_common_commands(sessions, calls)
    if not commands:
        raise NothingToDraft("no session has its steps as commands that run without a shell")
    return Draft(
        FlowOffload(_make_flow_name(calls), plain(" > ".join(commands), MAX_FLOW_TITLE_CHARS), commands),
        f"Run {' > '.join(call.removeprefix('exec:') for call in calls)} as a flow, without a model",
        agent_id=record.agent,
        workspace=record.workspace,
    )


def _make_flow_name(calls: Sequence[str]) -> str:
    """A name for a flow, made of the programs that it runs: `git_status_then_pytest`, at most 40 characters."""
    names = ["_".join(re.findall(r"[a-z0-9]+", call.removeprefix("exec:").lower())) for call in calls]
    return f"{'' if names[0][:1].isalpha() else 'run_'}{'_then_'.join(names)}"[:40].strip("_")


# -- fragments

MAX_FRAGMENT_LINES = 5
"""Maximum number of lines of a prompt fragment."""

MIN_TASKS = 3
"""Minimum number of tasks with the same instruction before it becomes a lesson (SPEC 6.8)."""


def _draft_prompt_fragment(evidence: DraftEvidence) -> Draft:
    """Draft a fragment by the drafter of the record's kind, for the scope of the record."""
    record = evidence.record
    workspace = record.scope_id if record.scope_type == "workspace" else ""
    return replace(FRAGMENT_DRAFTERS[record.kind](evidence), agent_id=evidence.scope_agent, workspace=workspace)


def _make_fragment(lines: Sequence[str], title: str, trust: Trust) -> Draft:
    """A draft without a scope. Each line counts once."""
    return Draft(PromptFragment(tuple(dict.fromkeys(lines))[:MAX_FRAGMENT_LINES]), title, trust=trust)


def _draft_from_approval(evidence: DraftEvidence) -> Draft:
    """Draft a fragment from a rule that the operator added to a prompt, or from a fact that the operator kept. Other
    approvals have too low a score to get here."""
    record, details = evidence.record, evidence.record.details
    if "added" not in details:
        title = f"Add a fact that you kept to every prompt: {quote(details['text'], 60)}"
        return _make_fragment([details["text"]], title, Trust(details["trust"]))
    rule = distil_rule(details["added"])
    tasks = sum(related.source_label == record.source_label for related in evidence.related)
    if not rule.is_general and tasks < MIN_TASKS:
        raise NothingToDraft(f"an instruction about a single case is not a lesson: {quote(details['added'], 60)}")
    title = f"Tell {record.agent} what you keep adding: {quote(rule.text)}"
    return _make_fragment([rule.text], title, Trust.OPERATOR)


def _draft_from_error(evidence: DraftEvidence) -> Draft:
    """Draft a fragment that describes an error, the calls that worked after it, and the corrections in that session."""
    record, sources = evidence.record, evidence.sources
    tool, message = str(record.details["tool"]), str(record.details["message"])
    cause = message.partition(": ")[2] or message  # without the error code
    line = f"A call of {tool} failed: {quote(cause)}."
    session = evidence.require_ended_session(record.session_id)
    remedies = _find_calls_after_error(sources.read_transcript(session), tool, cause)
    corrections = sources.find_corrections(session)
    if not remedies and not corrections:
        raise NothingToDraft(f"no remedy is known for {record.source_label}")
    if remedies:
        line += f" What worked then: {', '.join(f'`{call}`' for call in remedies)}."
    title = f"Warn {record.agent} about an error of {tool}: {quote(cause, 60)}"
    return _make_fragment([line, *corrections], title, Trust.QUOTED)


_GUIDANCE_TITLES = {
    RecordKind.GUIDANCE_NOISY: "Weaken advice from {leader}: ",
    RecordKind.STALE_GUIDANCE: "Mark advice from {leader} as possibly out of date: ",
}
_GUIDANCE_LINES = {
    RecordKind.GUIDANCE_NOISY: (
        "{leader} says {quoted}. Of {told} sessions with it {told_bad} ended badly, of {untold} without it "
        "{untold_bad}: where it and the task disagree, the task and its tests count."
    ),
    RecordKind.STALE_GUIDANCE: (
        "{leader} says {quoted}, and it is {days:,} days old, where {most} are the rule: look whether it still holds "
        "before you follow it."
    ),
}
"""The title, and the line of the fragment, with the details of the record in braces."""


def _draft_from_guidance(evidence: DraftEvidence) -> Draft:
    """Draft a fragment that weakens guidance with which sessions went worse, or marks guidance as out of date."""
    kind, details = evidence.record.kind, evidence.record.details
    if "candidate_id" in details:
        raise NothingToDraft("a harmful candidate is rolled back, not worked around")
    text, trust = evidence.sources.read_guidance(str(details["ref"]))
    if not text:
        raise NothingToDraft(f"{details['ref']} is no longer in use")
    line = _GUIDANCE_LINES[kind].format(quoted=quote(text), **details)
    return _make_fragment([line], _GUIDANCE_TITLES[kind].format(**details) + quote(text, 60), trust)


def _draft_from_memory(evidence: DraftEvidence) -> Draft:
    """Draft a fragment with a memory that was useful repeatedly."""
    text, trust = evidence.sources.read_memory(str(evidence.record.details["memory"]))
    if not text:
        raise NothingToDraft("the memory has been forgotten since")
    title = f"Always show {evidence.record.agent} what it recalls repeatedly: {quote(text, 60)}"
    return _make_fragment([text], title, trust)


FRAGMENT_DRAFTERS: Mapping[RecordKind, Callable[[DraftEvidence], Draft]] = {
    RecordKind.HUMAN_APPROVAL: _draft_from_approval,
    RecordKind.AGENT_ERROR: _draft_from_error,
    RecordKind.GUIDANCE_NOISY: _draft_from_guidance,
    RecordKind.STALE_GUIDANCE: _draft_from_guidance,
    RecordKind.CLOUD_MEMORY_RECALL_HIT: _draft_from_memory,
}
"""The drafters by kind of record. Records of plain success have no drafter: their score is too low (see
`entry_readers`)."""

DRAFTERS: Mapping[CandidateType, Callable[[DraftEvidence], Draft]] = {
    CandidateType.FIX_TEMPLATE: _draft_fix_template,
    CandidateType.ROUTING_HINT: _draft_routing_hint,
    CandidateType.POLICY_TWEAK: _draft_policy_tweak,
    CandidateType.PROMPT_FRAGMENT: _draft_prompt_fragment,
    CandidateType.FLOW_OFFLOAD: _draft_flow,
}


# -- reading transcripts

MAX_MESSAGE_CHARS = 300
"""Maximum number of quoted characters of an agent's message."""

MAX_CHANGED_LINES = 12
"""Maximum number of changed lines of an edit that is quoted. For a longer edit only the file is named."""

MAX_CHANGES = 4
"""Maximum number of edits that are described."""

MAX_QUOTE_CHARS = 160
"""Maximum number of quoted characters of a changed line or a call."""

PRECEDING_CALLS = 2
"""Maximum number of successful calls that are shown before the one that worked."""


def _describe_heal(sources: CandidateSources, session: str, patch: str) -> tuple[str, ...]:
    """How a session fixed the tests, as lines of a playbook.

    The first line is the agent's last message after the last test failure, or the summary of the session if there is no
    message. The changes in `patch` follow, or the names of the changed files.
    """
    lines = sources.read_transcript(session)
    failures = (index for index, line in enumerate(lines) if line.kind == "note" and HANDED_BACK_MARK in line.text)
    last_failure = max(failures, default=len(lines))
    messages = _collect_messages(takewhile(lambda line: line.kind != "command", lines[last_failure + 1 :]))
    sections = re.split(r"(?m)^(?=diff --git )", patch)[1:]
    changes = list(filter(None, map(_describe_section, sections)))
    if messages and not changes:
        changes = [f"it changed {path}" for path in sources.list_changed_files(session)]
    explanation = messages[-1] if messages else sources.read_summary(session)
    return (*_cut_to_sentences(explanation), *list(dict.fromkeys(changes))[:MAX_CHANGES])


def _describe_section(section: str) -> str:
    """The change of one file in a git diff, in words; "" if the diff does not name the file. A short edit is quoted."""
    head, _, body = section.partition("\n@@")
    paths = [line[4:].partition("/")[2] for line in head.splitlines() if line.startswith(("--- a/", "+++ b/"))]
    if not paths:
        return ""
    path = paths[-1]
    if "\n--- /dev/null" in head:
        return f"it wrote {path}"
    removed, added = _find_signed_lines(body, "-"), _find_signed_lines(body, "+")
    if not 0 < len(removed) + len(added) <= MAX_CHANGED_LINES:
        return f"it changed {path}"
    before, after = (plain(" / ".join(lines), MAX_QUOTE_CHARS) for lines in (removed, added))
    if before and after:
        return f"in {path} it replaced `{before}` by `{after}`"
    return f"in {path} it {'added' if after else 'took out'} `{after or before}`"


def _find_signed_lines(body: str, sign: str) -> list[str]:
    """The removed or added lines of a diff that are not empty, without the sign."""
    return [line[1:].strip() for line in body.splitlines() if line.startswith(sign) and line[1:].strip()]


def _find_calls_after_error(lines: Sequence[TranscriptLine], tool: str, cause: str) -> tuple[str, ...]:
    """The agent's successful calls after an error, up to and including the next call of the same tool. If that tool is
    not called again, only the next call. () if there is none, or if the error is not in these lines."""
    error_index = next((index for index, line in enumerate(lines) if _is_error(line, tool, cause)), len(lines))
    later_calls = [line.text for line in lines[error_index + 1 :] if line.kind == "tool"]
    successful_calls = [call for call in later_calls if not has_failed(call)]
    calls_of_tool = (index for index, call in enumerate(successful_calls) if call.split(" ", 1)[0] == tool)
    last = next(calls_of_tool, 0)
    return tuple(plain(call, MAX_QUOTE_CHARS) for call in successful_calls[max(0, last - PRECEDING_CALLS) : last + 1])


def _collect_messages(lines: Iterable[TranscriptLine]) -> list[str]:
    """The agent's messages; consecutive lines are one message."""
    groups = groupby(lines, key=lambda line: line.kind)
    messages = [" ".join(line.text for line in group).strip() for kind, group in groups if kind == "say"]
    return [message for message in messages if message]


def _is_error(line: TranscriptLine, tool: str, cause: str) -> bool:
    """Whether a line reports an error with this cause, by a program or by a call of the tool."""
    if cause[:80] not in line.text:
        return False
    return line.kind in ("error", "exit", "output") or (line.kind == "tool" and line.text.startswith(tool))


def _cut_to_sentences(text: str) -> tuple[str, ...]:
    """The beginning of a text, cut after a whole sentence if possible; () for an empty text."""
    head = plain(text, MAX_MESSAGE_CHARS)
    end = max(head.rfind(". "), head.rfind("! "), head.rfind("? "))
    if head.endswith("…") and end > MAX_MESSAGE_CHARS // 3:
        head = head[: end + 1]
    return (head,) if head else ()
