"""Hunks: applying some of them, and finding which are in a file (SPEC 3.9)."""

from hypothesis import given
from hypothesis import strategies as st

from engine.execution.diffs import apply_hunks, find_hunks


def test_hunks_apply_with_and_without_a_final_line_break():
    assert apply_hunks(b"a\nb", b"a\nb\n", [(0, 2, 0, 2)], {1}) == b"a\nb\n"
    assert apply_hunks(b"a\nb\n", b"a\nb", [(0, 2, 0, 2)], {1}) == b"a\nb"
    assert apply_hunks(b"", b"x\r\ny", [(0, 0, 0, 2)], {1}) == b"x\r\ny"
    assert apply_hunks(b"1\n2\n3\n", b"1\r\n2\n", [(0, 1, 0, 1), (2, 3, 2, 2)], {2}) == b"1\n2\n"


@given(st.data())
def test_the_hunks_of_a_file_are_found_in_it(data: st.DataObject):
    """Also where lines repeat, hunks are empty on one side, or lie side by side."""
    lines = st.lists(st.sampled_from((b"a\n", b"b\n", b"a\r\n")), max_size=3)
    old, new = b"", b""
    spans = []
    for same, removed, added in data.draw(st.lists(st.tuples(lines, lines, lines), max_size=6)):
        old, new = old + b"".join(same), new + b"".join(same)
        start, new_start = old.count(b"\n"), new.count(b"\n")
        old, new = old + b"".join(removed), new + b"".join(added)
        spans.append((start, old.count(b"\n"), new_start, new.count(b"\n")))
    chosen = data.draw(st.sets(st.integers(1, max(1, len(spans))), max_size=len(spans)))
    file = apply_hunks(old, new, spans, chosen)
    numbers = find_hunks(file, old, new, spans)
    assert numbers is not None
    assert apply_hunks(old, new, spans, numbers) == file
    assert find_hunks(file + b"more\n", old, new, spans) is None
