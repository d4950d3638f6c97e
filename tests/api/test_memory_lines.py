"""Lines of JSON as memories (SPEC 9.8)."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.api.operations.memory import parse_time, read_lines
from engine.model import Retention


def test_a_line_becomes_a_memory_with_everything_it_says() -> None:
    line = json.dumps(
        {"id": "D1:3", "text": "hi", "speaker": "Ada", "timestamp": "2023-05-08T13:56:00", "session": 4, "agent": "cto"}
    )
    [one], bad = read_lines([line], first=7, source="chats.jsonl")
    assert bad == []
    assert (one.ref, one.text, one.speaker, one.session, one.agent) == ("D1:3", "hi", "Ada", "4", "cto")
    assert one.at == datetime(2023, 5, 8, 13, 56, tzinfo=UTC)
    assert (one.source, one.retention) == ("chats.jsonl:7", Retention.FOREVER)


def test_bad_lines_are_named_with_their_number_and_stop_nothing() -> None:
    lines = ["{", "[]", '{"id": "x"}', '{"text": ""}', "", '{"text": 5}', '{"text": "good"}', "[" * 100_000]
    lines += ['{"text": "good", "speaker": []}', '{"text": "half good", "timestamp": "soon"}']
    items, bad = read_lines(lines, first=11, source="f")
    assert [item.text for item in items] == ["good", "half good"]
    assert [(one.line, one.stored) for one in bad] == [
        (11, False), (12, False), (13, False), (14, False), (16, False), (18, False), (19, False), (20, True)
    ]  # fmt: skip
    assert all(one.message for one in bad)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("2023-05-08", datetime(2023, 5, 8, tzinfo=UTC)),
        ("2023-05-08T13:56:00+02:00", datetime(2023, 5, 8, 11, 56, tzinfo=UTC)),
        ("2023-05-08T13:56:00Z", datetime(2023, 5, 8, 13, 56, tzinfo=UTC)),
        ("1:56 pm on 8 May, 2023", datetime(2023, 5, 8, 13, 56, tzinfo=UTC)),
        ("2023/05/20 (Sat) 02:21", datetime(2023, 5, 20, 2, 21, tzinfo=UTC)),
        ("Mon, 08 May 2023 13:56:00 +0000", datetime(2023, 5, 8, 13, 56, tzinfo=UTC)),
        (1683554160, datetime(2023, 5, 8, 13, 56, tzinfo=UTC)),
        (1683554160000, datetime(2023, 5, 8, 13, 56, tzinfo=UTC)),
        ("", None),
        (None, None),
    ],
)
def test_times_as_people_and_programs_write_them(written: object, meant: datetime | None) -> None:
    assert parse_time(written) == meant


@given(st.one_of(st.text(), st.integers(), st.floats(), st.booleans(), st.lists(st.text())))
def test_a_time_is_read_or_refused(written: object) -> None:
    try:
        at = parse_time(written)
    except ValueError:
        return
    assert at is None or at.tzinfo is not None


@given(st.text())
def test_no_line_raises(line: str) -> None:
    read_lines([line], first=1, source="f")
