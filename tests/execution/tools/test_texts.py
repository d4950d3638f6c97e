"""Texts for tools: changes keep line ends and other bytes, a diff shows what git would show, HTML becomes text (SPEC
3.8)."""

import time

import pytest

from engine.execution.tools.toolbelt import make_unified_diff, replace_once
from engine.execution.tools.web import convert_html_to_text
from tests.support.helpers import read_table


@pytest.mark.parametrize(
    "before, old, new, after",
    [
        (b"a\r\nb\r\nc\r\n", "a\nb", "x\ny\nz", b"x\r\ny\r\nz\r\nc\r\n"),
        (b"a\r\nb\r\n", "b", "b\nc", b"a\r\nb\r\nc\r\n"),
        (b"a\r\nb\r\n", "a\r\nb", "x\r\ny", b"x\r\ny\r\n"),
        (b"a\nb\r\nc\n", "a", "x\ny", b"x\ny\nb\r\nc\n"),
        ("\ufeffa\n".encode(), "a", "b", "\ufeffb\n".encode()),
        (b"gr\xfc\xdf a", "a", "b", b"gr\xfc\xdf b"),
    ],
)
def test_a_replacement_keeps_line_ends_and_other_bytes(before: bytes, old: str, new: str, after: bytes):
    assert replace_once(before, old, new)[0] == after


@pytest.mark.parametrize(
    "before, after, changes",
    [
        pytest.param("a\r\nb\r\n", "a\nb\n", ["-a␍", "-b␍", "+a", "+b"], id="line ends"),
        pytest.param("a\n", "a", ["-a", "+a", "\\ No newline at end of file"], id="the last newline"),
        pytest.param("a\u2028b\fc\n", "a\u2028b\fd\n", ["-a\u2028b\fc", "+a\u2028b\fd"], id="one line"),
        pytest.param("", "a\n", ["+a"], id="a new file"),
    ],
)
def test_a_diff_shows_each_change_that_git_shows(before: str, after: str, changes: list[str]):
    assert make_unified_diff(before, after, "cart.py").split("\n")[3:] == changes


# HTML


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


@pytest.mark.parametrize("html, text", ROWS["texts"])
def test_html_becomes_text_that_a_person_would_read(html: str, text: str):
    assert convert_html_to_text(html) == text
