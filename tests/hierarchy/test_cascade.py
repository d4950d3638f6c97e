"""Guidance as a service: which chain, kept until something changes, told with its provenance (SPEC 1.4, 1.5, 1.10)."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.clock import FakeClock
from engine.execution.prompt_assembly import PromptAssembly
from engine.hierarchy.cascade import LeadershipGuidance
from engine.hierarchy.tiers import Stop, climb_chain
from engine.model import Guidance, PromptRequest, Refusal
from engine.storage.database import Database
from engine.storage.ledger import Ledger
from tests.hierarchy.guidance_world import World, edit_profile, learning, make_world


@pytest.fixture
def world(tmp_path: Path, database: Database, clock: FakeClock) -> World:
    return make_world(tmp_path, database, clock)


def said(guidance: Guidance) -> set[str]:
    return {item.text for hop in guidance.hops for item in hop.kept}


def test_a_worker_hears_its_chain_and_leaders_hear_nobody(world: World) -> None:
    worker = world.cascade.guidance("worker")
    assert worker.chain == ("lead", "cto", "ceo")
    assert [hop.leader for hop in worker.hops if hop.kept] == ["lead", "cto", "ceo"]
    assert "lead chose SQLite." in said(worker)
    assert "cto chose SQLite." not in said(worker)
    assert "cto_first: Write the test before the code of cto." in said(worker)
    assert "ceo_first: Write the test before the code of ceo." not in said(worker)
    lead = world.cascade.guidance("lead")
    assert (lead.block, lead.reason) == ("", "tier 3 leads and receives no guidance")


def test_cycles_missing_and_broken_leaders_end_the_walk(world: World) -> None:
    world.member("cto", "lead", 2)  # an edit outside: lead → cto → lead
    circle = world.cascade.guidance("worker")
    assert circle.chain == ("lead", "cto")
    assert "circle" in circle.chain_end
    (world.folder / "cto" / "comms.json").write_text("{")
    broken = world.cascade.guidance("worker")
    assert broken.chain == ("lead",)
    assert "cto does not exist" in broken.chain_end
    assert broken.block
    world.member("worker", "gone", 4)
    alone = world.cascade.guidance("worker")
    assert (alone.chain, alone.block) == ((), "")
    assert "gone does not exist" in alone.reason


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.sampled_from([*"abcdefg", "owner"]), max_size=6), st.integers(1, 9)
)
def test_every_walk_ends_and_says_why(reports_to: dict[str, str], depth: int) -> None:
    asked: list[str] = []

    def leader_of(text: str) -> str | None:
        asked.append(text)
        return reports_to.get(text)

    chain = climb_chain("a", leader_of, depth=depth)
    assert len(chain.leaders) == len(set(chain.leaders)) <= depth
    assert "a" not in chain.leaders
    assert len(asked) <= len(chain.leaders) + 2
    assert (chain.stop is Stop.OWNER) == (chain.at == "owner")


def test_what_is_kept_is_the_same_object_until_its_time_is_over(world: World, clock: FakeClock) -> None:
    world.configure(m1_cache_ttl_seconds=300)
    first = world.cascade.guidance("worker")
    clock.advance(timedelta(seconds=299))
    assert world.cascade.guidance("worker") is first
    clock.advance(timedelta(seconds=1))
    assert world.cascade.guidance("worker") is not first
    world.configure(m1_cache_ttl_seconds=0)
    assert world.cascade.guidance("worker") is not world.cascade.guidance("worker")


def test_most_used_patterns_come_first_then_the_newest(world: World, clock: FakeClock) -> None:
    def keys() -> list[str]:
        return [pattern.key for pattern in world.profiles.get("lead").patterns]

    for key in ("old", "mid", "new"):
        edit_profile(world.profiles, "lead", "patterns", key=key, value=f"do it the {key} way")
        clock.advance(timedelta(days=1))
    assert keys() == ["new", "mid", "old", "lead_first"]
    world.database.write(lambda tx: world.profiles.record_uses(tx, [("lead", "old")]))
    assert keys() == ["old", "new", "mid", "lead_first"]


def test_every_change_counts_at_once(world: World) -> None:
    assert world.cascade.guidance("worker").tokens
    world.member("lead", "ceo", 3)
    assert world.cascade.guidance("worker").chain == ("lead", "ceo")
    world.agents.move("worker", "cto")
    assert world.cascade.guidance("worker").chain == ("cto", "ceo")
    (world.folder / "cto" / "soul.md").write_text("## Principles\n- Be kind.\n")
    assert "Be kind." in said(world.cascade.guidance("worker"))
    edit_profile(world.profiles, "cto", "principles", value=["Be brief."])
    assert "Be brief." in said(world.cascade.guidance("worker"))
    assert "Be kind." not in said(world.cascade.guidance("worker"))
    world.agents.assign_tier("ceo", 4)
    assert [hop.leader for hop in world.cascade.guidance("worker").hops if hop.kept] == ["cto"]
    world.configure(enable_m1=False)
    assert world.cascade.guidance("worker").reason == "enable_m1 is off in wisdom_cascade_config.json"
    world.configure(m1_token_budget=10)
    assert world.cascade.guidance("worker").reason == "no room within m1_token_budget"


def test_a_move_is_shown_before_it_is_made_and_refused_alike(world: World) -> None:
    preview = world.cascade.preview_move("worker", "ceo")
    assert preview.before.chain == ("lead", "cto", "ceo")
    assert preview.after.chain == ("ceo",)
    assert "ceo chose SQLite." in said(preview.after)
    assert world.cascade.guidance("worker").chain == ("lead", "cto", "ceo")
    with pytest.raises(Refusal) as circle:
        world.cascade.preview_move("worker", "junior")
    assert circle.value.code == "circle"
    with pytest.raises(Refusal) as nobody:
        world.cascade.guidance("nobody")
    assert nobody.value.code == "unknown_agent"


def test_a_prompt_carries_the_block_with_a_source_for_each_line(world: World) -> None:
    assert world.bubbles.offer(learning()).pattern == ""
    world.bubbles.flush()
    assembly = PromptAssembly([LeadershipGuidance(world.cascade)])
    prompt = assembly.assemble(PromptRequest("worker", "koji-core", "/w", "fix", session_id="ses_9"))
    assert prompt.text("system") == world.cascade.guidance("worker").block
    told = prompt.provenance
    assert told["leadership_chain"] == ["lead", "cto", "ceo"]
    assert told["guidance_sources"] == ["lead", "cto", "ceo"]
    assert told["bubble_source_ids"] == ["worker"]
    assert told["guidance_applied"] is True
    assert json.loads(json.dumps(told)) == told
    assert world.kinds().count("GuidanceApplied") == 0  # a prompt that nobody was sent
    world.call("worker", "ses_9", "call_7")
    [event] = Ledger(world.database).latest(kinds=("GuidanceApplied",))
    assert (event.subject, event.payload["session_id"], event.payload["call"]) == ("worker", "ses_9", "call_7")
    kept = {item.ref: item.wording for hop in world.cascade.guidance("worker").hops for item in hop.kept}
    assert dict(zip(event.payload["items"], event.payload["wordings"], strict=True)) == kept
    assert event.payload["tokens"] == world.cascade.guidance("worker").tokens
    counted = {pattern.key: pattern.uses for pattern in world.profiles.get("lead").patterns}
    assert set(counted.values()) == {1}
    none = assembly.assemble(PromptRequest("lead", "koji-core", "/w", "fix"))
    assert none.parts == ()
    assert none.provenance["guidance_applied"] is False


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=200))
def test_no_soul_breaks_the_block(world: World, soul: str) -> None:
    from xml.etree import ElementTree

    (world.folder / "lead" / "soul.md").write_bytes(b"## Principles\n" + soul.encode(errors="surrogatepass"))
    block = world.cascade.guidance("worker").block
    assert ElementTree.fromstring(block).tag == "leadership-guidance"
