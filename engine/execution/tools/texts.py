"""Edits and shows text for the file tools: parts of a file, one replacement, diffs. Functions over values."""

from __future__ import annotations

import difflib

from engine.model import Refusal

MAX_RESULT = 50_000
"""Characters of one call's result that a model receives."""

MAX_DIFF = 20_000
"""Characters of a diff that are shown."""

MAX_COMPARED_LINES = 5_000
"""Lines of a file that are compared: the time grows with the square of their number."""

_BINARY_PROBE_BYTES = 8_192


def is_binary(data: bytes) -> bool:
    """Whether data is not text: it has a NUL near its beginning."""
    return b"\0" in data[:_BINARY_PROBE_BYTES]


def split_lines(text: str) -> list[str]:
    """The lines as editors and diffs count them: only a newline ends one. Each keeps its end."""
    *whole, rest = text.split("\n")
    return [f"{line}\n" for line in whole] + ([rest] if rest else [])


def numbered_lines(text: str, first: int, count: int | None) -> str:
    """`count` lines of `text` from line `first` (from 1), whole lines, at most `MAX_RESULT` characters; a last
    line in square brackets says what was left out."""
    lines = split_lines(text)
    total = len(lines)
    start = min(max(first, 1) - 1, total)
    requested = lines[start : None if count is None else start + count]
    shown: list[str] = []
    size = 0
    for line in requested:
        if size + len(line) > MAX_RESULT:
            break
        shown.append(line)
        size += len(line)
    if not shown and requested:
        line = requested[0]
        return f"{line[:MAX_RESULT]}\n[line {start + 1} of {total:,} has {len(line):,} characters, cut here]"
    end = start + len(shown)
    if start == 0 and end == total:
        return "".join(shown)
    if not shown:
        return f"[the file has {total:,} lines; nothing from line {first}]"
    more = f"; go on with first_line {end + 1}" if end < total else ""
    text = "".join(shown)
    if not text.endswith("\n"):
        text += "\n"
    return f"{text}[lines {start + 1}-{end} of {total:,}{more}]"


def tail_of(text: str) -> str:
    """The end of `text`, whole lines where possible; a first line in square brackets says what was left out."""
    if len(text) <= MAX_RESULT:
        return text
    tail = text[-MAX_RESULT:]
    tail = tail.partition("\n")[2] or tail
    return f"[the first {len(text) - len(tail):,} characters were left out]\n{tail}"


def replace_once(data: bytes, old: str, new: str) -> tuple[bytes, int]:
    """`data` with its only occurrence of `old` replaced, and the number of its line. Line endings stay as they are.

    Raises `Refusal` `empty_text`, `no_change`, `not_found`, `not_unique`.
    """
    if not old:
        raise Refusal("empty_text", "old_text is empty", "give the text to replace, or use write for a whole file")
    if old == new:
        raise Refusal("no_change", "old_text and new_text are the same", "nothing was changed")
    windows = b"\r\n" in data
    before, after = old.encode(), new.encode()
    count = data.count(before)
    if windows and "\r" not in old:
        # Models write \n; the file has \r\n, everywhere or at least there.
        if not count and "\n" in old:
            before = old.replace("\n", "\r\n").encode()
            count = data.count(before)
            after = new.replace("\r\n", "\n").replace("\n", "\r\n").encode()
        elif data.count(b"\n") == data.count(b"\r\n"):
            after = new.replace("\r\n", "\n").replace("\n", "\r\n").encode()
    if not count:
        raise Refusal(
            "not_found", "old_text is not in the file", "read it again and copy exactly, spaces and line ends too"
        )
    if count > 1:
        raise Refusal(
            "not_unique",
            f"old_text is in the file {count} times",
            "give more of the lines around it, so that it is one",
        )
    return data.replace(before, after), data[: data.index(before)].count(b"\n") + 1


def unified_diff(before: str, after: str, path: str) -> str:
    """The change of a file as the operator sees it; "" for none."""
    old, new = before.splitlines(), after.splitlines()
    if max(len(old), len(new)) > MAX_COMPARED_LINES:
        return f"{path}: {len(old):,} lines become {len(new):,}"
    lines = list(difflib.unified_diff(old, new, path, path, lineterm=""))
    diff = "\n".join(lines)
    if len(diff) <= MAX_DIFF:
        return diff
    return f"{diff[: diff.rfind(chr(10), 0, MAX_DIFF)]}\n… [the rest of the change is not shown]"
