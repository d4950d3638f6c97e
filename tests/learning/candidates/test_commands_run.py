"""Which commands a sequence of calls stands for: those that sessions ran for it, word for word (SPEC 5.4)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from engine.learning.candidates.reading import commands_run
from engine.model import TranscriptLine

CALLS = ("exec:git status", "exec:ls tests", "exec:python")


def session(*commands: str) -> Sequence[TranscriptLine]:
    at = datetime(2026, 3, 2, tzinfo=UTC)
    return [TranscriptLine(number, at, "tool", f"exec {one}") for number, one in enumerate(commands)]


def test_the_commands_of_the_place_where_they_follow_each_other() -> None:
    often = session("git status", "make", "git status --short", "ls tests", "python3 -m compileall -q shop")
    once = session("git status -s", "ls tests", "/usr/bin/python3.12 -V", "git status", "git status")
    assert commands_run([often, often, once], CALLS) == (
        "git status --short", "ls tests", "python3 -m compileall -q shop",
    )  # fmt: skip


def test_what_needs_a_shell_or_is_not_told_whole_stands_for_nothing() -> None:
    piped = session("git status | head", "ls tests", "python3 -V")
    broken = session("git status", "make", "ls tests", "python3 -V")
    assert commands_run([piped, broken], CALLS) == ()
    assert commands_run([], CALLS) == ()
