"""Shared values: money, ids, digests, and text from strangers."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model import Assignment, PartOfDay, Proposal, Randomness, part_of_day, sanitise
from engine.model.base import dollars, microusd
from engine.model.secrets import redact


@pytest.mark.parametrize(
    ("hour", "part"),
    [
        (4, PartOfDay.NIGHT),
        (5, PartOfDay.MORNING),
        (11, PartOfDay.MORNING),
        (12, PartOfDay.AFTERNOON),
        (17, PartOfDay.AFTERNOON),
        (18, PartOfDay.EVENING),
        (22, PartOfDay.EVENING),
        (23, PartOfDay.NIGHT),
    ],
)
def test_parts_of_the_day(hour: int, part: PartOfDay) -> None:
    assert part_of_day(datetime(2026, 1, 5, hour, 59, tzinfo=UTC)) is part


@given(st.integers(min_value=0, max_value=10**9))
def test_money_survives_the_way_to_dollars_and_back(amount: int) -> None:
    assert microusd(dollars(amount)) == amount


def test_ids_repeat_with_a_seed_and_never_without() -> None:
    assert Randomness(7).new_id("pred") == Randomness(7).new_id("pred")
    assert Randomness().new_id("pred") != Randomness().new_id("pred")
    assert Randomness(7).new_id("pred").startswith("pred_")


def test_ids_of_one_kind_do_not_depend_on_who_drew_others_meanwhile() -> None:
    alone, beside = Randomness(7), Randomness(7)
    beside.new_id("task")
    assert beside.uniform() == alone.uniform()
    beside.new_id("task")
    assert beside.new_id("sess") == alone.new_id("sess") != Randomness(8).new_id("sess")


def test_any_edit_changes_the_digest() -> None:
    asked = Assignment("run tests", "koji-core", "/shop", "flow", "run_tests", {"paths": ["a.py"]})
    edits = [
        dataclasses.replace(asked, prompt="run Tests"),
        dataclasses.replace(asked, channel="research"),
        dataclasses.replace(asked, workspace="/other"),
        dataclasses.replace(asked, runner="acp"),
        dataclasses.replace(asked, flow=None),
        dataclasses.replace(asked, parameters={"paths": ["b.py"]}),
    ]
    assert len({asked.digest, *(edit.digest for edit in edits)}) == 7
    assert dataclasses.replace(asked, parameters={"paths": ["a.py"]}).digest == asked.digest


def test_the_same_facts_give_the_same_fingerprint_in_any_order() -> None:
    def proposal(facts: dict[str, object]) -> Proposal:
        return Proposal("lint", "/shop", "Lint", "because", "main", facts, "lint")

    assert proposal({"a": 1, "b": 2}).fingerprint == proposal({"b": 2, "a": 1}).fingerprint
    assert proposal({"a": 1}).fingerprint != proposal({"a": 2}).fingerprint


@pytest.mark.parametrize(
    ("hostile", "harmless"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;owned\x07title", "title"),
        ("\x1b]52;c;aGFoYQ==\x1b\\clip", "clip"),
        ("\x1bPq#0;2;0;0;0\x1b\\sixel", "sixel"),
        ("back\x08space\rreturn", "backspacereturn"),
        ("user\u202egpj.exe", "usergpj.exe"),
        ("a\tb", "a   b"),
        ("\x9b31mC1", "31mC1"),
        ("two\nlines", "two\nlines"),
    ],
)
def test_escapes_and_controls_never_reach_a_terminal(hostile: str, harmless: str) -> None:
    assert sanitise(hostile) == harmless


@given(st.text())
def test_sanitising_twice_changes_nothing_and_leaves_no_control(text: str) -> None:
    once = sanitise(text)
    assert sanitise(once) == once
    assert not any((ord(char) < 32 and char != "\n") or 127 <= ord(char) < 160 for char in once)


@pytest.mark.parametrize("piece", ["a.", "a-", "-eyJaaaaaaaaaaa", "://a:", "://a", "ya29."])
def test_a_hostile_line_is_searched_for_secrets_in_one_pass(piece: str) -> None:
    line = piece * (400_000 // len(piece))
    assert redact(line) == line, "in time that grows with its square this would not end"


def test_what_stands_for_a_password_in_an_address_is_cut_out() -> None:
    assert redact("git clone https://me:hunter2@box/repo") == "git clone https://me:[secret cut]@box/repo"
    assert redact("postgresql+psycopg://u:p4ss@h/d") == "postgresql+psycopg://u:[secret cut]@h/d"
    assert redact("see https://box:8080/a@b") == "see https://box:8080/a@b"
    assert redact(f"Authorization: Bearer {'eyJhbGciOiJIUzI1NiJ9' * 2}.x") == "Authorization: Bearer [secret cut]"
