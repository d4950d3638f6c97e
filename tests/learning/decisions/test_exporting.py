"""Training files (SPEC 8.3): each pair is exported once, also after a crash, in the lines of each format, and our check
finds what a provider would refuse."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.clock import FakeClock
from engine.files import write_atomic
from engine.learning.decisions import exporting
from engine.learning.decisions.decisions import PairTexts, Preference, import_pairs, load_pairs
from engine.learning.decisions.exporting import (
    MIN_BATCH,
    Exporter,
    Shape,
    check_preferences,
    format_preference,
    read_preference,
)
from engine.storage.database import Database
from tests.support.checks import refused


@pytest.fixture
def exporter(database: Database, tmp_path: Path) -> Exporter:
    return Exporter(database, tmp_path, conversations=lambda: [("shall I merge?", "no, rebase it")])


def add_pairs(database: Database, count: int, name: str = "one"):
    """Add pairs of which `name` is a part."""
    sides = [PairTexts(f"situation {name} {n}", f"run {n} → koji-core", f"sum up {n} → garden") for n in range(count)]
    assert database.write(lambda tx: import_pairs(tx, sides)) == count


def read_lines(file: Path) -> list[str]:
    return file.read_text().splitlines()


def read_situations(file: Path) -> list[str]:
    """The contexts of the pairs in a file."""
    return [json.loads(line)["prompt"] for line in read_lines(file)]


# Batches


class _Crash(BaseException):
    """The process dies here."""


def test_a_batch_has_fifty_pairs_or_more(database: Database, exporter: Exporter, clock: FakeClock):
    add_pairs(database, MIN_BATCH - 1)
    assert not exporter.is_due(clock.now())
    assert "49 new pairs" in str(refused("few_pairs", exporter.export_batch))
    assert not exporter.file.exists()
    add_pairs(database, 1, "the fiftieth")
    assert exporter.is_due(clock.now())
    export = exporter.export_batch()
    assert (export.records, export.new) == (50, 50)
    assert check_preferences(read_lines(exporter.file)) == []
    assert len(read_lines(export.weights)) == 50


@pytest.mark.parametrize(
    "crashes",
    [("dpo-pairs.jsonl", "before"), ("dpo-pairs.weights.jsonl", "before"), ("dpo-pairs.weights.jsonl", "after")],
    ids=["before the pairs", "before the weights", "before the intent is finished"],
)
def test_after_a_crash_at_any_step_each_pair_is_in_the_file_once(
    database: Database, exporter: Exporter, monkeypatch: pytest.MonkeyPatch, crashes: tuple[str, str]
):
    def write_and_crash(file: Path, data: bytes):
        if (file.name, "before") == crashes:
            raise _Crash
        write_atomic(file, data)
        if (file.name, "after") == crashes:
            raise _Crash

    add_pairs(database, 50)
    with monkeypatch.context() as patch:
        patch.setattr(exporting, "write_atomic", write_and_crash)
        with pytest.raises(_Crash):
            exporter.export_batch()
    add_pairs(database, 3, "later")
    assert exporter.recover() == 1
    assert exporter.recover() == 0
    assert read_situations(exporter.file) == [f"situation one {n}" for n in range(50)]
    assert len(read_lines(exporter.file.with_suffix(".weights.jsonl"))) == 50
    with database.read() as session:
        assert len(load_pairs(session, exported=False)) == 3


@pytest.mark.parametrize("shape", list(Shape))
def test_every_format_has_the_same_pairs(database: Database, exporter: Exporter, shape: Shape):
    add_pairs(database, 50)
    first = exporter.export_preferences(shape)
    second = exporter.export_preferences(shape)
    assert (first.new, second.new, second.records) == (50, 0, 50)
    assert check_preferences(read_lines(second.file)) == []
    assert len(read_lines(second.weights)) == len(read_lines(second.file)) == 50


def test_conversations_of_the_operator_are_exported(exporter: Exporter):
    export = exporter.export_conversations()
    assert (export.records, export.new) == (1, 1)
    assert exporter.export_conversations().new == 0
    [line] = read_lines(export.file)
    messages = json.loads(line)["messages"]
    assert [message["content"] for message in messages[1:]] == ["shall I merge?", "no, rebase it"]


def test_pairs_are_imported_once_and_all_or_none(database: Database, exporter: Exporter):
    line = json.dumps({"prompt": "monday", "chosen": "run the tests → koji-core", "rejected": "rest → garden"})
    assert exporter.import_pairs([line]) == 1
    assert exporter.import_pairs([line]) == 0
    refusal = refused("bad_pairs", lambda: exporter.import_pairs([line.replace("monday", "tuesday"), "{"]))
    assert "line 2: no JSON" in str(refusal)
    with database.read() as session:
        assert [pair.context for pair in load_pairs(session)] == ["monday"]


# Formats, and our check of them


PAIR = Preference(
    7, "workspace: shop\ntime: Monday 09:10", "run the tests → koji-core", "sum up the day → chronicle-hub",
    datetime(2026, 1, 5, 9, 10, tzinfo=UTC), 0.3, 0.72, 0.45,
)  # fmt: skip


TEXTS = st.text(st.characters(codec="utf-8"), min_size=1).filter(lambda text: text.strip())


@given(context=TEXTS, chosen=TEXTS, rejected=TEXTS, shape=st.sampled_from(Shape))
def test_every_format_is_read_as_it_was_written(context: str, chosen: str, rejected: str, shape: Shape):
    line = format_preference(Preference(1, context, chosen, rejected, PAIR.at), shape)
    assert "\n" not in line
    if chosen == rejected:
        with pytest.raises(ValueError, match="the same"):
            read_preference(line)
    else:
        assert read_preference(line) == (context, chosen, rejected)
        assert check_preferences([line]) == []


@pytest.mark.parametrize(
    "line, reason",
    [
        ("{", "no JSON"),
        ('{"prompt": "a", "chosen": "b", "rejected": " "}', "rejected: "),
        ('{"prompt": "a", "chosen": "b", "rejected": "b"}', "the same"),
        ('{"prompt": [{"role": "user", "content": "a"}], "chosen": [{"role": "assistant", "content": "b"}, '
         '{"role": "assistant", "content": "c"}], "rejected": [{"role": "assistant", "content": "d"}]}',
         "chosen"),
        ('{"prompt": [{"role": "assistant", "content": "a"}], "chosen": [{"role": "assistant", "content": "b"}], '
         '"rejected": [{"role": "assistant", "content": "d"}]}', "end with a user message"),
        (json.dumps({"prompt": "x" * 200_000, "chosen": "b", "rejected": "c"}), "longer than 200000"),
    ],
)  # fmt: skip
def test_a_bad_line_is_reported(line: str, reason: str):
    error = check_preferences([format_preference(PAIR, Shape.PLAIN), line])[0]
    assert error.startswith("line 2: ")
    assert reason in error
