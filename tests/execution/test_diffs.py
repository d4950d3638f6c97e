"""Hunks of a file, which are numbered in the diff of a whole change set (SPEC 3.9)."""

from hypothesis import given
from hypothesis import strategies as st

from engine.execution.diffs import apply_hunks, find_hunks


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
