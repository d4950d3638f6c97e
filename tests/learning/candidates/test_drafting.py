"""What a candidate would change comes from what happened, and from nothing else (SPEC 5.2, 5.4)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.learning.candidates.drafting import Draft, NothingToDraft, draft_candidate
from engine.learning.candidates.evaluation import Opportunity, types_of
from engine.learning.candidates.records import ModelPrice, ModelsUsed
from engine.model.adaptation import (
    MAX_PATCH,
    CandidateType,
    FixTemplate,
    FlowOffload,
    LearningRecord,
    PolicyTweak,
    PromptFragment,
    RecordKind,
    RoutingHint,
)
from tests.conftest import MONDAY_MORNING
from tests.learning.candidates.world import AGENT, HEALED_BY, SHOP, TOTAL, Told, lines


def record(kind: RecordKind, session: str = "sess_1", label: str = "", /, **details: Any) -> LearningRecord:
    return LearningRecord(
        f"rec_{session}", MONDAY_MORNING, kind, label or kind.value, "agent", AGENT, 80.0, "", SHOP, AGENT, session, 1,
        details,
    )  # fmt: skip


def heal(session: str = "sess_1", attempts: int = 2, cost: int = 100_000, failing: tuple[str, ...] = (TOTAL,)) -> Any:
    return record(
        RecordKind.SUCCESSFUL_HEAL, session, f"successful_heal/{failing[0]}", test=failing[0], failing=list(failing),
        attempts=attempts, cost=cost,
    )  # fmt: skip


def vain(session: str = "sess_1", attempts: int = 4, cost: int = 300_000) -> Any:
    return record(RecordKind.REPEATED_RETRY, session, attempts=attempts, cost=cost, failing=[TOTAL])


def drafted(
    learning_record: LearningRecord, *known: LearningRecord, told: Told, type: CandidateType | None = None
) -> Draft:
    return draft_candidate(
        Opportunity(type or types_of(learning_record.kind)[0], learning_record), [learning_record, *known], told
    )


# -- repairs

BACK = ("note", "1 test failed; back to the agent, try 1")


def diff(name: str, *lines: str, new: bool = False) -> str:
    """One file of a diff of git."""
    head = f"diff --git a/{name} b/{name}\nindex 1..2 100644\n--- {'/dev/null' if new else f'a/{name}'}\n+++ b/{name}\n"
    return head + "@@ -1,3 +1,3 @@ def total():\n" + "".join(f"{line}\n" for line in lines)


MEND = diff("cart.py", " def total():", "-    return net", "+    return net - discount")


def test_a_repair_is_what_the_agent_said_and_what_turned_the_tests_green() -> None:
    told = Told(patches={"sess_1": MEND + diff("new.py", "+x", new=True)})
    told.transcripts["sess_1"] = lines(
        ("say", "I add the discount."), ("tool", "edit readme.md:1"), BACK,
        ("say", "total() left the discount out;"), ("say", "it is subtracted now."),
        ("tool", "edit cart.py failed: no_match"), ("tool", "edit cart.py:4"), ("command", "pytest"), ("say", "Done."),
    )  # fmt: skip
    assert drafted(heal(failing=(TOTAL, "t.py::other")), told=told).effect == FixTemplate(
        (TOTAL, "t.py::other"),
        (HEALED_BY, "in cart.py it replaced `return net` by `return net - discount`", "it wrote new.py"),
        told.patches["sess_1"],
    )


def landed() -> LearningRecord:
    return record(
        RecordKind.SUCCESSFUL_HEAL, "sess_1", f"successful_heal/{TOTAL}", test=TOTAL, failing=[TOTAL], landed="chg_1",
        causes=["TypeError: no discount in cart.py"], project="shop", cost=0,
    )  # fmt: skip


def test_a_landed_fix_keeps_its_diff_and_the_cause() -> None:
    told = Told(patches={"sess_1": MEND}, summaries={"sess_1": "Subtract the discount."})
    assert drafted(landed(), told=told).effect == FixTemplate(
        (TOTAL,),
        ("Subtract the discount.", "in cart.py it replaced `return net` by `return net - discount`"),
        MEND,
        ("TypeError: no discount in cart.py",),
        "shop",
    )
    long = f"{MEND} {'x' * (MAX_PATCH - len(MEND) - 1)}"
    for patch, kept in ((long, long), (f"{long}x", ""), (f"{MEND}+token = '{SECRET}'\n", "")):
        told.patches["sess_1"] = patch
        effect = drafted(landed(), told=told).effect
        assert isinstance(effect, FixTemplate)
        assert effect.patch == kept


SECRET = "sk-a1b2c3d4a1b2c3d4a1b2c3d4a1b2c3d4"


# -- models

USED = ModelsUsed(
    ModelPrice("openai:gpt-5", 3_000_000), "koji-core",
    (
        ModelPrice("openai:gpt-5-mini", 600_000), ModelPrice("openai:gpt-5-nano", 100_000),
        ModelPrice("openai:like", 2_400_001),
    ),
    800,
)  # fmt: skip
OVER = record(RecordKind.BUDGET_INCIDENT, spent=1_200_000, budget=1_000_000, day="2026-01-05")


def test_a_hint_is_the_next_cheaper_model_that_is_configured() -> None:
    effect = drafted(OVER, told=Told(used=USED)).effect
    assert effect == RoutingHint(
        "openai:gpt-5-mini", "koji-core", 800,
        f"{AGENT} spent $1.20 of its $1.00 on 2026-01-05; openai:gpt-5-mini costs 80% less than openai:gpt-5",
    )  # fmt: skip


@pytest.mark.parametrize("price", [2_400_000, 2_400_001])
def test_a_model_is_cheaper_at_four_fifths_of_the_price(price: int) -> None:
    told = Told(used=ModelsUsed(USED.current, "koji-core", (ModelPrice("openai:other", price),)))
    if price <= 2_400_000:
        assert drafted(OVER, told=told).title.endswith("openai:other")
        return
    with pytest.raises(NothingToDraft, match="no configured model is cheaper"):
        drafted(OVER, told=told)


# -- bounds


@pytest.mark.parametrize(
    ("records", "tries", "tweak"),
    [
        ([vain()], 3, PolicyTweak(1)),
        ([vain(attempts=3)], 3, PolicyTweak(1)),
        ([vain(attempts=2)], 3, None),  # one try is what it takes to see
        ([vain()], 1, None),  # the settings allow no more
        ([vain(), heal("sess_2")], 3, PolicyTweak(1, 150_000)),
        ([vain(), heal("sess_2", attempts=3)], 3, PolicyTweak(2, 150_000)),
        ([vain(), heal("sess_2", attempts=4)], 3, None),  # a heal took as many
        ([vain(cost=140_000), heal("sess_2")], 3, PolicyTweak(1)),  # the cap would save nothing
        ([vain(), heal("sess_2", cost=0)], 3, PolicyTweak(1, 50_000)),
    ],
)
def test_a_bound_is_what_heals_took_and_less_than_was_tried_in_vain(
    records: list[LearningRecord], tries: int, tweak: PolicyTweak | None
) -> None:
    told = Told(max_attempts=tries)
    if tweak is None:
        with pytest.raises(NothingToDraft):
            drafted(*records, told=told)
        return
    assert drafted(*records, told=told).effect == tweak


# -- fragments


def said(learning_record: LearningRecord, told: Told, *known: LearningRecord) -> tuple[str, ...]:
    effect = drafted(learning_record, *known, told=told, type=CandidateType.PROMPT_FRAGMENT).effect
    assert isinstance(effect, PromptFragment)
    return effect.guidance


def test_an_edit_is_told_in_the_operators_words() -> None:
    edit = record(
        RecordKind.HUMAN_APPROVAL, "sess_1", "human_approval/edited:koji-core:run-tests", added="and run the tests",
        channel="koji-core", kind="fix",
    )  # fmt: skip
    with pytest.raises(NothingToDraft, match="about a single case"):
        said(edit, Told())
    assert said(edit, Told(), edit, edit) == said(edit, Told(), edit, edit, edit) == ("run the tests",)
    every = replace(edit, details={**edit.details, "added": "Docs end with a full stop."})
    assert said(every, Told()) == ("Docs end with a full stop",)
    kept = record(
        RecordKind.HUMAN_APPROVAL, "sess_1", "human_approval/fact:preference", text="Prices are whole cents.",
        trust="quoted",
    )  # fmt: skip
    assert said(kept, Told()) == ("Prices are whole cents.",)


ERROR = record(RecordKind.AGENT_ERROR, tool="edit", message="no_match: the old text is not in src/a.py")


def test_an_error_is_told_with_what_worked_then() -> None:
    told = Told(learnt={"sess_1": ["Actually the file uses tabs."]})
    told.transcripts["sess_1"] = lines(
        ("tool", "edit src/a.py:1"), ("tool", "edit src/a.py failed: the old text is not in src/a.py"),
        ("tool", "read src/a.py"), ("tool", "edit src/a.py failed: something else"), ("tool", "edit src/a.py:7"),
    )  # fmt: skip
    line, learnt = said(ERROR, told)
    assert line.startswith("A call of edit failed: “the old text is not in src/a.py”. What worked then: ")
    assert line.endswith("`read src/a.py`, `edit src/a.py:7`.")
    assert learnt == "Actually the file uses tabs."
    told.transcripts["sess_1"] = told.transcripts["sess_1"][:3]
    assert "What worked then: `read src/a.py`" in said(ERROR, told)[0]


GUIDANCE = {"leader": "cto", "ref": "cto#patterns/x", "told": 12, "told_bad": 9, "untold": 14, "untold_bad": 2}


def test_noisy_and_stale_guidance_is_told_with_its_figures() -> None:
    told = Told(said={"cto#patterns/x": "Mock everything."})
    (line,) = said(record(RecordKind.GUIDANCE_NOISY, harm=0.2, **GUIDANCE), told)
    assert "“Mock everything”. Of 12 sessions with it 9 ended badly, of 14 without it 2" in line
    stale = record(RecordKind.STALE_GUIDANCE, leader="cto", ref="cto#patterns/x", days=200, most=180)
    (line,) = said(stale, told)
    assert "200 days old, where 180 are the rule" in line
    with pytest.raises(NothingToDraft, match="no longer in use"):
        said(stale, Told())


# -- flows

CALLS = ["exec:git status", "exec:pytest", "exec:git diff"]


def test_a_flow_runs_what_most_sessions_ran_word_for_word() -> None:
    steps = record(RecordKind.TOOL_SEQUENCE, calls=CALLS, sessions=["sess_1", "sess_2", "sess_3"])
    told = Told()
    for session, ran in (("sess_1", "pytest -q"), ("sess_2", "pytest -q"), ("sess_3", "pytest -x tests")):
        told.transcripts[session] = lines(
            ("tool", "exec git status --short"), ("tool", f"exec {ran}"), ("tool", "exec git diff"),
        )  # fmt: skip
    assert drafted(steps, told=told).effect == FlowOffload(
        "git_status_then_pytest_then_git_diff", "git status --short > pytest -q > git diff",
        ("git status --short", "pytest -q", "git diff"),
    )  # fmt: skip
    with pytest.raises(NothingToDraft, match="without a shell"):
        drafted(steps, told=Told())


KEY = "sk-" + "a1b2c3d4" * 4


@pytest.mark.parametrize("secret", [KEY, "hunter2hunter2"])
def test_no_secret_is_drafted(secret: str) -> None:
    """A coding agent's transcript is its own: what stands there may be anything."""
    told = Told(
        patches={"sess_1": diff("cart.py", "-token = read()", f"+token = '{secret}'")}, keys=("hunter2hunter2",)
    )
    told.transcripts["sess_1"] = lines(BACK, ("say", f"It wanted {secret}."))
    one = Opportunity(CandidateType.FIX_TEMPLATE, heal())
    effect = draft_candidate(one, [one.record], told).effect
    assert isinstance(effect, FixTemplate)
    assert effect.repairs[0] == "It wanted [secret cut]."
    assert secret not in " ".join(effect.repairs)
    steps = record(RecordKind.TOOL_SEQUENCE, calls=["exec:curl", "exec:git status"], sessions=["sess_1", "sess_2"])
    for session in ("sess_1", "sess_2"):
        told.transcripts[session] = lines(("tool", f"exec curl -u ann:{secret} host"), ("tool", "exec git status"))
    with pytest.raises(NothingToDraft, match="a key or a password"):
        draft_candidate(Opportunity(CandidateType.FLOW_OFFLOAD, steps), [steps], told)
