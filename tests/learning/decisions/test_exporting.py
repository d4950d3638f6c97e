"""Exports of pairs and conversations: each pair is in the file once, also after a crash (SPEC 8.3)."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
from sqlmodel import select

from engine.clock import FakeClock
from engine.learning.decisions import exporting
from engine.learning.decisions.exporting import MIN_BATCH, Exporter, Shape, check_preferences
from engine.learning.decisions.preferences import DpoPair, import_pairs, load_pairs
from engine.model import Refusal
from engine.prediction.card_rows import CardRow
from engine.storage.database import Database, Transaction


@pytest.fixture
def exporter(database: Database, tmp_path: Path) -> Exporter:
    return Exporter(database, tmp_path, conversations=lambda: [("shall I merge?", "no, rebase it")])


def add_pairs(database: Database, count: int, name: str = "one") -> None:
    sides = [(f"situation {name} {n}", f"run {n} → koji-core", f"sum up {n} → garden") for n in range(count)]
    assert database.write(lambda tx: import_pairs(tx, sides)) == count


def lines(file: Path) -> list[str]:
    return file.read_text().splitlines()


def situations(file: Path) -> list[str]:
    return [json.loads(line)["prompt"] for line in lines(file)]


def test_a_batch_has_fifty_pairs_or_more(database: Database, exporter: Exporter, clock: FakeClock) -> None:
    add_pairs(database, 1, "the first")
    with pytest.raises(Refusal, match="1 new pair;"):
        exporter.export_batch()
    add_pairs(database, MIN_BATCH - 2)
    assert not exporter.is_due(clock.now())
    with pytest.raises(Refusal, match="49 new pairs") as refused:
        exporter.export_batch()
    assert refused.value.code == "few_pairs"
    assert not exporter.file.exists()
    add_pairs(database, 1, "the fiftieth")
    assert exporter.is_due(clock.now())
    export = exporter.export_batch()
    assert (export.records, export.new) == (50, 50)
    assert check_preferences(lines(exporter.file)) == []
    assert export.weights is not None
    assert len(lines(export.weights)) == 50


def test_a_batch_is_due_once_a_day_and_has_each_pair_once(
    database: Database, exporter: Exporter, clock: FakeClock
) -> None:
    add_pairs(database, 50)
    exporter.export_batch()
    add_pairs(database, 60, "two")
    assert not exporter.is_due(clock.now() + timedelta(hours=24) - timedelta(seconds=1))
    assert exporter.is_due(clock.now() + timedelta(hours=24))
    assert exporter.export_batch().new == 60
    exported = situations(exporter.file)
    assert len(exported) == len(set(exported)) == 110


def test_the_cards_of_exported_pairs_are_marked(database: Database, exporter: Exporter, clock: FakeClock) -> None:
    def add_card(tx: Transaction, card_id: str) -> None:
        now = clock.now()
        tx.session.add(
            CardRow(
                id=card_id, prompt="run", target_agent="a", target_channel="koji-core", confidence=0.7,
                kind="run_tests", workspace="/shop", runner="flow", subject=card_id, fingerprint=card_id,
                created_at=now, expires_at=now,
            )
        )  # fmt: skip

    add_pairs(database, MIN_BATCH - 1)
    pair = DpoPair(
        context="monday", chosen="run → a", rejected="lint → a", created_at=clock.now(),
        chosen_prediction_id="pred_chosen", rejected_prediction_id="pred_rejected",
    )  # fmt: skip
    database.write(lambda tx: tx.session.add(pair))
    for card_id in ("pred_chosen", "pred_rejected", "pred_other"):
        database.write(lambda tx, card_id=card_id: add_card(tx, card_id))  # type: ignore[misc]
    exporter.export_batch()
    with database.read() as session:
        marked = {card.id: card.dpo_exported for card in session.exec(select(CardRow))}
    assert marked == {"pred_chosen": True, "pred_rejected": True, "pred_other": False}


class _Crash(BaseException):
    """The process dies here."""


STEPS = ("before the file", "before the weights", "before export")


@pytest.fixture(params=STEPS)
def crash(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first batch crashes at a step."""
    append, calls = exporting._append_once, 0

    def append_or_crash(file: Path, data: bytes) -> None:
        nonlocal calls
        calls += 1
        if calls - 1 == STEPS.index(request.param):
            raise _Crash
        append(file, data)
        if calls == len(STEPS) - 1 and request.param == STEPS[-1]:
            raise _Crash

    monkeypatch.setattr(exporting, "_append_once", append_or_crash)


@pytest.mark.usefixtures("crash")
def test_after_a_crash_at_any_step_each_pair_is_in_the_file_once(
    database: Database, exporter: Exporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_pairs(database, 50)
    with pytest.raises(_Crash):
        exporter.export_batch()
    monkeypatch.undo()
    add_pairs(database, 3, "later")
    assert exporter.recover() == 1
    assert exporter.recover() == 0
    assert situations(exporter.file) == [f"situation one {n}" for n in range(50)]
    assert len(lines(exporter.file.with_suffix(".weights.jsonl"))) == 50
    with database.read() as session:
        assert len(list(session.exec(select(DpoPair).where(DpoPair.exported_at == None)))) == 3  # noqa: E711


def test_one_batch_is_written_at_a_time(
    database: Database, exporter: Exporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    could_begin_another = []

    def append(file: Path, data: bytes) -> None:
        with ThreadPoolExecutor() as other_thread:
            could_begin_another.append(other_thread.submit(exporter._batch_lock.acquire, blocking=False).result())

    monkeypatch.setattr(exporting, "_append_once", append)
    add_pairs(database, MIN_BATCH)
    exporter.export_batch()
    assert could_begin_another == [False, False]


@pytest.mark.parametrize("shape", list(Shape))
def test_every_format_has_the_same_pairs(database: Database, exporter: Exporter, shape: Shape) -> None:
    with pytest.raises(Refusal, match="0 new pairs"):
        exporter.export_preferences(shape)
    add_pairs(database, 50)
    first = exporter.export_preferences(shape)
    again = exporter.export_preferences(shape)
    assert (first.new, again.new, again.records) == (50, 0, 50)
    assert check_preferences(lines(again.file)) == []
    assert again.weights is not None
    assert len(lines(again.weights)) == len(lines(again.file)) == 50


def test_conversations_of_the_operator_are_exported(exporter: Exporter) -> None:
    export = exporter.export_conversations()
    assert (export.records, export.new) == (1, 1)
    assert exporter.export_conversations().new == 0
    [line] = lines(export.file)
    assert [load["content"] for load in json.loads(line)["messages"][1:]] == ["shall I merge?", "no, rebase it"]


def test_pairs_are_imported_once_and_all_or_none(database: Database, exporter: Exporter) -> None:
    line = json.dumps({"prompt": "monday", "chosen": "run the tests → koji-core", "rejected": "rest → garden"})
    assert exporter.import_pairs([line]) == 1
    assert exporter.import_pairs([line]) == 0
    with pytest.raises(Refusal, match="line 2: no JSON") as refused:
        exporter.import_pairs([line.replace("monday", "tuesday"), "{"])
    assert refused.value.code == "bad_pairs"
    with database.read() as session:
        assert [pair.context for pair in load_pairs(session)] == ["monday"]
