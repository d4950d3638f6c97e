"""Drafts of candidates: what effect each kind of evidence leads to, and that without evidence nothing is drafted (SPEC
5.2, 5.4)."""

from dataclasses import replace
from typing import Any

import pytest

from engine.learning.candidates import ModelPrice, ModelsUsed
from engine.learning.candidates.drafting import Draft, NothingToDraft, draft_candidate
from engine.learning.candidates.records import Opportunity, find_types
from engine.model.adaptation import (
    MAX_PATCH_CHARS,
    CandidateType,
    FixTemplate,
    FlowOffload,
    LearningRecord,
    PolicyTweak,
    RecordKind,
    RoutingHint,
)
from tests.conftest import MONDAY_MORNING
from tests.learning.candidates.adaptation_world import AGENT, HEALED_BY, SHOP, TOTAL, StandInSources, make_transcript

SECRET = "sk-a1b2c3d4a1b2c3d4a1b2c3d4a1b2c3d4"


def make_record(kind: RecordKind, session: str = "sess_1", label: str = "", /, **details: Any) -> LearningRecord:
    """A record of a session with these details."""
    return LearningRecord(
        f"rec_{session}", MONDAY_MORNING, kind, label or kind.value, "agent", AGENT, 80.0, "", SHOP, AGENT, session, 1,
        details,
    )  # fmt: skip


def make_heal_record(
    session: str = "sess_1", attempts: int = 2, cost: int = 100_000, failing: tuple[str, ...] = (TOTAL,)
) -> LearningRecord:
    """A session fixed the tests that it broke."""
    return make_record(
        RecordKind.SUCCESSFUL_HEAL, session, f"successful_heal/{failing[0]}", test=failing[0], failing=list(failing),
        attempts=attempts, cost=cost,
    )  # fmt: skip


def make_failed_retry(session: str = "sess_1", attempts: int = 4, cost: int = 300_000) -> LearningRecord:
    """The attempts of a session left the same test failing."""
    return make_record(RecordKind.REPEATED_RETRY, session, attempts=attempts, cost=cost, failing=[TOTAL])


def make_draft(
    learning_record: LearningRecord,
    *related: LearningRecord,
    sources: StandInSources,
    type: CandidateType | None = None,
    max_attempts: int = 3,
) -> Draft:
    """The draft from a record, by default of the first type that can be drafted from it."""
    opportunity = Opportunity(type or find_types(learning_record.kind)[0], learning_record)
    return draft_candidate(opportunity, [learning_record, *related], sources, max_attempts=max_attempts)


# Repairs

HANDED_BACK = ("note", "1 test failed; back to the agent, try 1")


def make_diff(name: str, *lines: str, before: str = "") -> str:
    """The diff of git for one file; `before` is its former name, by default the same."""
    head = [f"diff --git a/{name} b/{name}", "index 1..2 100644", f"--- {before or f'a/{name}'}", f"+++ b/{name}"]
    return "".join(f"{line}\n" for line in [*head, "@@ -1,3 +1,3 @@ def total():", *lines])


FIX_DIFF = make_diff("cart.py", " def total():", "-    return net", "+    return net - discount")


def test_a_fix_template_is_the_agents_last_message_and_the_changes():
    sources = StandInSources(patches={"sess_1": FIX_DIFF + make_diff("new.py", "+x", before="/dev/null")})
    sources.transcripts["sess_1"] = make_transcript(
        ("say", "I add the discount."), ("tool", "edit readme.md:1"), HANDED_BACK,
        ("say", "total() left the discount out;"), ("say", "it is subtracted now."),
        ("tool", "edit cart.py failed: no_match"), ("tool", "edit cart.py:4"), ("command", "pytest"), ("say", "Done."),
    )  # fmt: skip
    assert make_draft(make_heal_record(failing=(TOTAL, "t.py::other")), sources=sources).effect == FixTemplate(
        (TOTAL, "t.py::other"),
        (HEALED_BY, "in cart.py it replaced `return net` by `return net - discount`", "it wrote new.py"),
        sources.patches["sess_1"],
    )


