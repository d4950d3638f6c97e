"""Active fragments in prompts: within their budget, escaped, and withheld by chance."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import tokenizer
from engine.clock import FakeClock
from engine.execution.prompts import PromptAssembly, RulesPart
from engine.learning.candidates.overlays import BLOCK, fragment_lines
from engine.model import PromptRequest, SourceKind
from engine.model.adaptation import CandidateType, Overlay, PromptFragment
from engine.storage.database import Database
from tests.learning.candidates.overlay_world import World


@pytest.fixture
def world(database: Database, clock: FakeClock) -> World:
    world = World(database, clock)
    world.adapt(withheld=0.0)
    return world


def text(world: World, session: str = "") -> str:
    part = world.part(session).part
    return part.text if part else ""


def test_a_fragment_is_in_the_prompt_until_it_is_rolled_back(world: World) -> None:
    prompts = PromptAssembly([RulesPart(), world.fragments])
    request = PromptRequest("cto", "koji-core", "/w", "do it", session_id="ses_1")
    before = prompts.assemble(request)
    overlay = world.guide("Prefer <concrete> patterns.", agent="cto", run_kind="task")
    with_it = prompts.assemble(request)
    assert with_it.text("system").startswith(before.text("system"))
    assert "- Prefer &lt;concrete&gt; patterns. (approved by the operator)" in with_it.text("system").splitlines()
    assert with_it.provenance["overlays"] == [
        {"id": overlay.id, "candidate": overlay.candidate_id, "withheld": False, "propensity": 0.0}
    ]
    (line,) = [line for part in with_it.parts for line in part.lines if line.source.kind is SourceKind.OVERLAY]
    assert line.source.ref == overlay.candidate_id
    world.roll_back(overlay.candidate_id)
    after = prompts.assemble(request)
    assert after == before


@given(st.lists(st.text(min_size=1, max_size=60), min_size=1, max_size=4))
@settings(max_examples=60, deadline=None)
def test_no_text_can_close_the_block(lines: list[str]) -> None:
    overlay = Overlay("over_1", "cand_1", CandidateType.PROMPT_FRAGMENT, "", "", "", PromptFragment(tuple(lines)), None)  # type: ignore[arg-type]
    for line in fragment_lines(overlay):
        assert line.text.startswith("- ")
        assert "<" not in line.text
        assert "\x1b" not in line.text


def test_the_oldest_fragments_are_left_out_over_budget_with_a_note(world: World) -> None:
    for number in range(4):
        world.guide(f"Fragment {number}: " + "keep every function short and every name telling. " * 6)
    empty = tokenizer.count(f"<{BLOCK}>") + tokenizer.count(f"</{BLOCK}>")
    everything = world.part()
    assert everything.part is not None
    fragment_tokens = (tokenizer.count(everything.part.text) - empty) // 4
    world.adapt(withheld=0.0, fragmentTokens=2 * fragment_tokens + 60)
    contribution = world.part()
    assert contribution.part is not None
    assert tokenizer.count(contribution.part.text) <= 2 * fragment_tokens + 60
    assert [line.text[:12] for line in contribution.part.lines[2:-1]] == ["- Fragment 2", "- Fragment 3"]
    assert contribution.notes == ("learned guidance: 2 of 4 fragments had no room",)
    world.adapt(withheld=0.0, fragmentTokens=0)
    assert world.part().part is None
    assert world.part().provenance == {}, "what no prompt had room for is on no trial"


def test_a_fragment_is_withheld_from_all_prompts_of_a_share_of_the_sessions(world: World) -> None:
    world.adapt(withheld=0.2)
    first, second = world.guide("First."), world.guide("Second.")
    texts = {f"ses_{number}": text(world, f"ses_{number}") for number in range(400)}
    without = [session for session, words in texts.items() if "First." not in words]
    assert 50 <= len(without) <= 110
    assert any("Second." in texts[session] for session in without), "each is drawn apart"
    for session in list(texts)[:20]:
        assert text(world, session) == texts[session]
        lacks = [word for word in ("First.", "Second.") if word not in texts[session]]
        words = f"learned guidance: {len(lacks)} of 2 left out by chance, to measure what it does"
        assert world.part(session).notes == ((words,) if lacks else ())
        draws = {draw["id"]: draw for draw in world.part(session).provenance["overlays"]}
        assert draws[first.id]["withheld"] is ("First." not in texts[session])
        assert draws[second.id]["propensity"] == 0.2
    assert "First." in text(world), "what belongs to no run has everything"
