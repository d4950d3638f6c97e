"""One replacement keeps all other bytes, and pages become text in linear time."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.execution.tools import texts
from engine.execution.tools.page_text import html_to_text
from tests.support.helpers import read_table

ROWS = read_table(__file__)


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        (b"a\r\nb\r\nc\r\n", "a\nb", "x\ny\nz", b"x\r\ny\r\nz\r\nc\r\n"),
        (b"a\r\nb\r\n", "b", "b\nc", b"a\r\nb\r\nc\r\n"),
        (b"a\r\nb\r\n", "a\r\nb", "x\r\ny", b"x\r\ny\r\n"),
        (b"a\nb\r\nc\n", "a", "x\ny", b"x\ny\nb\r\nc\n"),
        (b"a\nb\r\nc\n", "b\nc", "x\ny", b"a\nx\r\ny\n"),
        ("\ufeffa\n".encode(), "a", "b", "\ufeffb\n".encode()),
        (b"gr\xfc\xdf a", "a", "b", b"gr\xfc\xdf b"),
    ],
)
def test_edit_keeps_line_endings_and_other_bytes(before: bytes, old: str, new: str, after: bytes) -> None:
    assert texts.replace_once(before, old, new)[0] == after


@pytest.mark.long
@pytest.mark.parametrize(
    "rubbish",
    ROWS["hostile_html_is_read_in_linear_time"],
)
def test_hostile_html_is_read_in_linear_time(rubbish: str) -> None:
    long = rubbish * (250_000 // len(rubbish))
    began = time.thread_time()
    html_to_text(long)
    html_to_text(long + ">" + long)
    assert time.thread_time() - began < 1.5


PIECES = (
    "<p>",
    "</p>",
    "<a href=/x>",
    "</a>",
    "<pre>",
    "x ",
    "&lt;",
    "<![",
    "<!--",
    "-->",
    "<script>",
    "</script>",
    "\n",
)


@given(st.text(max_size=300) | st.lists(st.sampled_from(PIECES)).map("".join))
def test_any_html_becomes_text(html: str) -> None:
    html_to_text(html)


@pytest.mark.parametrize(
    ("html", "text"),
    ROWS["html_as_text"],
)
def test_html_as_text(html: str, text: str) -> None:
    assert html_to_text(html) == text
