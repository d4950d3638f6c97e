"""Secrets are cut out of text however it comes: whole, in pieces, over several lines (SPEC 11.1)."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.values.secrets import (
    CUT,
    LONGEST,
    PRIVATE_KEY_LINES,
    Redactor,
    parting,
    redact,
    redact_json,
    redact_lines,
)

KNOWN = "correct-horse-battery"
SHAPED = "sk-ant-0123456789abcdefghij"
NAMED = "hunter2hunter2"
PRIVATE = [
    "-----BEGIN OPENSSH PRIVATE KEY-----",
    "b3BlbnNzaC1rZXk",
    "AAAAB3NzaC1yc2E",
    "-----END OPENSSH PRIVATE KEY-----",
]

WORDS = ["the", "key", "password:", "=", "is", "done.", "Authorization: Bearer", KNOWN, SHAPED, NAMED]
TELLING = [f"API_KEY={NAMED}", f"password = {NAMED}", f"https://me:{NAMED}@box/repo", f'"token": "{KNOWN}",']
SAID = st.lists(st.sampled_from([*WORDS, *TELLING]), max_size=30).map(" ".join)


def clean(text: str) -> str:
    return redact(text, [KNOWN])


@given(st.lists(st.sampled_from(["plain", "", f"x {KNOWN} y", f"PASSWORD={NAMED}", SHAPED, *PRIVATE]), max_size=12))
def test_lines_that_come_in_pieces_are_cut_as_the_whole_is(lines: list[str]) -> None:
    whole = redact_lines(lines, [KNOWN])
    for cut in range(len(lines) + 1):
        redactor = Redactor(lambda: [KNOWN])
        assert redactor.lines(lines[:cut]) + redactor.lines(lines[cut:]) == whole


def test_a_private_key_whose_end_never_comes_does_not_hide_everything_after_it() -> None:
    redactor = Redactor()
    assert redactor.lines([PRIVATE[0]]) == [CUT]
    for _ in range(PRIVATE_KEY_LINES):
        assert redactor.lines(["AAAA"]) == [CUT]
    assert redactor.lines(["3 tests passed"]) == ["3 tests passed"]


def test_a_key_is_known_from_the_moment_it_is_used() -> None:
    known: list[str] = []
    redactor = Redactor(lambda: known)
    assert redactor.lines([KNOWN]) == [KNOWN]
    known.append(KNOWN)
    assert redactor.lines([KNOWN]) == [CUT]


@given(SAID, st.lists(st.integers(0, 400), max_size=6))
@example(f"the password: {NAMED} is done.", [25])
@example(f"Authorization: Bearer {KNOWN}", [30])
def test_no_secret_is_torn_where_a_text_is_parted(text: str, stops: list[int]) -> None:
    shown, begin = [], 0
    for stop in sorted(stops):  # so far it came when it was to be shown
        place = parting(text[begin:stop], clean)
        shown.append(clean(text[begin : begin + place]))
        begin += place
    shown.append(clean(text[begin:]))
    told = "".join(shown)
    assert KNOWN not in told
    assert SHAPED not in told
    assert told == clean(text), "what is shown piece by piece is what would be shown at once"


@pytest.mark.parametrize("word", ["x" * 50_000, SHAPED * 2_000])
def test_a_word_without_end_is_shown_all_the_same(word: str) -> None:
    rest = word
    while place := parting(rest, clean):
        rest = rest[place:]
    assert len(rest) <= 4 * LONGEST


@pytest.mark.parametrize(
    "code",
    ["password=getpassword2(user)", "secret = base64.b64decode(text)", "api_key: str", "if token == other_token_2:"],
)
def test_code_that_only_names_a_secret_stays_readable(code: str) -> None:
    assert redact(code) == code


def test_every_text_of_a_json_value_is_cut_but_what_is_to_be_kept() -> None:
    value = {"facts": [SHAPED, 3, None], "id": SHAPED, "deep": {"text": f"PASSWORD={NAMED}"}}
    expected = {"facts": [CUT, 3, None], "id": SHAPED, "deep": {"text": f"PASSWORD={CUT}"}}
    assert redact_json(value, kept={"id"}) == expected


@given(st.text(st.characters(max_codepoint=127), max_size=60), st.sampled_from(["", "PASSWORD=", "my key: ", "://a:"]))
def test_what_is_passed_over_quickly_has_nothing_to_cut(text: str, before: str) -> None:
    line = before + text
    slowly = partial(Redactor(lambda: [KNOWN])._line, values=[KNOWN])
    assert "\n".join(redact_lines(line.split("\n"), [KNOWN])) == "\n".join(map(slowly, line.split("\n")))
