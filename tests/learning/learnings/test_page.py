"""Pages of entries: they are read as they were written, and what is not changed stays byte for byte."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.learning.learnings import make_title
from engine.learning.learnings.page import Change, Page, clean_text, make_change
from engine.model import LearningKind, LearningScope, LearningStatus, LearningType
from tests.learning.learnings.made_up_entries import make_entry
from tests.support import read_table

TABLE = read_table(__file__)


PLACE = {
    "path": "learnings/x/institutional.md", "scope": LearningScope.SESSION, "scope_id": "s1",
    "kind": LearningKind.INSTITUTIONAL, "session_id": "s1",
}  # fmt: skip
"""The fields of the entries of a page that follow from its place."""


def read_page(data: bytes) -> Page:
    """The page with this content."""
    return Page(data, PLACE)


PIECES = [
    "---", "id: x", "\\---", "-", "\\", "\n", "\r", "\r\n", " ", "\t", ":", "#", "'", '"', "[", "{", "|", "é", "\u2028",
    "\x00",
]  # fmt: skip
TEXTS = st.lists(st.sampled_from(PIECES), max_size=14).map("".join) | st.text()


@pytest.mark.long
@given(
    st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=4), st.sampled_from([b"", b"# Notes\n\nfree words", b"\n"])
)
@settings(max_examples=150)
def test_texts_and_values_are_read_as_they_were_written(texts_and_titles: list[tuple[str, str]], before: bytes):
    entries = [
        make_entry(text, id=f"lrn_{number}", title=title, reasons=(title, "b"))
        for number, (text, title) in enumerate(texts_and_titles)
    ]
    data = read_page(before).edit(map(Change, entries))
    page = read_page(data)
    assert [entry.id for entry in page.entries] == [f"lrn_{number}" for number in range(len(texts_and_titles))]
    for entry, (text, title) in zip(page.entries, texts_and_titles, strict=True):
        assert entry.text == clean_text(text)
        assert entry.title == (clean_text(title) or make_title(entry.text))
        assert entry.reasons == (clean_text(title), "b")
    assert data.startswith(before)


@given(st.binary(max_size=400))
@settings(max_examples=150)
def test_any_bytes_stay_and_an_entry_after_them_is_read(before: bytes):
    assert read_page(before).edit([]) == before
    data = read_page(before).edit([Change(make_entry("new", id="lrn_new"))])
    assert data.startswith(before)
    assert [entry.text for entry in read_page(data).entries if entry.id == "lrn_new"] == ["new"]


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
review: ~\r
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


def test_everything_but_the_changed_value_stays_byte_for_byte():
    page = read_page(BY_HAND)
    (entry,) = page.entries
    assert (entry.type, entry.reasons, entry.review) == (LearningType.DIRECTIVE, ("the operator said so",), "")
    retired = make_change(entry, status=LearningStatus.RETIRED, retired_because="no: longer")
    data = BY_HAND.replace(b"status: active\r\n---", b'status: retired\r\nretired_because: "no: longer"\r\n---')
    assert page.edit([retired]) == data
    assert read_page(data).entries == [retired.entry]


@pytest.mark.parametrize(
    "data, id, error",
    [
        (BY_HAND, "lrn_a", "line 21: 'nonsense' is not `key: value`"),
        (b"---\nid: a\n---\nfirst\n---\nid: a\n---\nsecond\n", "a", "line 5: a appears twice"),
        (b"---\nid: a\ntype: x\n\n---\nid: b\n---\ntext\n", "b", "line 1: the front matter has no closing ---"),
    ],
)
def test_an_entry_that_cannot_be_read_is_reported_with_its_line_and_left_alone(data: bytes, id: str, error: str):
    page = read_page(data)
    assert [entry.id for entry in page.entries] == [id]
    assert page.errors == [f"{PLACE['path']} {error}"]
    assert page.edit([make_change(make_entry("Lost?", id="lrn_b"), status=LearningStatus.RETIRED)]) == data


@pytest.mark.parametrize("line, error", TABLE["bad_values"])
def test_a_bad_value_is_reported(line: str, error: str):
    (found,) = read_page(f"---\nid: lrn_a\n{line}\n---\ntext\n".encode()).errors
    assert error in found
