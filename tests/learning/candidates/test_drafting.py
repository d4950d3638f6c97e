"""Drafts of candidates: what effect evidence leads to, and that without evidence nothing is drafted (SPEC 5.2)."""

from dataclasses import replace
from typing import Any

import pytest

from engine.learning.candidates.drafting import Draft, NothingToDraft, draft_candidate
from engine.learning.candidates.evaluation import Opportunity, find_candidate_types
from engine.model import Trust
from engine.model.adaptation import CandidateType, LearningRecord, PolicyTweak, RecordKind
from tests.learning.candidates.adaptation_world import AGENT, SHOP, TOTAL, StandInSources, make_transcript
from tests.support import MONDAY_MORNING

SECRET = "sk-a1b2c3d4a1b2c3d4a1b2c3d4a1b2c3d4"


def make_record(kind: RecordKind, session: str = "sess_1", label: str = "", /, **details: Any) -> LearningRecord:
    """A record of a session with these details."""
    return LearningRecord(
        f"rec_{session}", MONDAY_MORNING, kind, label or kind.value, "agent", AGENT, 80.0, "", SHOP, AGENT, session, 1,
        details,
    )  # fmt: skip


HEALED = make_record(
    RecordKind.SUCCESSFUL_HEAL, "sess_1", f"successful_heal/{TOTAL}", test=TOTAL, failing=[TOTAL], attempts=2,
    cost=100_000,
)  # fmt: skip
"""A session fixed the test that it broke."""


def make_draft(record: LearningRecord, sources: StandInSources, type: CandidateType | None = None) -> Draft:
    """The draft from a record, by default of the first type that can be drafted from it."""
    opportunity = Opportunity(type or find_candidate_types(record.kind)[0], record)
    return draft_candidate(opportunity, [record], sources, max_attempts=3)


ERROR = make_record(RecordKind.AGENT_ERROR, tool="edit", message="no_match: the old text is not in src/a.py")
OVER_BUDGET = make_record(RecordKind.BUDGET_INCIDENT, spent=1_200_000, budget=1_000_000, day="2026-01-05")
RECALLED = make_record(RecordKind.CLOUD_MEMORY_RECALL_HIT, memory="mem_1")


@pytest.mark.parametrize(
    "learning_record, sources, reason",
    [
        (HEALED, StandInSources(), f"session sess_1 fixed {TOTAL} but does not say how"),
        (HEALED, StandInSources(running={"sess_1"}), "session sess_1 is still running"),
        (ERROR, StandInSources(), "no remedy is known for agent_error"),
        (OVER_BUDGET, StandInSources(), f"the price of the model of {AGENT} is not known"),
        (RECALLED, StandInSources(), "the memory has been forgotten since"),
        (
            make_record(RecordKind.GUIDANCE_NOISY, candidate_id="cand_1"),
            StandInSources(),
            "is rolled back, not worked around",
        ),
    ],
)
def test_without_evidence_nothing_is_drafted_and_the_reason_is_told(
    learning_record: LearningRecord, sources: StandInSources, reason: str
):
    with pytest.raises(NothingToDraft, match=reason):
        make_draft(learning_record, sources=sources)


NOISY = make_record(
    RecordKind.GUIDANCE_NOISY, ref="cto#patterns/x", leader="cto", told=9, told_bad=6, untold=8, untold_bad=1
)
FACT = make_record(RecordKind.HUMAN_APPROVAL, kept="fact_1", text="Prices are whole cents.", trust="operator")
TEXTS_OF_IDS = {"mem_1": "Prices are cents.", "cto#patterns/x": "Skip the tests."}


@pytest.mark.parametrize(
    "learning_record, line, trust",
    [
        (FACT, "Prices are whole cents.", Trust.OPERATOR),
        (RECALLED, "Prices are cents.", Trust.QUOTED),
        (NOISY, "Of 9 sessions with it 6 ended badly, of 8 without it 1: where it and the task disagree", Trust.QUOTED),
    ],
    ids=["fact", "memory", "noisy"],
)
def test_what_was_kept_recalled_or_did_harm_becomes_a_line_of_prompts(
    learning_record: LearningRecord, line: str, trust: Trust
):
    draft = make_draft(learning_record, StandInSources(texts=TEXTS_OF_IDS), CandidateType.PROMPT_FRAGMENT)
    assert line in draft.effect.guidance[0]
    assert (draft.trust, draft.agent_id) == (trust, AGENT)


def test_a_limit_is_between_the_repairs_that_worked_and_the_attempts_that_did_not():
    retry = make_record(RecordKind.REPEATED_RETRY, "sess_2", attempts=4, cost=900_000)
    opportunity = Opportunity(CandidateType.POLICY_TWEAK, retry)
    draft = draft_candidate(opportunity, [retry, HEALED], StandInSources(), max_attempts=3)
    assert draft.effect == PolicyTweak(1, 150_000)
    slow_heal = replace(HEALED, details=HEALED.details | {"attempts": 4})
    with pytest.raises(NothingToDraft, match="no limit separates them"):
        draft_candidate(opportunity, [slow_heal], StandInSources(), max_attempts=3)


# Secrets


@pytest.mark.parametrize("secret", [SECRET, "hunter2hunter2"])
def test_no_secret_is_drafted(secret: str):
    """The transcript of a coding agent may contain anything."""
    sources = StandInSources(
        patches={"sess_1": f"diff --git a/cart.py b/cart.py\n@@ -1 +1 @@\n-token = read()\n+token = '{secret}'\n"},
        secret_values=("hunter2hunter2",),
    )
    sources.transcripts["sess_1"] = make_transcript(
        ("note", "1 test failed; back to the agent, try 1"), ("say", f"It wanted {secret}.")
    )
    effect = make_draft(HEALED, sources=sources, type=CandidateType.FIX_TEMPLATE).effect
    assert effect.repairs[0] == "It wanted [secret cut]."
    assert secret not in " ".join(effect.repairs)
    steps = make_record(RecordKind.TOOL_SEQUENCE, calls=["exec:curl", "exec:git status"], sessions=["sess_1"])
    sources.transcripts["sess_1"] = make_transcript(
        ("tool", f"exec curl -u ann:{secret} host"), ("tool", "exec git status")
    )
    with pytest.raises(NothingToDraft, match="a key or a password"):
        make_draft(steps, sources=sources)
