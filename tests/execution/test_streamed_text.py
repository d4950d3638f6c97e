"""Text that streams is shown word by word, complete and without its secrets (SPEC 3.8, 11.1)."""

from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.clock import FakeClock
from engine.execution import transcripts
from engine.execution.transcripts import (
    MAX_PENDING,
    StreamedText,
    TranscriptWriter,
)
from engine.model.secrets import CUT, MAX_KEY_CHARS


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "transcript.jsonl"


@pytest.mark.long
@given(st.lists(st.tuples(st.sampled_from(["say", "thought"]), st.text("ab \n", max_size=30) | st.text()), max_size=20))
def test_streamed_text_is_complete(pieces: list[tuple[str, str]]):
    lines = []
    streamed = StreamedText(lambda kind, text: lines.append((kind, text)), tuple)
    for kind, text in pieces:
        streamed.add(kind, text)
    streamed.flush()
    for kind in ("say", "thought"):
        written, added = ("".join(text for line_kind, text in texts if line_kind == kind) for texts in (lines, pieces))
        assert "".join(written.split()) == "".join(added.split())


@pytest.mark.parametrize("text", ["x " * 100_000, "x" * 200_000])
def test_a_huge_piece_of_text_is_split_in_time_that_grows_with_its_length(text: str, monkeypatch: pytest.MonkeyPatch):
    cleaned = 0
    lines = []

    def count_cleaned(part: str, secrets: Iterable[str]) -> str:
        nonlocal cleaned
        cleaned += len(part)
        return part

    monkeypatch.setattr(transcripts, "redact", count_cleaned)
    streamed = StreamedText(lambda kind, line: lines.append(line), tuple)
    streamed.add("say", text)
    streamed.flush()
    assert "".join(lines).split() == text.split() or "".join(lines) == text
    assert max(map(len, lines)) <= MAX_PENDING + 4 * MAX_KEY_CHARS
    assert cleaned < 40 * len(text)


def test_a_known_secret_of_several_words_is_never_shown_in_part(path: Path, clock: FakeClock):
    secret = "correct hörse battery staple"
    writer, shown = TranscriptWriter(path, clock, lambda: [secret]), []
    for letter in f"My password is {secret}, is it good?":
        writer.stream("say", letter)
        writer.flush()
        shown.append(writer.unfinished[1])
    assert not [text for text in shown if "corr" in text or "rse" in text or "batt" in text]
    assert shown[-1] == f"My password is {CUT}, is it"


def test_the_mark_in_place_of_a_key_is_shown_whole_or_not_at_all(path: Path, clock: FakeClock):
    writer, shown = TranscriptWriter(path, clock, tuple), set()
    for letter in "export AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY and":
        writer.stream("say", letter)
        writer.flush()
        shown.add(writer.unfinished[1])
    assert shown == {"", "export", f"export AWS_SECRET_ACCESS_KEY={CUT}"}


def test_the_last_line_of_a_text_grows_word_by_word_without_its_keys(path: Path, clock: FakeClock):
    writer, shown = TranscriptWriter(path, clock, tuple), []
    for piece in (
        "Dec",
        "ision: the old",
        " parser. ",
        "The key is Bearer sk-0123456789",
        "abcdefghij;",
        " 日本",
        " ok\nNext",
    ):
        writer.stream("say", piece)
        writer.flush()
        shown.append(writer.unfinished[1])
    assert shown[:3] == ["", "Decision: the", "Decision: the old parser."]
    assert shown[3] == "Decision: the old parser. The key is Bearer"
    assert shown[5].endswith(f"The key is Bearer {CUT}; 日本")
    assert shown[6] == "", "the line is complete, and the next has no whole word"
    assert writer.lines == 2  # with the note about the key
    writer.end_stream()
    writer.flush()
    assert (writer.lines, writer.unfinished) == (3, ("", ""))