LANDED_HEAL = make_record(
    RecordKind.SUCCESSFUL_HEAL, "sess_1", f"successful_heal/{TOTAL}", test=TOTAL, failing=[TOTAL], landed="chg_1",
    causes=["TypeError: no discount in cart.py"], project="shop", cost=0,
)  # fmt: skip


@pytest.mark.parametrize(
    "ending, is_kept",
    [
        (" " * (MAX_PATCH_CHARS - len(FIX_DIFF)), True),
        (" " * (MAX_PATCH_CHARS - len(FIX_DIFF) + 1), False),
        (f"+token = '{SECRET}'\n", False),
    ],
    ids=["of the maximum length", "too long", "with a secret"],
)
def test_a_diff_that_is_too_long_or_has_a_secret_is_left_out(ending: str, is_kept: bool):
    patch = f"{FIX_DIFF}{ending}"
    sources = StandInSources(patches={"sess_1": patch}, summaries={"sess_1": "Subtract the discount."})
    effect = make_draft(LANDED_HEAL, sources=sources).effect
    assert effect.patch == (patch if is_kept else "")


# Models

USED = ModelsUsed(
    ModelPrice("openai:gpt-5", 3_000_000), "koji-core",
    (
        ModelPrice("openai:gpt-5-mini", 600_000), ModelPrice("openai:gpt-5-nano", 100_000),
        ModelPrice("openai:like", 2_400_001),
    ),
    800,
)  # fmt: skip
OVER_BUDGET = make_record(RecordKind.BUDGET_INCIDENT, spent=1_200_000, budget=1_000_000, day="2026-01-05")


def test_a_routing_hint_is_the_dearest_of_the_cheaper_models():
    effect = make_draft(OVER_BUDGET, sources=StandInSources(models_used=USED)).effect
    assert effect == RoutingHint(
        "openai:gpt-5-mini", "koji-core", 800,
        f"{AGENT} spent $1.20 of its $1.00 on 2026-01-05; openai:gpt-5-mini costs 80% less than openai:gpt-5",
    )  # fmt: skip


# Limits


@pytest.mark.parametrize(
    "records, tweak",
    [
        ([make_failed_retry()], PolicyTweak(1)),
        ([make_failed_retry(attempts=3)], PolicyTweak(1)),
        ([make_failed_retry(), make_heal_record("sess_2")], PolicyTweak(1, 150_000)),
        ([make_failed_retry(), make_heal_record("sess_2", attempts=3)], PolicyTweak(2, 150_000)),
        ([make_failed_retry(cost=140_000), make_heal_record("sess_2")], PolicyTweak(1)),  # the cap would save nothing
        ([make_failed_retry(), make_heal_record("sess_2", cost=0)], PolicyTweak(1, 50_000)),
    ],
)
def test_a_limit_lies_between_the_attempts_of_heals_and_those_of_failures(
    records: list[LearningRecord], tweak: PolicyTweak
):
    assert make_draft(*records, sources=StandInSources()).effect == tweak


@pytest.mark.parametrize(
    "records, max_attempts",
    [
        ([make_failed_retry(attempts=2)], 3),  # one attempt is always allowed
        ([make_failed_retry()], 1),  # the settings allow only one attempt
        ([make_failed_retry(), make_heal_record("sess_2", attempts=4)], 3),  # a repair took as many
    ],
)
def test_a_limit_that_would_help_nothing_is_not_drafted(records: list[LearningRecord], max_attempts: int):
    with pytest.raises(NothingToDraft):
        make_draft(*records, sources=StandInSources(), max_attempts=max_attempts)


# Fragments


def draft_guidance(
    learning_record: LearningRecord, sources: StandInSources, *related: LearningRecord
) -> tuple[str, ...]:
    """The lines of the fragment from a record."""
    effect = make_draft(learning_record, *related, sources=sources, type=CandidateType.PROMPT_FRAGMENT).effect
    return effect.guidance


