"""HTML becomes text that a person would read, in linear time, however broken it is."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.execution.tools.texts import convert_html_to_text
from tests.support.helpers import read_table

ROWS = read_table(__file__)


@pytest.mark.long
@pytest.mark.parametrize(
    "rubbish",
    [
        "<!", "<![foo[", "<a ", "<a href='", "&#", "<!--", "<div>", "<script>", "<pre>x</pre>", "</", "<?", "<b> </b> ",
        "<a href='x ", "<p hidden ", " \t", "<svg>", "<title>", "&amp", "<img alt=\"", "<", ">", "<a\n\n\n href \n\n",
    ],
)  # fmt: skip
def test_hostile_html_is_read_in_linear_time(rubbish: str):
    long = rubbish * (250_000 // len(rubbish))
    began = time.thread_time()
    convert_html_to_text(long)
    convert_html_to_text(long + ">" + long)
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
def test_any_html_becomes_text(html: str):
    convert_html_to_text(html)


@pytest.mark.parametrize("html, text", ROWS["texts"])
def test_html_becomes_text_that_a_person_would_read(html: str, text: str):
    assert convert_html_to_text(html) == text
