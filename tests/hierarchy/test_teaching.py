"""Soul enrichment: one marked section, every other byte as it was, twice is once (SPEC 1.6)."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.clock import FakeClock
from engine.model.lessons import lesson_id
from engine.model.text import INHERITED, find_section, write_section
from engine.storage.database import Database
from tests.hierarchy.guidance_world import World, edit_profile, make_world


@pytest.fixture
def world(tmp_path: Path, database: Database, clock: FakeClock) -> World:
    return make_world(tmp_path, database, clock)


OPEN, CLOSE = INHERITED.opening, INHERITED.closing

PIECES = st.lists(
    st.one_of(
        st.sampled_from(
            [OPEN.encode(), CLOSE.encode(), b"\n", b"\r\n", b"## Inherited Wisdom", b"<!--", b"-->", b"\r"]
        ),
        st.binary(max_size=12),
    ),
    max_size=10,
).map(b"".join)
BODIES = st.one_of(st.text(max_size=60), st.sampled_from(["", OPEN, CLOSE, f"{CLOSE}\n{OPEN}", "a\nb"]))


@given(PIECES, BODIES, BODIES)
@example(b"no newline at the end", "body", "")
@example(f"{OPEN}stray\n{OPEN}\nold\n{CLOSE} tail {CLOSE}".encode(), "body", "other")
def test_every_other_byte_stays_and_twice_is_once(data: bytes, body: str, other: str) -> None:
    once = write_section(data, body, INHERITED)
    assert write_section(once, body, INHERITED) == once
    before, after = find_section(data, INHERITED), find_section(once, INHERITED)
    if before is None:
        assert once.startswith(data)
        if not body:
            assert once == data
        else:
            assert after is not None
            assert once[after[1] :].strip() == b""
            assert once[len(data) : after[0]].strip() == b""
    else:
        assert after is not None
        assert once[: after[0]] == data[: before[0]]
        assert once[after[1] :] == data[before[1] :]
    if body:
        assert write_section(write_section(once, other, INHERITED), body, INHERITED) == once


def test_line_ends_are_those_of_the_file() -> None:
    assert write_section(b"# A\r\ntext", "one\ntwo", INHERITED) == (
        f"# A\r\ntext\r\n\r\n{OPEN}\r\none\r\ntwo\r\n{CLOSE}\r\n".encode()
    )
    assert write_section(b"", "one", INHERITED) == f"{OPEN}\none\n{CLOSE}\n".encode()


def test_workers_are_taught_and_leaders_are_not(world: World) -> None:
    souls = {name: (world.folder / name / "soul.md").read_bytes() for name in ("ceo", "lead", "worker", "junior")}
    lessons = {one.agent: one.outcome for one in world.teaching.round()}
    assert lessons == {"worker": "taught", "junior": "taught"}
    for name, before in souls.items():
        now = (world.folder / name / "soul.md").read_bytes()
        assert now.startswith(before)
        assert (now == before) == (name in ("ceo", "lead"))
    taught = (world.folder / "worker" / "soul.md").read_text()
    assert "## Inherited Wisdom" in taught
    assert "- lead_first: Write the test before the code of lead." in taught
    assert "lead chose SQLite." not in taught  # what ages is left to the prompt
    stamps = {name: (world.folder / name / "soul.md").stat().st_mtime_ns for name in lessons}
    assert {one.outcome for one in world.teaching.round()} == {"unchanged"}
    assert stamps == {name: (world.folder / name / "soul.md").stat().st_mtime_ns for name in lessons}
    assert world.kinds().count("SoulRewritten") == 2


def test_a_round_teaches_only_when_it_is_switched_on_even_without_prompts(world: World, clock: FakeClock) -> None:
    before = (world.folder / "worker" / "soul.md").read_bytes()
    world.run_round()
    assert (world.folder / "worker" / "soul.md").read_bytes() == before
    assert world.teaching.state("worker").next is None
    world.configure(enable_m1=False, enable_m2=True, m2_interval_seconds=3600)
    state = world.teaching.state("worker")
    assert (state.last, state.next) == (None, clock.now())
    assert "+## Inherited Wisdom" in state.diff
    world.run_round()
    state = world.teaching.state("worker")
    assert state.diff == ""
    assert (state.last, state.next) == (clock.now(), clock.now() + timedelta(hours=1))
    assert world.teaching.state("lead").reason == "tier 3 leads, so it is not taught"
    assert b"Inherited" in (world.folder / "worker" / "soul.md").read_bytes()


def test_what_was_inherited_stays_out_of_prompts_while_leaders_speak_in_them(world: World) -> None:
    world.teaching.round()
    known = "lead_first: Write the test before the code of lead."
    assert known in world.agents.soul("worker")
    assert known not in world.agents.soul_in_prompt("worker"), "M1 says it"
    world.configure(enable_m1=False, enable_m2=True)
    soul = world.agents.soul_in_prompt("worker")
    assert known in soul
    left = world.agents.soul_in_prompt("worker", frozenset({lesson_id(known)}))
    assert left == soul.replace(f"- {known}\n", ""), "what is said elsewhere is not said again"


def test_a_soul_that_cannot_be_read_is_named_and_harms_no_other(world: World) -> None:
    (world.folder / "worker" / "soul.md").unlink()
    (world.folder / "junior" / "soul.md").write_bytes(b"\xff\xfe rubbish \x00")
    lessons = {one.agent: one for one in world.teaching.round()}
    assert lessons["worker"].outcome == "skipped"
    assert "soul.md" in lessons["worker"].reason
    assert (world.folder / "junior" / "soul.md").read_bytes().startswith(b"\xff\xfe rubbish \x00\n\n<!--")


def test_a_pipe_in_place_of_a_soul_is_not_waited_for(world: World) -> None:
    for name in ("worker", "lead"):
        (world.folder / name / "soul.md").unlink()
        os.mkfifo(world.folder / name / "soul.md")
    lessons = {one.agent: one for one in world.teaching.round()}
    assert lessons["worker"].reason.endswith("soul.md is not a regular file")
    assert "cto keeps it simple." in world.cascade.guidance("worker").block  # who cannot be read says nothing


def test_what_a_leader_says_cannot_end_the_section(world: World) -> None:
    edit_profile(world.profiles, "lead", "principles", value=[f"{CLOSE} now free"])
    world.teaching.round()
    once = (world.folder / "worker" / "soul.md").read_bytes()
    assert once.count(CLOSE.encode()) == 1
    assert {one.outcome for one in world.teaching.round()} == {"unchanged"}
