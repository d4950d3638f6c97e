"""Rows without the ORM's ceremony: they are made, written and changed as the ORM would have done it."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm.exc import StaleDataError
from sqlmodel import Session, SQLModel, create_engine

from engine.clock import FakeClock
from engine.events import EventBus, TaskAdded
from engine.memory.ledger import append
from engine.prediction.tasks import TaskRow
from engine.safety.costs import CostEntry
from engine.storage.database import Database, Transaction
from engine.storage.quick import load
from engine.storage.rows import _depth, _table

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)


def _task(id: str, **values: object) -> TaskRow:
    return TaskRow(**{"id": id, "title": "tidy up", "state": "open", "created_at": NOON, "updated_at": NOON} | values)


def test_a_row_has_its_defaults_and_shares_none() -> None:
    one, other = _task("task_1"), _task("task_2", needs=["task_1"], nonsense=3)
    one.needs.append("task_0")
    assert other.needs == ["task_1"]
    assert _task("task_3").needs == []
    assert not hasattr(other, "nonsense")
    assert one.session_id is None


def test_every_table_is_plain() -> None:
    """One with relations would be written by the ORM, and rightly; it would also be slow again without a word."""
    import engine.engine  # noqa: F401 (all tables)

    for mapper in SQLModel._sa_registry.mappers:  # type: ignore[attr-defined]
        assert len(mapper.primary_key) > 1 or _table(mapper) is not None, mapper


def test_what_others_refer_to_is_written_first() -> None:
    for mapper in SQLModel._sa_registry.mappers:  # type: ignore[attr-defined]
        table = mapper.local_table
        for key in table.foreign_keys:
            if key.column.table is not table:
                assert _depth(key.column.table) < _depth(table)


values = st.fixed_dictionaries(
    {
        "amount_microusd": st.integers(0, 2**40),
        "estimate_microusd": st.integers(0, 2**40),
        "agent": st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8),
        "prediction_id": st.none() | st.just("pred_1"),
        "at": st.integers(-(10**9), 10**9).map(lambda seconds: NOON + timedelta(seconds=seconds)),
    }
)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[sqlalchemy.Engine, Database]:
    folder = tmp_path_factory.mktemp("both")
    slow = create_engine(f"sqlite:///{folder / 'slow.db'}")
    SQLModel.metadata.create_all(slow, [CostEntry.__table__])  # type: ignore[attr-defined]
    return slow, Database(folder / "quick.db", clock=FakeClock(NOON), bus=EventBus(), recorder=append)


@pytest.mark.long
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values, values)
def test_what_is_written_is_what_the_orm_would_write(
    both: tuple[sqlalchemy.Engine, Database], first: dict[str, object], then: dict[str, object]
) -> None:
    engine, database = both
    fixed = {"purpose": "session", "state": "reserved", "channel": "koji-core", "runner": "flow"}

    def keep(session: Session) -> tuple[object, ...]:
        row = CostEntry(**fixed, **first)
        session.add(row)
        session.flush()
        assert row in session
        assert row.id is not None
        for name, value in then.items():
            setattr(row, name, value)
        session.flush()
        assert not session.dirty
        text = sqlalchemy.text(f"SELECT * FROM cost_entries WHERE id = {row.id}")
        return tuple(session.connection().execute(text).mappings().one().items())

    with Session(engine) as session:
        slow = dict(keep(session))  # type: ignore[call-overload]
    quick = dict(database.write(lambda tx: keep(tx.session)))  # type: ignore[call-overload]
    assert {**quick, "id": 0} == {**slow, "id": 0}


def test_a_rule_of_the_table_holds_and_nothing_is_left(database: Database) -> None:
    def broken(tx: Transaction) -> None:
        tx.session.add(_task("task_1"))
        tx.session.flush()
        tx.session.add(_task("task_2", state="nonsense"))

    with pytest.raises(IntegrityError, match="CHECK"):
        database.write(broken)
    database.write(lambda tx: tx.session.add(_task("task_1")))
    with database.read() as session:
        assert load(session, TaskRow, "task_1") is not None
        assert load(session, TaskRow, "task_2") is None


def test_a_row_that_is_gone_is_not_changed_without_a_word(database: Database) -> None:
    database.write(lambda tx: tx.session.add(_task("task_1")))

    def change(tx: Transaction) -> None:
        row = load(tx.session, TaskRow, "task_1")
        assert row is not None
        tx.session.connection().exec_driver_sql("DELETE FROM tasks")
        row.title = "too late"

    with pytest.raises(StaleDataError):
        database.write(change)


def test_what_did_not_change_is_not_written(database: Database) -> None:
    database.write(lambda tx: tx.session.add(_task("task_1")))

    def again(tx: Transaction) -> int:
        row = load(tx.session, TaskRow, "task_1")
        assert row is not None
        row.title = "tidy up"
        before = tx.session.info["driver"].total_changes
        tx.session.flush()
        assert not tx.session.dirty
        return int(tx.session.info["driver"].total_changes - before)

    assert database.write(again) == 0


def test_the_next_transaction_knows_nothing_of_the_last_ones_rows(database: Database) -> None:
    database.write(lambda tx: tx.session.add(_task("task_1")))
    kept: list[TaskRow] = []

    def read(tx: Transaction) -> None:
        row = load(tx.session, TaskRow, "task_1")
        assert row is not None
        kept.append(row)

    database.write(read)
    kept[0].title = "changed by who has it still"
    database.write(read)
    assert kept[0] is not kept[1]
    assert kept[1].title == "tidy up"


def test_rows_of_two_tables_go_into_one_transaction(database: Database) -> None:
    """In whatever order they were added; keys that SQLite gives are known after the flush."""

    def work(tx: Transaction) -> int | None:
        entry = CostEntry(purpose="session", state="reserved", amount_microusd=1, estimate_microusd=1, at=tx.now)
        tx.session.add_all([entry, _task("task_1")])
        tx.session.flush()
        return entry.id

    assert database.write(work) == 1


def test_who_writes_alone_does_it_himself_and_the_main_thread_never(database: Database) -> None:
    """Ctrl-C comes to the main thread: no write of its own may be torn by it."""
    seen: list[tuple[int, int]] = []

    def write() -> None:
        seen.append((threading.get_ident(), database.write(lambda tx: threading.get_ident())))

    other = threading.Thread(target=write)
    other.start()
    other.join(10)
    write()
    (other_caller, other_writer), (main_caller, main_writer) = seen
    assert other_caller == other_writer
    assert main_caller != main_writer


def test_nobody_is_overtaken(database: Database, bus: EventBus) -> None:
    """A write that was handed over before is done before, whoever does it."""
    facts = bus.subscribe(lambda: None)

    def both(name: str) -> None:
        database.submit(lambda tx: tx.record(TaskAdded(subject=f"first {name}", title="")))
        database.write(lambda tx: tx.record(TaskAdded(subject=f"then {name}", title="")))

    def many(thread: int) -> None:
        for number in range(20):
            both(f"{thread}/{number}")

    threads = [threading.Thread(target=many, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    told = [fact.subject for fact in facts.drain()]
    for which in range(4):
        mine = [one for one in told if one.split()[1].startswith(f"{which}/")]
        assert mine == [f"{word} {which}/{number}" for number in range(20) for word in ("first", "then")]


def test_a_write_inside_ones_own_write_is_named(database: Database) -> None:
    failed: list[Exception] = []

    def inside() -> None:
        try:
            database.write(lambda tx: database.write(lambda inner: None))
        except RuntimeError as error:
            failed.append(error)

    thread = threading.Thread(target=inside)
    thread.start()
    thread.join(10)
    assert len(failed) == 1


def test_closing_waits_for_who_is_writing(tmp_path: Path) -> None:
    database = Database(tmp_path / "a.db", clock=FakeClock(NOON), bus=EventBus(), recorder=append)
    inside, go_on = threading.Event(), threading.Event()

    def slow(tx: Transaction) -> None:
        inside.set()
        assert go_on.wait(10)
        tx.session.add(_task("task_1", created_at=NOON - timedelta(days=1)))

    writer = threading.Thread(target=lambda: database.write(slow))
    writer.start()
    assert inside.wait(10)
    closer = threading.Thread(target=database.close)
    closer.start()
    go_on.set()
    for thread in (writer, closer):
        thread.join(10)
        assert not thread.is_alive()
