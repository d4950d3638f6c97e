"""Makes the texts of files and of output that a model gets from its tools, and changes texts for it (SPEC 3.8)."""

from __future__ import annotations

import difflib

from engine.model import Refusal

MAX_RESULT_CHARS = 50_000
"""Maximum number of characters of a tool's result that a model receives."""

MAX_COMPARED_LINES = 5_000
"""Maximum number of lines of a file that are compared. The time grows with the square of their number."""

NO_NEWLINE = "\\ No newline at end of file"
"""The line of a diff below a line that no newline ends, as git writes it."""

_BINARY_PROBE_BYTES = 8_192


def is_binary(data: bytes) -> bool:
    """Whether data is not text, which is so if it has a NUL near its beginning."""
    return b"\0" in data[:_BINARY_PROBE_BYTES]


def split_lines(text: str) -> list[str]:
    """The lines of a text, each with its newline. Only a newline ends a line, as in editors and diffs."""
    *whole, rest = text.split("\n")
    return [f"{line}\n" for line in whole] + ([rest] if rest else [])


def cut_lines(text: str, first: int, count: int | None) -> str:
    """`count` lines of `text`, starting at line `first` (from 1). None for all lines.

    The result has at most `MAX_RESULT_CHARS` characters of whole lines. If anything was left out, a last line in square
    brackets says so.
    """
    lines = split_lines(text)
    total = len(lines)
    start = min(max(first, 1) - 1, total)
    requested = lines[start : None if count is None else start + count]
    shown_lines: list[str] = []
    size = 0
    for line in requested:
        if size + len(line) > MAX_RESULT_CHARS:
            break
        shown_lines.append(line)
        size += len(line)
    if not shown_lines and requested:
        line = requested[0]
        return f"{line[:MAX_RESULT_CHARS]}\n[line {start + 1} of {total:,} has {len(line):,} characters, cut here]"
    end = start + len(shown_lines)
    if start == 0 and end == total:
        return "".join(shown_lines)
    if not shown_lines:
        return f"[the file has {total:,} lines; nothing from line {first}]"
    more = f"; go on with first_line {end + 1}" if end < total else ""
    part = "".join(shown_lines)
    line_break = "" if part.endswith("\n") else "\n"
    return f"{part}{line_break}[lines {start + 1}-{end} of {total:,}{more}]"


def keep_tail(text: str) -> str:
    """The last `MAX_RESULT_CHARS` characters of `text`, in whole lines if possible. If anything was left out, a first
    line in square brackets says so."""
    if len(text) <= MAX_RESULT_CHARS:
        return text
    tail = text[-MAX_RESULT_CHARS:]
    tail = tail.partition("\n")[2] or tail
    return f"[the first {len(text) - len(tail):,} characters were left out]\n{tail}"


def replace_once(data: bytes, old: str, new: str) -> tuple[bytes, int]:
    """Replace the only occurrence of `old` in `data`. Returns the new data and the number of the changed line. Line
    endings stay as they are.

    Raises `Refusal` `empty_text`, `no_change`, `not_found`, `not_unique`.
    """
    if not old:
        raise Refusal("empty_text", "old_text is empty", "give the text to replace, or use write for a whole file")
    if old == new:
        raise Refusal("no_change", "old_text and new_text are the same", "give the text that old_text is to become")
    before, after = old.encode(), new.encode()
    if 0 < data.count(b"\n") == data.count(b"\r\n"):  # models write \n, also for a file that has \r\n
        before, after = (text.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n") for text in (before, after))
    start = data.find(before)
    if start < 0:
        fix = "read it again and copy exactly, spaces and line ends too"
        raise Refusal("not_found", "old_text is not in the file", fix)
    if data.find(before, start + 1) > 0:  # occurrences may overlap
        message = "old_text is in the file more than once"
        raise Refusal("not_unique", message, "give more of the lines around it, so that it is one")
    return data[:start] + after + data[start + len(before) :], data[:start].count(b"\n") + 1


def make_unified_diff(before: str, after: str, path: str) -> str:
    """The change of a file as a diff for the operator; "" if nothing changed. A carriage return is shown as ␍, so that
    a change of line ends can be seen."""
    old, new = split_lines(before), split_lines(after)
    if max(len(old), len(new)) > MAX_COMPARED_LINES:
        return f"{path}: {len(old):,} lines become {len(new):,}"
    lines = difflib.unified_diff(old, new, path, path)
    diff = "".join(line if line.endswith("\n") else f"{line}\n{NO_NEWLINE}\n" for line in lines)
    return diff.removesuffix("\n").replace("\r", "␍")
