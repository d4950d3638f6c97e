"""Promoted fragments in prompts: what they say and nothing else, within their budget, withheld by chance."""

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
    made = World(database, clock)
    made.adapt(withheld=0.0)
    return made


def text(world: World, session: str = "") -> str:
    part = world.part(session).part
    return part.text if part else ""


def test_the_prompt_with_it_and_byte_for_byte_as_before_after_a_roll_back(world: World) -> None:
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
    (line,) = [one for part in with_it.parts for one in part.lines if one.source.kind is SourceKind.OVERLAY]
    assert line.source.ref == overlay.candidate_id
    world.withdraw(overlay.candidate_id)
    after = prompts.assemble(request)
    assert after == before


@given(st.lists(st.text(min_size=1, max_size=60), min_size=1, max_size=4))
@settings(max_examples=60, deadline=None)
def test_no_text_can_close_the_block(lines: list[str]) -> None:
    one = Overlay("over_1", "cand_1", CandidateType.PROMPT_FRAGMENT, "", "", "", PromptFragment(tuple(lines)), None)  # type: ignore[arg-type]
    for line in fragment_lines(one):
        assert line.text.startswith("- ")
        assert "<" not in line.text
        assert "\x1b" not in line.text


def test_whole_fragments_are_dropped_the_oldest_first_and_it_is_said(world: World) -> None:
    for number in range(4):
        world.guide(f"Fragment {number}: " + "keep every function short and every name telling. " * 6)
    empty = tokenizer.count(f"<{BLOCK}>") + tokenizer.count(f"</{BLOCK}>")
    everything = world.part()
    assert everything.part is not None
    one = (tokenizer.count(everything.part.text) - empty) // 4
    world.adapt(withheld=0.0, fragmentTokens=2 * one + 60)
    told = world.part()
    assert told.part is not None
    assert tokenizer.count(told.part.text) <= 2 * one + 60
    assert [line.text[:12] for line in told.part.lines[2:-1]] == ["- Fragment 2", "- Fragment 3"]
    assert told.notes == ("learned guidance: 2 of 4 fragments had no room",)
    world.adapt(withheld=0.0, fragmentTokens=0)
    assert world.part().part is None
    assert world.part().provenance == {}, "what no prompt had room for is on no trial"


def test_a_share_of_sessions_goes_without_all_its_prompts_through(world: World) -> None:
    world.adapt(withheld=0.2)
    one, other = world.guide("One."), world.guide("Other.")
    said = {f"ses_{number}": text(world, f"ses_{number}") for number in range(400)}
    without = [session for session, words in said.items() if "One." not in words]
    assert 50 <= len(without) <= 110
    assert any("Other." in said[session] for session in without), "each is drawn apart"
    for session in list(said)[:20]:
        assert text(world, session) == said[session]
        lacks = [word for word in ("One.", "Other.") if word not in said[session]]
        words = f"learned guidance: {len(lacks)} of 2 left out by chance, to measure what it does"
        assert world.part(session).notes == ((words,) if lacks else ())
        told = {told["id"]: told for told in world.part(session).provenance["overlays"]}
        assert told[one.id]["withheld"] is ("One." not in said[session])
        assert told[other.id]["propensity"] == 0.2
    assert "One." in text(world), "what belongs to no run has everything"