def test_a_fragment_from_an_edit_has_the_operators_words():
    edit = make_record(
        RecordKind.HUMAN_APPROVAL, "sess_1", "human_approval/edited:koji-core:run-tests", added="and run the tests",
        channel="koji-core", kind="fix",
    )  # fmt: skip
    with pytest.raises(NothingToDraft, match="about a single case"):
        draft_guidance(edit, StandInSources())
    assert draft_guidance(edit, StandInSources(), edit, edit) == ("run the tests",), (
        "three tasks had the same instruction"
    )
    general_edit = replace(edit, details={**edit.details, "added": "Docs end with a full stop."})
    assert draft_guidance(general_edit, StandInSources()) == ("Docs end with a full stop",)


ERROR = make_record(RecordKind.AGENT_ERROR, tool="edit", message="no_match: the old text is not in src/a.py")


def test_a_fragment_from_an_error_says_what_worked_then():
    sources = StandInSources(corrections_by_session={"sess_1": ["Actually the file uses tabs."]})
    sources.transcripts["sess_1"] = make_transcript(
        ("tool", "edit src/a.py:1"), ("tool", "edit src/a.py failed: the old text is not in src/a.py"),
        ("tool", "read src/a.py"), ("tool", "edit src/a.py failed: something else"), ("tool", "edit src/a.py:7"),
    )  # fmt: skip
    line, correction = draft_guidance(ERROR, sources)
    assert line.startswith("A call of edit failed: “the old text is not in src/a.py”. What worked then: ")
    assert line.endswith("`read src/a.py`, `edit src/a.py:7`.")
    assert correction == "Actually the file uses tabs."
    sources.transcripts["sess_1"] = sources.transcripts["sess_1"][:3]
    assert "What worked then: `read src/a.py`" in draft_guidance(ERROR, sources)[0]


RECALLED = make_record(RecordKind.CLOUD_MEMORY_RECALL_HIT, memory="mem_1")


@pytest.mark.parametrize(
    "learning_record, sources, reason",
    [
        (make_heal_record(), StandInSources(), f"session sess_1 fixed {TOTAL} but does not say how"),
        (make_heal_record(), StandInSources(running={"sess_1"}), "session sess_1 is still running"),
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


# Flows and secrets


def test_a_flow_has_the_commands_of_most_sessions_word_for_word():
    calls = ["exec:git status", "exec:pytest", "exec:git diff"]
    steps = make_record(RecordKind.TOOL_SEQUENCE, calls=calls, sessions=["sess_1", "sess_2", "sess_3"])
    sources = StandInSources()
    for session, command in (("sess_1", "pytest -q"), ("sess_2", "pytest -q"), ("sess_3", "pytest -x tests")):
        sources.transcripts[session] = make_transcript(
            ("tool", "exec git status --short"), ("tool", f"exec {command}"), ("tool", "exec git diff"),
        )  # fmt: skip
    assert make_draft(steps, sources=sources).effect == FlowOffload(
        "git_status_then_pytest_then_git_diff", "git status --short > pytest -q > git diff",
        ("git status --short", "pytest -q", "git diff"),
    )  # fmt: skip
    with pytest.raises(NothingToDraft, match="without a shell"):
        make_draft(steps, sources=StandInSources())


@pytest.mark.parametrize("secret", [SECRET, "hunter2hunter2"])
def test_no_secret_is_drafted(secret: str):
    """The transcript of a coding agent may contain anything."""
    sources = StandInSources(
        patches={"sess_1": make_diff("cart.py", "-token = read()", f"+token = '{secret}'")},
        secret_values=("hunter2hunter2",),
    )
    sources.transcripts["sess_1"] = make_transcript(HANDED_BACK, ("say", f"It wanted {secret}."))
    effect = make_draft(make_heal_record(), sources=sources, type=CandidateType.FIX_TEMPLATE).effect
    assert effect.repairs[0] == "It wanted [secret cut]."
    assert secret not in " ".join(effect.repairs)
    steps = make_record(RecordKind.TOOL_SEQUENCE, calls=["exec:curl", "exec:git status"], sessions=["sess_1"])
    sources.transcripts["sess_1"] = make_transcript(
        ("tool", f"exec curl -u ann:{secret} host"), ("tool", "exec git status")
    )
    with pytest.raises(NothingToDraft, match="a key or a password"):
        make_draft(steps, sources=sources)
