"""What a check found in a workspace: problems that still hold, and what becomes of the cards that are pending there.

A card whose evidence is gone must be withdrawn, one whose evidence stays gives the reasons of the last check, and work
that the operator did without a card is recognised. `cycle` asks this; nothing here decides which new cards are made.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime

from sqlmodel import Session

from engine.frozen import frozen
from engine.model import Assignment, Card, Proposal, Source, sanitise
from engine.model.text import count, join_shortened, moment, plain
from engine.prediction.card_rows import CardRow, load_card
from engine.prediction.context import Part, WorkspaceContext
from engine.prediction.templates.history import describe_problem
from engine.prediction.templates.offers import is_usable, short_test
from engine.storage.validation_runs import ValidationRun, verdict_on

BOUND_TO_EVIDENCE = (Source.TEMPLATE, Source.EMBEDDED_TWIN, Source.TWIN_MODEL, Source.FOLLOW_UP)
"""Sources of cards that are withdrawn when their evidence is gone."""


@frozen
class Findings:
    """What a round found in one workspace."""

    context: WorkspaceContext
    proposals: tuple[Proposal, ...]
    complete: bool
    """False if something could not be read. Then no card is withdrawn."""
    unchecked: frozenset[str] = frozenset()
    """The kinds of cards whose check failed. Their cards are not withdrawn."""
    can_replace: bool = True
    """False if the round makes one next step at most. Then no card makes way for another about the same evidence."""

    def proposal_of(self, card: Card) -> Proposal | None:
        """The proposal that has the evidence and the subject of a pending card."""
        for proposal in self.proposals:
            if (proposal.fingerprint, proposal.about) == (card.fingerprint, card.about):
                return proposal
        return None

    def has_lost(self, card: Card, now: datetime, is_edited: Callable[[str], bool]) -> bool:
        """Whether a pending card must go: its evidence is gone, or asks for other work by now.

        What a card would run is never replaced under its id, because an approval must run what the operator read.
        Another card takes its place. An edited card runs what the operator wrote, so it stays; `is_edited(card id)`
        says which are. A snoozed card stays while its subject exists, since a new card would show it before its time.
        """
        if not self.complete or card.source not in BOUND_TO_EVIDENCE or card.kind in self.unchecked:
            return False
        proposal = self.proposal_of(card)
        if proposal is not None and (
            not self.can_replace or _is_same_work(proposal, card.assignment) or is_edited(card.id)
        ):
            return False
        return not (card.snoozed(now) and any(proposal.about == card.about for proposal in self.proposals))


def _is_same_work(proposal: Proposal, assignment: Assignment) -> bool:
    """Whether a card for the proposal would run this."""
    parameters = json.loads(json.dumps(dict(proposal.parameters)))  # as they are stored
    work = (sanitise(proposal.prompt), proposal.flow, parameters)
    return work == (assignment.prompt, assignment.flow, dict(assignment.parameters))


def leaving_cards(session: Session, cards: Sequence[Card], findings: Mapping[str, Findings], now: datetime) -> set[str]:
    """The ids of the pending cards that must go; see `Findings.has_lost`. `findings` are those of each workspace."""

    def is_edited(card_id: str) -> bool:
        return bool(load_card(session, card_id).original_prompt)

    return {
        card.id
        for card in cards
        if card.workspace in findings and findings[card.workspace].has_lost(card, now, is_edited)
    }


def renew_reasons(session: Session, cards: Sequence[Card], findings: Mapping[str, Findings]) -> None:
    """Give the pending cards the reasons that their proposals have now, unless these are the reasons for other work.

    Their confidence stays as it was stated, because it is compared with the decision (SPEC 8.6). How relevant a signal
    is changes with every minute, and is no reason to write to the disk.
    """
    for card in cards:
        proposal = findings[card.workspace].proposal_of(card) if card.workspace in findings else None
        if proposal is None or _reasons(card) == _reasons(proposal):
            continue
        row = load_card(session, card.id)
        if row.original_prompt or _is_same_work(proposal, card.assignment):
            row.reasoning, row.evidence_at = sanitise(proposal.reasoning), proposal.evidence_at
            row.signals = proposal.signals


def _reasons(of: Card | Proposal) -> tuple[str, datetime | None, list[tuple[str, ...]]]:
    """The reasons that a card gives, or would give."""
    return sanitise(of.reasoning), of.evidence_at, [signal.evidence for signal in of.signals if signal.relevance]


def is_done_by_operator(card: CardRow, now: WorkspaceContext, own_session_ids: Collection[str] = ()) -> bool:
    """Whether the state of the workspace shows that the operator did the work of `card` (SPEC 8.1): the tests ran by a
    prompt of the operator (`own_session_ids`), the branch was merged, or one of the branches is gone.

    Work of another card does not count. Neither does a change that only removes the evidence: a commit of a file is no
    check of HEAD, and a test that passes again was not bisected."""
    git = now.git
    if git is None:
        return False
    match card.kind:
        case "run_tests":
            return any(run.ran_at > card.created_at and run.session_id in own_session_ids for run in now.runs)
        case "rehearse_merge":
            on_target = git.branch == card.parameters.get("target") and git.behind_base == 0
            return on_target and any(commit.at > card.created_at for commit in git.recent[:1])
        case "report_branches":
            names = {branch.name for branch in git.branches}
            return any(name not in names for name, _ in card.facts.get("branches", ()))
    return False


@frozen
class _Problem:
    """A problem that still holds, and when it was found or made."""

    at: datetime
    sentence: str


def unsolved_problem(context: WorkspaceContext) -> str:
    """The newest problem that is known in a workspace and still holds, in words; "" for none. It is named also after
    its cards were decided and other work has run."""
    if context.git is None:
        return ""
    problems = [*_secrets(context), *_unfinished(context), *_conflicts(context), *_failing_tests(context)]
    problems.sort(key=lambda problem: problem.at, reverse=True)
    if len(problems) < 2:
        return "".join(problem.sentence for problem in problems)
    return f"{problems[0].sentence}; {count(len(problems) - 1, 'more problem')} here"


def _secrets(context: WorkspaceContext) -> Iterator[_Problem]:
    """The first secret in commits that are not pushed."""
    problem = next((problem for problem in context.inspection.unpushed.committed if problem.is_secret), None)
    if problem is not None:
        commit = next((commit for commit in context.repository.recent if commit.id == problem.sha), None)
        history = "; a later commit removed it, but the history still has it" if problem.is_removed_later else ""
        sentence = f"do not push yet: {describe_problem(problem)}{history}"
        yield _Problem(commit.at if commit else context.now, sentence)


def _unfinished(context: WorkspaceContext) -> Iterator[_Problem]:
    """The unfinished operation, if it has conflicts."""
    operation = context.inspection.unfinished
    if operation is not None and operation.unmerged:
        sentence = f"the unfinished {operation.name} has conflicts in {join_shortened(operation.unmerged, 3)}"
        yield _Problem(operation.begun_at or context.now, sentence)


def _conflicts(context: WorkspaceContext) -> Iterator[_Problem]:
    """The conflict that the newest rehearsal found, if both sides still conflict."""
    conflicting = {merge.tip: merge for merge in context.inspection.merges if merge.files}
    for session in context.sessions:
        merge = conflicting.get(session.facts.get("source", ""))
        if session.flow == "rehearse_merge" and session.has_problem and merge is not None:
            branches = f"{plain(merge.source, 40)} into {plain(context.repository.branch, 40)}"
            sentence = f"merging {branches} still conflicts in {join_shortened(merge.files or (), 3)}"
            yield _Problem(session.ended_at or session.created_at, sentence)
            return


def _failing_tests(context: WorkspaceContext) -> Iterator[_Problem]:
    """For each project, the newest run in which tests failed that have not passed since."""
    for part in context.parts:
        for number, run in enumerate(part.tree_runs):
            later_runs = part.tree_runs[:number]
            failed = [] if run.check.green else run.check.failing or ("",)
            failing = [test for test in failed if not any(_passed(later, test) for later in later_runs)]
            if failing:
                yield _Problem(run.ran_at, _describe_failing(context, part, run, failing))
                break


def _passed(run: ValidationRun, test: str) -> bool:
    """Whether a later run shows that a test passes, or for "", that the tests of an earlier run do, which named none.
    Some test runners do not list the tests that passed; a green run of theirs counts for every test."""
    verdict = verdict_on(run, test) if test else None
    if verdict is None:
        return run.check.green and not (test and run.check.durations)
    return verdict


def _describe_failing(context: WorkspaceContext, part: Part, run: ValidationRun, failing: Sequence[str]) -> str:
    """What failed and when, and while no file has changed since, what the operator can do now."""
    test = failing[0]
    which = f"`{short_test(test)}`" if len(failing) == 1 else count(len(failing), "test")
    has = "has" if len(failing) == 1 else "have"
    sentence = (
        f"{which if test else 'the run of the tests'}{part.within} failed at {moment(run.ran_at, context.local)} and "
        f"{has} not passed since"
    )
    if part.changed:
        return sentence
    can_bisect = (
        is_usable(test) and part.tool is not None and part.tool.runs_single_tests and len(context.repository.recent) > 1
    )
    asking = f", or ask for “bisect test={test} good=COMMIT” with a commit where it passed" if can_bisect else ""
    return f"{sentence}; fix {'it' if len(failing) == 1 else 'them'}{asking}"
