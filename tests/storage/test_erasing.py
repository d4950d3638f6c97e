"""Search terms find whole words and long quotes, and are removed from every text of a database (SPEC 4.10)."""

import html
import json
import sqlite3
import zlib
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model import Refusal
from engine.storage import erasing
from engine.storage.erasing import SearchTerms

SENTENCE = "The operator of this shop lives in Utrecht and never answers before noon"


@pytest.mark.parametrize(
    "term, text, rest",
    [
        ("Bob Lee", "so BOB\n  lee said", "so  said"),
        ("Bob Lee", "hi Bob  Lee!", "hi !"),
        ("Bob Lee", "Bob Leeson", None),
        (SENTENCE, f"wants “{SENTENCE[:50]}…” instead", "wants “” instead"),
        (SENTENCE, f"wants “{SENTENCE[:40]}…” instead", None),
        (SENTENCE, "The operator of this shop lives in Utrecht, as one does", None),
    ],
    ids=["any case and space", "signs stay", "part of a word", "long quote", "quote of seven words", "no quote"],
)
def test_whole_words_and_long_quotes_are_found_and_removed(term: str, text: str, rest: str | None):
    terms = SearchTerms([term])
    assert terms.match(text) is (rest is not None)
    assert terms.remove_from(text) == (text if rest is None else rest)


TOLD = 'Zoë said "größer & <b>" to C:\\\\Jörg\n😀 there'


@pytest.mark.parametrize(
    "escaped",
    [
        pytest.param(html.escape(TOLD), id="XML"),
        pytest.param(json.dumps({"content": f"# Notes\n{TOLD}"}), id="JSON"),
        pytest.param(
            json.dumps({"content": f"# Notes\n{TOLD}"}, ensure_ascii=False), id="JSON with letters of any kind"
        ),
        pytest.param(json.dumps(json.dumps([TOLD])), id="JSON within JSON"),
        pytest.param(json.dumps(html.escape(TOLD, quote=False)), id="XML within JSON"),
    ],
)
def test_a_text_is_removed_in_the_form_that_another_text_gives_it(escaped: str):
    terms = SearchTerms([TOLD])
    rest = terms.remove_from(f"write({escaped})")
    assert "said" not in rest
    assert rest.endswith(escaped[escaped.index("there") + 5 :] + ")")


@pytest.mark.parametrize("part", ["\\", '\\"a', "\\\na", "\\ö"], ids=["backslashes", "quotes", "lines", "letters"])
def test_a_text_with_many_backslashes_is_searched_for_in_linear_time(part: str):
    """Otherwise this test does not end."""
    told = f"abc{part * 60}def"
    terms = SearchTerms([told])
    for escaped in (told, json.dumps(told), json.dumps(json.dumps(told))):
        assert not terms.match(escaped.replace("def", "deg"))
        assert "abc" not in terms.remove_from(escaped)


@given(st.text(), st.text(min_size=1))
def test_a_term_that_is_accepted_is_removed(text: str, term: str):
    try:
        terms = SearchTerms([term])
    except Refusal:
        return
    assert len(terms.remove_from(f"{text} {term} {text}")) < len(text) * 2 + len(term) + 2


def test_json_and_compressed_values_are_searched_too_but_no_times():
    terms = SearchTerms(["Zoë Müller", "2026"])
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(
            "CREATE TABLE notes (id INTEGER PRIMARY KEY, payload JSON, body BLOB, said TEXT, at VARCHAR(32))"
        )
        packed = zlib.compress(json.dumps({"a": "by Zoë Müller"}).encode())
        rows = [(1, json.dumps(["Zoë Müller", 1]), packed, "zoë müller!"), (2, "[1]", b"\x78\x9cvector", "other")]
        connection.executemany("INSERT INTO notes VALUES (?, ?, ?, ?, '2026-01-05T09:30:00Z')", rows)
        assert len(list(erasing.find(connection, terms))) == 3
        assert erasing.erase(connection, terms) == 3
        payload, body, said = connection.execute("SELECT payload, body, said FROM notes WHERE id = 1").fetchone()
        assert json.loads(payload) == ["", 1]
        assert json.loads(zlib.decompress(body)) == {"a": "by "}
        assert said == "!"
        assert erasing.erase(connection, terms) == 0
