"""Text: a marked section is written without a change of any other byte of the file (SPEC 1.6), and names are joined in
words."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.files import INHERITED, find_section, write_section
from engine.model.text import join_names, join_shortened

OPEN, CLOSE = INHERITED.opening, INHERITED.closing

DATA = st.lists(
    st.sampled_from([OPEN.encode(), CLOSE.encode(), b"\n", b"\r\n", b"## Inherited Wisdom", b"<!--", b"-->", b"\r"])
    | st.binary(max_size=12),
    max_size=10,
).map(b"".join)
BODIES = st.text(max_size=60) | st.sampled_from(["", OPEN, CLOSE, f"{CLOSE}\n{OPEN}", "a\nb"])


@given(DATA, BODIES, BODIES)
@example(b"no newline at the end", "body", "")
@example(f"{OPEN}stray\n{OPEN}\nold\n{CLOSE} tail {CLOSE}".encode(), "body", "other")
def test_every_other_byte_stays_and_twice_is_once(data: bytes, body: str, former_body: str):
    written = write_section(data, body, INHERITED)
    assert write_section(written, body, INHERITED) == written
    before, after = find_section(data, INHERITED), find_section(written, INHERITED)
    if before is not None:
        assert written[: after[0]] == data[: before[0]]
        assert written[after[1] :] == data[before[1] :]
    elif body:
        assert written.startswith(data)
        assert (written[len(data) : after[0]] + written[after[1] :]).strip() == b""
    else:
        assert written == data
    if body:
        assert write_section(write_section(written, former_body, INHERITED), body, INHERITED) == written


@pytest.mark.parametrize(
    "data, body, expected",
    [
        (b"# A\r\ntext", "one\ntwo", f"# A\r\ntext\r\n\r\n{OPEN}\r\none\r\ntwo\r\n{CLOSE}\r\n"),
        (b"", "one", f"{OPEN}\none\n{CLOSE}\n"),
    ],
    ids=["windows", "empty file"],
)
def test_a_section_has_the_line_ends_of_its_file(data: bytes, body: str, expected: str):
    assert write_section(data, body, INHERITED) == expected.encode()


def test_names_are_joined_in_words_and_cut_from_the_left():
    assert join_names([]) == ""
    assert join_names(["a"]) == "a"
    assert join_names(["a", "b", "c"]) == "a, b and c"
    assert join_names(["a", "b", "c"], 2) == "a, b and 1 more"
    assert join_names(["evil\x1b[31m\nname"]) == "evil name"
    assert join_shortened(["a", "src/shop/cart.py"], 2, 8) == "a and …cart.py"
