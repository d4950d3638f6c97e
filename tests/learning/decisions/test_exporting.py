"""Training files (SPEC 8.3): each pair is exported once, also after a crash, in the lines of each format, and our check
finds what a provider would refuse."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlmodel import select

from engine.clock import FakeClock
from engine.files import write_atomic
from engine.learning.decisions import exporting
from engine.learning.decisions.decisions import DpoPair, PairTexts, Preference, import_pairs, load_pairs
from engine.learning.decisions.exporting import (
    MIN_BATCH,
    Example,
    Exporter,
    Shape,
    check_preferences,
    format_answer,
    format_example,
    format_preference,
    read_preference,
)
from engine.model import Refusal
from engine.prediction.card_rows import CardRow
from engine.storage.database import Database
from tests.support.card_rows import make_card_row


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
    with pytest.raises(Refusal, match="49 new pairs") as refused:
        exporter.export_batch()
    assert refused.value.code == "few_pairs"
    assert not exporter.file.exists()
    add_pairs(database, 1, "the fiftieth")
    assert exporter.is_due(clock.now())
    export = exporter.export_batch()
    assert (export.records, export.new) == (50, 50)
    assert check_preferences(read_lines(exporter.file)) == []
    assert len(read_lines(export.weights)) == 50


def test_a_batch_is_due_once_a_day_and_has_each_pair_once(database: Database, exporter: Exporter, clock: FakeClock):
    add_pairs(database, 50)
    exporter.export_batch()
    add_pairs(database, 60, "two")
    assert not exporter.is_due(clock.now() + timedelta(hours=24) - timedelta(seconds=1))
    assert exporter.is_due(clock.now() + timedelta(hours=24))
    assert exporter.export_batch().new == 60
    exported = read_situations(exporter.file)
    assert len(exported) == len(set(exported)) == 110


def test_the_cards_of_exported_pairs_are_marked(database: Database, exporter: Exporter, clock: FakeClock):
    add_pairs(database, MIN_BATCH - 1)
    pair = DpoPair(
        context="monday", chosen="run → a", rejected="lint → a", created_at=clock.now(),
        chosen_prediction_id="pred_chosen", rejected_prediction_id="pred_rejected",
    )  # fmt: skip
    cards = [make_card_row(card_id, clock.now()) for card_id in ("pred_chosen", "pred_rejected", "pred_other")]
    database.write(lambda tx: tx.session.add_all([pair, *cards]))
    exporter.export_batch()
    with database.read() as session:
        marked = {card.id: card.dpo_exported for card in session.exec(select(CardRow))}
    assert marked == {"pred_chosen": True, "pred_rejected": True, "pred_other": False}


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


def test_one_batch_is_written_at_a_time(database: Database, exporter: Exporter, monkeypatch: pytest.MonkeyPatch):
    could_begin_another = []

    def write(file: Path, data: bytes):
        with ThreadPoolExecutor() as other_thread:
            could_begin_another.append(other_thread.submit(exporter._batch_lock.acquire, blocking=False).result())

    monkeypatch.setattr(exporting, "write_atomic", write)
    add_pairs(database, MIN_BATCH)
    exporter.export_batch()
    assert could_begin_another == [False, False], "while the pairs and the weights are written"


@pytest.mark.parametrize("shape", list(Shape))
def test_every_format_has_the_same_pairs(database: Database, exporter: Exporter, shape: Shape):
    with pytest.raises(Refusal, match="0 new pairs"):
        exporter.export_preferences(shape)
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
    with pytest.raises(Refusal, match="line 2: no JSON") as refused:
        exporter.import_pairs([line.replace("monday", "tuesday"), "{"])
    assert refused.value.code == "bad_pairs"
    with database.read() as session:
        assert [pair.context for pair in load_pairs(session)] == ["monday"]


# Formats, and our check of them


PAIR = Preference(
    7, "workspace: shop\ntime: Monday 09:10", "run the tests → koji-core", "sum up the day → chronicle-hub",
    datetime(2026, 1, 5, 9, 10, tzinfo=UTC), 0.3, 0.72, 0.45,
)  # fmt: skip


TEXTS = st.text(st.characters(codec="utf-8"), min_size=1).filter(lambda text: text.strip())


def test_the_plain_format_has_the_fields_of_the_specification():
    assert json.loads(format_preference(PAIR, Shape.PLAIN)) == {
        "prompt": "workspace: shop\ntime: Monday 09:10",
        "chosen": "run the tests → koji-core",
        "rejected": "sum up the day → chronicle-hub",
        "metadata": {"timestamp": "2026-01-05T09:10:00Z", "confidence_chosen": 0.72, "confidence_rejected": 0.45},
    }


OUTPUTS = ("input", "preferred_output", "non_preferred_output")


@pytest.mark.parametrize(
    "shape, keys",
    [(Shape.TOGETHER, OUTPUTS), (Shape.OPENAI, OUTPUTS), (Shape.TRL, ("prompt", "chosen", "rejected"))],
)
def test_a_format_with_messages_has_one_of_the_assistant_on_each_side(shape: Shape, keys: tuple[str, ...]):
    line = json.loads(format_preference(PAIR, shape))
    assert tuple(line) == keys
    prompt, chosen, rejected = line.values()
    system, user = prompt if shape is Shape.TRL else prompt["messages"]
    assert (system["role"], user) == ("system", {"role": "user", "content": PAIR.context})
    assert chosen == [{"role": "assistant", "content": PAIR.chosen}]
    assert rejected == [{"role": "assistant", "content": PAIR.rejected}]


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
        ("[]", "the line is not an object"),
        ('{"prompt": "a", "chosen": "b", "rejected": " "}', "rejected: "),
        ('{"prompt": "a", "chosen": "b", "rejected": "b"}', "the same"),
        ('{"input": {"messages": [{"role": "user", "content": "a"}]}, "preferred_output": [], '
         '"non_preferred_output": []}', "preferred_output"),
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


def test_a_repeated_line_and_an_empty_file_are_errors():
    line = format_preference(PAIR, Shape.PLAIN)
    assert check_preferences([line, line]) == ["line 2: has the same content as line 1"]
    assert check_preferences([]) == ["the file is empty"]
    assert check_preferences(["{"] * 30)[-1] == "and 10 more"


def test_a_conversation_has_a_system_prompt_a_situation_and_an_answer():
    line = format_example(
        Example("monday morning", format_answer("run the tests", "koji-core", 0.723, "red yesterday"))
    )
    messages = json.loads(line)["messages"]
    assert [message["role"] for message in messages] == ["system", "user", "assistant"]
    assert json.loads(messages[-1]["content"]) == {
        "prompt": "run the tests", "channel": "koji-core", "confidence": 0.72, "reasoning": "red yesterday",
    }  # fmt: skip
