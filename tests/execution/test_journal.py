"""What is kept of an agent's commands says what it did, and nothing that might be private (SPEC 5.1)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.execution.journal import command_used


@pytest.mark.parametrize(
    ("programs", "recorded"),
    [
        ((), "exec"),
        (("git status --short",), "exec:git status"),
        (("/usr/bin/python3.12 -m pytest",), "exec:python3.12"),
        (("pytest tests/test_money.py",), "exec:pytest"),
        (("curl https://me:secret@example.org",), "exec:curl"),
        (("TOKEN=abc",), "exec"),
        (("cargo build", "rm -r x"), "exec:cargo build"),
    ],
)
def test_a_command_is_its_program_and_a_plain_word(programs: tuple[str, ...], recorded: str) -> None:
    assert command_used(programs) == recorded


@given(st.lists(st.text(max_size=80), max_size=3))
def test_whatever_was_run_the_record_is_short_and_plain(programs: list[str]) -> None:
    recorded = command_used(programs)
    assert len(recorded) < 80
    assert recorded.isascii()
    assert recorded.isprintable()
