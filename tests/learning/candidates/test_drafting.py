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


def test_a_landed_fix_has_its_diff_and_the_cause():
    sources = StandInSources(patches={"sess_1": FIX_DIFF}, summaries={"sess_1": "Subtract the discount."})
    assert make_draft(LANDED_HEAL, sources=sources).effect == FixTemplate(
        (TOTAL,),
        ("Subtract the discount.", "in cart.py it replaced `return net` by `return net - discount`"),
        FIX_DIFF,
        ("TypeError: no discount in cart.py",),
        "shop",
    )


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


@pytest.mark.parametrize(
    "lines, change",
    [
        (["+    return net"], "in cart.py it added `return net`"),
        (["-    return net", "+"], "in cart.py it took out `return net`"),
        (["-a", "-b", "+c"], "in cart.py it replaced `a / b` by `c`"),
        (["+x"] * 12, f"in cart.py it added `{' / '.join('x' * 12)}`"),
        (["+x"] * 13, "it changed cart.py"),
        ([" only context"], "it changed cart.py"),
    ],
)
def test_a_short_edit_is_quoted_in_a_playbook(lines: list[str], change: str):
    sources = StandInSources(patches={"sess_1": make_diff("cart.py", *lines)}, summaries={"sess_1": "Done."})
    effect = make_draft(LANDED_HEAL, sources=sources).effect
    assert effect.repairs == ("Done.", change)


def test_a_playbook_without_a_diff_names_the_files_of_the_message_and_at_most_four_changes():
    sources = StandInSources(files={"sess_1": list("abcde")}, summaries={"sess_1": f"{'Short. ' * 40}{'x' * 99}"})
    summary_only = make_draft(LANDED_HEAL, sources=sources).effect
    assert summary_only.repairs == (("Short. " * 40).strip(),), "it is cut after a sentence"
    sources.transcripts["sess_1"] = make_transcript(HANDED_BACK, ("say", HEALED_BY))
    effect = make_draft(LANDED_HEAL, sources=sources).effect
    assert effect.repairs == (HEALED_BY, *(f"it changed {name}" for name in "abcd"))


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


def make_sources_with_price(price: int) -> StandInSources:
    """Sources with another model of this price, where the current one costs 3,000,000."""
    return StandInSources(models_used=ModelsUsed(USED.current, "koji-core", (ModelPrice("openai:other", price),)))


def test_a_routing_hint_is_the_dearest_of_the_cheaper_models():
    effect = make_draft(OVER_BUDGET, sources=StandInSources(models_used=USED)).effect
    assert effect == RoutingHint(
        "openai:gpt-5-mini", "koji-core", 800,
        f"{AGENT} spent $1.20 of its $1.00 on 2026-01-05; openai:gpt-5-mini costs 80% less than openai:gpt-5",
    )  # fmt: skip


CONFLICT = make_record(RecordKind.TASK_CONFLICT, conflicting=["a.py", "b.py", "c.py", "d.py"])
ADOPTED = make_record(RecordKind.SUCCESSFUL_BUBBLE, leader="cto", pattern="small_steps")


@pytest.mark.parametrize(
    "learning_record, reason, workspace",
    [
        (OVER_BUDGET, f"{AGENT} spent $1.20 of its $1.00 on 2026-01-05", ""),
        (CONFLICT, f"the work of {AGENT} conflicted with other work in a.py, b.py, c.py", SHOP),
        (ADOPTED, f"{AGENT} does good work: cto adopted its finding small_steps", ""),
    ],
)
def test_a_routing_hint_says_why_and_is_for_the_workspace_of_a_conflict(
    learning_record: LearningRecord, reason: str, workspace: str
):
    draft = make_draft(learning_record, sources=StandInSources(models_used=USED), type=CandidateType.ROUTING_HINT)
    assert draft.effect.why.partition(";")[0] == reason
    assert (draft.agent_id, draft.run_kind, draft.workspace) == (AGENT, "task", workspace)


def test_a_model_is_cheaper_at_four_fifths_of_the_price():
    assert make_draft(OVER_BUDGET, sources=make_sources_with_price(2_400_000)).title.endswith("openai:other")
    with pytest.raises(NothingToDraft, match="no configured model is cheaper"):
        make_draft(OVER_BUDGET, sources=make_sources_with_price(2_400_001))


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


def test_a_limit_from_stale_guidance_is_drawn_by_the_failures_of_other_sessions():
    failures = [make_failed_retry("sess_1", attempts=9), make_failed_retry("sess_2", attempts=3)]
    sources, tweak = StandInSources(), CandidateType.POLICY_TWEAK
    draft = make_draft(make_record(RecordKind.STALE_GUIDANCE, "sess_1"), *failures, sources=sources, type=tweak)
    assert draft.effect == PolicyTweak(1)
    assert draft.title == f"Try a repair at most once: attempt 2 changed nothing for {AGENT}"
    with pytest.raises(NothingToDraft, match="no failed attempt here"):
        make_draft(make_record(RecordKind.STALE_GUIDANCE, "sess_1"), failures[0], sources=sources, type=tweak)


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


def test_a_fragment_from_a_kept_fact_is_the_fact():
    kept = make_record(
        RecordKind.HUMAN_APPROVAL, "sess_1", "human_approval/fact:preference", text="Prices are whole cents.",
        trust="quoted",
    )  # fmt: skip
    assert draft_guidance(kept, StandInSources()) == ("Prices are whole cents.",)


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


GUIDANCE = {"leader": "cto", "ref": "cto#patterns/x", "told": 12, "told_bad": 9, "untold": 14, "untold_bad": 2}


def test_a_fragment_from_noisy_or_stale_guidance_has_its_figures():
    sources = StandInSources(texts={"cto#patterns/x": "Mock everything."})
    (line,) = draft_guidance(make_record(RecordKind.GUIDANCE_NOISY, harm=0.2, **GUIDANCE), sources)
    assert "“Mock everything”. Of 12 sessions with it 9 ended badly, of 14 without it 2" in line
    stale = make_record(RecordKind.STALE_GUIDANCE, leader="cto", ref="cto#patterns/x", days=200, most=180)
    (line,) = draft_guidance(stale, sources)
    assert "200 days old, where 180 are the rule" in line
    with pytest.raises(NothingToDraft, match="no longer in use"):
        draft_guidance(stale, StandInSources())


RECALLED = make_record(RecordKind.CLOUD_MEMORY_RECALL_HIT, memory="mem_1")


def test_a_fragment_from_a_memory_is_the_memory():
    assert draft_guidance(RECALLED, StandInSources(texts={"mem_1": "Use uv."})) == ("Use uv.",)


@pytest.mark.parametrize(
    "learning_record, sources, reason",
    [
        (make_heal_record(), StandInSources(), f"session sess_1 fixed {TOTAL} but does not say how"),
        (make_heal_record(), StandInSources(running={"sess_1"}), "session sess_1 is still running"),
        (ERROR, StandInSources(running={"sess_1"}), "session sess_1 is still running"),
        (ERROR, StandInSources(), "no remedy is known for agent_error"),
        (OVER_BUDGET, StandInSources(), f"the price of the model of {AGENT} is not known"),
        (
            OVER_BUDGET,
            StandInSources(models_used=replace(USED, current=ModelPrice("ollama:x", 0))),
            "ollama:x costs nothing",
        ),
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
