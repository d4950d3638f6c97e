"""Transcripts: harmless lines, limits, pages, what a crash or a full disk leaves, and no secret (SPEC 3.8, 11.1)."""

import resource
import signal
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.clock import FakeClock
from engine.events import EventBus
from engine.events.work import SessionOutput
from engine.execution import transcripts
from engine.execution.live_session import LiveSession
from engine.execution.transcripts import CUT_NOTE, MAX_LINE_CHARS, LineSplitter, TranscriptReader, TranscriptWriter
from engine.redaction import CUT, MAX_KEY_CHARS, Redactor
from engine.storage.database import Database
from engine.storage.ledger import Ledger
from engine.text import sanitise
from tests.execution.session_world import MakeWorld, ScriptWorld, run_python


def split_lines(*chunks: bytes) -> list[str]:
    """The lines that output in these chunks becomes."""
    splitter = LineSplitter()
    return [line for chunk in chunks for line in splitter.split(chunk)] + splitter.end()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "transcript.jsonl"


@given(st.lists(st.binary(max_size=40), max_size=20))
@example([b"\x1b]\n", b"\n"])
def test_any_bytes_in_any_chunks_become_the_same_harmless_lines(chunks: list[bytes]):
    lines = split_lines(*chunks)
    assert lines == split_lines(b"".join(chunks))
    for line in lines:
        assert "\n" not in line
        assert sanitise(line) == line


def test_pages_are_read_by_line_number(path: Path, clock: FakeClock):
    writer, reader = TranscriptWriter(path, clock, tuple), TranscriptReader()
    assert reader.read_page(path) == []
    for start in range(0, 5000, 500):
        writer.append("output", [f"line {number}" for number in range(start + 1, start + 501)])
        writer.flush()
        assert [line.number for line in reader.read_page(path, after=start)] == list(range(start + 1, start + 501))
    for after, numbers in ((-5, [1, 2]), (1000, [1001, 1002]), (4999, [5000]), (9999, [])):
        assert [line.text for line in reader.read_page(path, after=after, limit=2)] == [f"line {n}" for n in numbers]
    writer.close()
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_half_written_line_is_left_out_and_cut_off(path: Path, clock: FakeClock):
    writer = TranscriptWriter(path, clock, tuple)
    writer.append("output", ["whole"])
    writer.close()
    with path.open("ab") as file:
        file.write(b'{"at": "2026-01-0')
    assert [line.text for line in TranscriptReader().read_page(path)] == ["whole"]
    second = TranscriptWriter(path, clock, tuple)
    second.append("note", ["goes on"])
    second.close()
    assert [(line.number, line.text) for line in TranscriptReader().read_page(path)] == [(1, "whole"), (2, "goes on")]


@pytest.mark.parametrize("cut_at", [8, 9])
def test_the_note_on_dropped_output_follows_a_secret_in_the_last_line(
    path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, cut_at: int
):
    monkeypatch.setattr(transcripts, "MAX_OUTPUT_LINES", 10)
    writer = TranscriptWriter(path, clock, lambda: ["correct-horse"])
    writer.append("output", ["x"] * cut_at + ["it is correct-horse"] + ["x"] * 5)
    writer.close()
    notes = [line.text for line in TranscriptReader().read_page(path) if line.kind == "note"]
    assert notes == [CUT_NOTE, "the transcript keeps 10 lines of output; the rest is dropped"]


def test_a_full_disk_leaves_no_half_written_batch(path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch):
    writer = TranscriptWriter(path, clock, tuple)
    writer.append("output", ["a" * 3000])
    writer.flush()
    size = path.stat().st_size
    writer.append("output", ["b" * 3000])
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, limit[1]))
    try:
        with pytest.raises(OSError, match="large"):
            writer.flush()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert path.stat().st_size == size
    writer.close()
    assert [line.text[0] for line in TranscriptReader().read_page(path)] == ["a", "b"]


# Secrets


KEYRING_SECRET = "correct-horse-battery"  # it does not look like a secret
TOKEN = "ghp_0123456789abcdefghijABCDEFGHIJ012345"
PASSWORD = "hunter2hunter2"
DOTENV = f"GITHUB_TOKEN={TOKEN}\nDB_PASSWORD={PASSWORD}\nKEYRING_SECRET={KEYRING_SECRET}\nDEBUG=1\n"
PRIVATE = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG\n9w0BAQEFAASCBKcwggSj\n-----END PRIVATE KEY-----"


