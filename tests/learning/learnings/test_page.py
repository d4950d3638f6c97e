"""Pages of entries: they are read as they were written, and what is not changed stays byte for byte."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.learning.learnings.page import Page, Value, clean_text, format_value, make_front_matter, parse_value
from engine.learning.learnings.store import Scope, read_entry
from engine.model import EntrySource, LearningKind, LearningStatus, LearningType
from tests.conftest import MONDAY_MORNING
from tests.learning.learnings.world import make_entry

PLACE = ("learnings/x/institutional.md", Scope("shop", "s1"), LearningKind.INSTITUTIONAL)
"""The path of the page of the entries, its scope and its kind."""

PIECES = [
    "---", "id: x", "\\---", "-", "\\", "\n", "\r", "\r\n", " ", "\t", ":", "#", "'", '"', "[", "{", "|", "é", "\u2028",
    "\x00",
]  # fmt: skip
TEXTS = st.lists(st.sampled_from(PIECES), max_size=14).map("".join) | st.text()


@pytest.mark.long
@given(
    st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=4), st.sampled_from([b"", b"# Notes\n\nfree words", b"\n"])
)
@settings(max_examples=150, deadline=None)
def test_texts_and_values_are_read_as_they_were_written(texts_and_titles: list[tuple[str, str]], before: bytes) -> None:
    page = Page(before)
    for number, (text, title) in enumerate(texts_and_titles):
        page.append(f"lrn_{number}", {"title": title, "reasons": [title, "b"]}, text)
    read_page = Page(page.data)
    assert [part.id for part in read_page.entries] == [f"lrn_{number}" for number in range(len(texts_and_titles))]
    for part, (text, title) in zip(read_page.entries, texts_and_titles, strict=True):
        assert not part.error
        assert part.text == clean_text(text)
        assert part.value("title") == re.sub("[\ud800-\udfff]", "\ufffd", title)
    assert read_page.data == page.data
    assert read_page.data.startswith(before)


@given(st.binary(max_size=400))
@settings(max_examples=150, deadline=None)
def test_any_bytes_stay_and_an_entry_after_them_is_read(data: bytes) -> None:
    page = Page(data)
    assert page.data == data
    page.append("lrn_new", {"type": "declarative"}, "new")
    assert page.data.startswith(data)
    part = Page(page.data).part("lrn_new")
    assert part is not None
    assert part.text == "new"


BY_HAND = b"""\xef\xbb\xbf# Our ways\r
\r
---\r
id: lrn_a   # keep\r
type: directive\r
colour:\r
  - {red: [1, 2]}\r
  - |\r
    ---\r
reasons:\r
- the operator said so\r
# a remark\r
status: active\r
---\r
\r
Words   that stay.  \r
\r
---\r
id: lrn_b\r
nonsense\r
---\r
Lost?\r
"""


def test_everything_but_the_changed_value_stays_byte_for_byte() -> None:
    page = Page(BY_HAND)
    assert page.set_fields("lrn_a", {"status": "retired", "retired_because": "no: longer"})
    changed = BY_HAND.replace(b"status: active\r\n---", b'status: retired\r\nretired_because: "no: longer"\r\n---')
    assert page.data == changed
    assert Page(changed).entries[0].value("reasons") == ["the operator said so"]


def test_a_bad_entry_is_reported_with_its_line_and_the_others_are_read() -> None:
    page = Page(BY_HAND)
    good, bad = page.entries
    assert read_entry(good, *PLACE).type is LearningType.DIRECTIVE
    with pytest.raises(ValueError, match=r"line 20: 'nonsense' is not `key: value`"):
        read_entry(bad, *PLACE)
    assert page.part("lrn_b") is None
    assert not page.set_fields("lrn_b", {"status": "retired"})


def test_a_second_entry_with_the_same_id_is_an_error() -> None:
    data = b"---\nid: lrn_a\n---\nfirst\n"
    with pytest.raises(ValueError, match="line 5: lrn_a appears twice"):
        read_entry(Page(data + data).entries[1], *PLACE)


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("type: poem", "line 3: type is 'poem': Input should be 'declarative', "),
        ("importance: 1.5", "line 3: importance is '1.5': Input should be less than or equal to 1"),
        ("confidence: true", "confidence is 'True': Input should be a valid number"),
        ("reinforcement_count: -1", "reinforcement_count is '-1': Input should be greater than or equal to 0"),
        ("created_at: yesterday", "created_at is 'yesterday': Input should be a valid datetime"),
        ("promoted_from: {a: b}", "line 3: promoted_from"),
        ('title: "open', "line 3: title: '\"open' cannot be read"),
        ("title: 'a' b", "cannot be read"),
    ],
)
def test_a_bad_value_is_reported(line: str, error: str) -> None:
    page = Page(f"---\nid: lrn_a\n{line}\n---\ntext\n".encode())
    with pytest.raises(ValueError, match=re.escape(error)):
        read_entry(page.entries[0], *PLACE)


def test_an_entry_without_an_id_gets_one_that_stays() -> None:
    page = Page(b"---\ntype: directive\n---\nUse uv.\n")
    id = page.entries[0].id
    assert id.startswith("lrn_")
    page.set_fields(id, {"status": "retired"})
    changed = Page(page.data.replace(b"Use uv.", b"Use pip."))
    assert changed.entries[0].id == id


def test_every_field_of_an_entry_is_read_as_it_was_written() -> None:
    entry = make_entry(
        "text",
        about="healed/x",
        promoted_from=(EntrySource("lrn_x", "sess_1"), EntrySource("lrn_y")),
        promoted_at=MONDAY_MORNING,
        reinforced_by=("sess_2",),
        reinforcement_count=1,
        last_reinforced=MONDAY_MORNING,
        status=LearningStatus.RETIRED,
        retired_because='no: "longer"',
        review="yes",
        review_since=MONDAY_MORNING,
        workspace="/a b/c",
        agent="ada",
        merged_into="lrn_z",
        session_task="do # this",
        title="- no list: 'x'",
        lesson="les_1",
    )
    page = Page()
    page.append(entry.id, make_front_matter(entry), entry.text)
    read = read_entry(Page(page.data).entries[0], *PLACE)
    assert read == replace(entry, path=PLACE[0])


@given(st.text() | st.integers() | st.floats(0, 1) | st.lists(st.text(), max_size=3) | st.booleans())
@settings(max_examples=60, deadline=None)
def test_values_are_read_as_they_were_written(value: Value) -> None:
    line = format_value(value)
    assert "\n" not in line
    assert parse_value([line]) == value
