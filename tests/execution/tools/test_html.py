"""HTML becomes the text that a person would read, in linear time however hostile it is (SPEC 3.8)."""

import time

import pytest

from engine.execution.tools.web import convert_html_to_text
from tests.support import read_table

TABLE = read_table(__file__)


@pytest.mark.long
@pytest.mark.parametrize("rubbish", TABLE["rubbish"])
def test_hostile_html_is_read_in_linear_time(rubbish: str):
    long = rubbish * (250_000 // len(rubbish))
    began = time.thread_time()
    convert_html_to_text(long)
    convert_html_to_text(long + ">" + long)
    assert time.thread_time() - began < 1.5


@pytest.mark.parametrize("html, text", TABLE["texts"])
def test_html_becomes_text_that_a_person_would_read(html: str, text: str):
    assert convert_html_to_text(html) == text