@pytest.fixture
def world(make_world: MakeWorld) -> ScriptWorld:
    world = make_world(secrets=lambda: [KEYRING_SECRET])
    (world.workspace / ".env").write_text(DOTENV)
    return world


def read_everything_stored(world: ScriptWorld, database: Database) -> str:
    """Everything that the session left on disk, and what the ledger says of it."""
    files = [path for path in world.home.transcripts.rglob("*") if path.is_file()]
    return "\n".join([*(path.read_text() for path in files), *map(repr, Ledger(database).read_newest())])


def test_a_printed_dotenv_is_stored_without_its_secrets(world: ScriptWorld, database: Database, bus: EventBus):
    events = bus.subscribe(lambda: None)

    def work(live: LiveSession) -> str:
        printed = run_python(live, "print(open('.env').read())")
        assert printed == f"GITHUB_TOKEN={CUT}\nDB_PASSWORD={CUT}\nKEYRING_SECRET={CUT}\nDEBUG=1\n\n", (
            "a model reads the same"
        )
        return f"the keys are {TOKEN} and {KEYRING_SECRET}"

    view = world.run(work)
    assert world.read_lines(view)[-2:] == ["DEBUG=1", ""]
    assert world.read_lines(view, ["note"])[0] == CUT_NOTE, "a note says that something is missing"
    assert world.read_lines(view, ["note"]).count(CUT_NOTE) == 1
    assert view.summary == f"the keys are {CUT} and {CUT}"
    published = [event.text for event in events.drain() if isinstance(event, SessionOutput)]
    assert "DEBUG=1" in "\n".join(published)
    found_afterwards = read_everything_stored(world, database) + "\n".join(published) + repr(view)
    for secret in (KEYRING_SECRET, TOKEN, PASSWORD):
        assert secret not in found_afterwards


@pytest.mark.parametrize("secret", [KEYRING_SECRET, TOKEN, f"PASSWORD={PASSWORD}", PRIVATE])
def test_a_secret_in_two_chunks_is_one_secret(secret: str):
    data = f"before {secret} after\nthe end\n".encode()
    expected = LineSplitter(Redactor(lambda: [KEYRING_SECRET])).split(data)
    assert "\n".join(expected).count(CUT) == len(secret.splitlines()), "a private key is cut over all its lines"
    for cut in range(len(data)):
        splitter = LineSplitter(Redactor(lambda: [KEYRING_SECRET]))
        assert splitter.split(data[:cut]) + splitter.split(data[cut:]) + splitter.end() == expected


@pytest.mark.parametrize(
    "begin",
    [
        MAX_LINE_CHARS - len(KEYRING_SECRET) // 2,
        MAX_LINE_CHARS - MAX_KEY_CHARS - len(KEYRING_SECRET) // 2,
        MAX_LINE_CHARS - 1,
    ],
)
@pytest.mark.parametrize("filler", ["x", "x "])
def test_no_half_of_a_secret_at_the_end_of_a_long_line_is_stored(begin: int, filler: str):
    data = (filler * MAX_LINE_CHARS)[:begin].encode() + f"{KEYRING_SECRET}{'y' * MAX_KEY_CHARS}".encode()
    splitter = LineSplitter(Redactor(lambda: [KEYRING_SECRET]))
    assert splitter.split(data) == []
    (line,) = splitter.split(b"\n")
    assert "more bytes cut" in line
    assert not any(KEYRING_SECRET[:length] in line for length in range(3, len(KEYRING_SECRET) + 1))


# Text that streams, word by word


def test_streamed_lines_are_whole_but_for_their_secrets(path: Path, clock: FakeClock):
    writer = TranscriptWriter(path, clock, lambda: [KEYRING_SECRET])
    writer.stream("say", f"it is {TOKEN}{KEYRING_SECRET[:9]}")
    writer.stream("say", f"{KEYRING_SECRET[9:]}\n{'語' * 7_000}")
    writer.end_stream()
    writer.close()
    lines = [line.text for line in TranscriptReader().read_page(path)]
    assert (lines[0], lines[-1]) == (f"it is {CUT}{CUT}", "語" * 7_000)


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
