"""An edit of a model replaces one text of a file, and keeps all other bytes (SPEC 3.8)."""

from __future__ import annotations

import pytest

from engine.execution.tools.texts import replace_once


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
    assert replace_once(before, old, new)[0] == after
