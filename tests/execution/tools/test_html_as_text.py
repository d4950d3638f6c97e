"""HTML becomes text that a person would read, in linear time, however broken it is."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.execution.tools.texts import convert_html_to_text


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


@pytest.mark.parametrize(
    "html, text",
    [
        ("a<b>b</b> c", "ab c"), ("a\n\n b", "a b"), ("1 < 2 > 1", "1 < 2 > 1"), ("<p>a<p>b", "a\n\nb"),
        ("<script>a<p></SCRIPT >b", "b"), ("<pre>  a\n\tb</pre>", "```\n  a\n\tb\n```"), ("<a href=x>a</a>", "a"),
        ("<a href=\"/y?a=1&amp;b\">a</a>", "a (/y?a=1&b)"), ("<div hidden><div>a</div>b</div>c", "c"),
        ("<div\thidden>a</div>c", "c"), ("<div class='hidden'>a</div>c", "a\n\nc"), ("<td>1<td>2", "| 1 | 2"),
        ("<!doctype html><!-- <p>x -->a", "a"), ("<img src=x alt='cat'>", "[cat]"), ("", ""), ("<", "<"), ("a<b", "a"),
    ],
)  # fmt: skip
def test_html_becomes_text_that_a_person_would_read(html: str, text: str):
    assert convert_html_to_text(html) == text
