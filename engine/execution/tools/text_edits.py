"""Operations of the tools on text: parts of a file, one replacement, results of bounded size. Pure."""

from __future__ import annotations

import difflib

from engine.model import Refusal

MAX_RESULT = 50_000
"""Characters of one call's result that a model receives."""

_BINARY_PROBE_BYTES = 8_192


def is_binary(data: bytes) -> bool:
    """Whether data is not text: it has a NUL near its beginning."""
    return b"\0" in data[:_BINARY_PROBE_BYTES]


def split_lines(text: str) -> list[str]:
    """The lines as editors and diffs count them: only a newline ends one. Each keeps its end."""
    *whole, rest = text.split("\n")
    return [f"{line}\n" for line in whole] + ([rest] if rest else [])


def numbered_lines(text: str, first: int, count: int | None, *, limit: int = MAX_RESULT) -> str:
    """`count` lines of `text` from line `first` (from 1), whole lines, at most `limit` characters; a last line in
    square brackets says what was left out."""
    lines = split_lines(text)
    total = len(lines)
    start = min(max(first, 1) - 1, total)
    requested = lines[start : None if count is None else start + count]
    shown: list[str] = []
    size = 0
    for line in requested:
        if size + len(line) > limit:
            break
        shown.append(line)
        size += len(line)
    if not shown and requested:
        return f"{requested[0][:limit]}\n[line {start + 1} of {total:,} has {len(requested[0]):,} characters, cut here]"
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


def tail_of(text: str, *, limit: int = MAX_RESULT) -> str:
    """The end of `text`, whole lines where possible; a first line in square brackets says what was left out."""
    if len(text) <= limit:
        return text
    tail = text[-limit:]
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
            "not_found", f"old_text is not in the file{_hint_of_similar(data, old)}", "read it again and copy exactly"
        )
    if count > 1:
        raise Refusal(
            "not_unique",
            f"old_text is in the file {count} times",
            "give more of the lines around it, so that it is one",
        )
    return data.replace(before, after), data[: data.index(before)].count(b"\n") + 1


def _hint_of_similar(data: bytes, old: str) -> str:
    """A hint at a line that differs from `old` in its spaces only, "" for none."""
    first = next((line.strip() for line in old.splitlines() if line.strip()), "")
    if not first:
        return ""
    for number, line in enumerate(data.decode(errors="replace").splitlines(), 1):
        if line.strip() == first:
            return f" (line {number} has the same words with other spaces, or what follows it differs)"
    return ""


def unified_diff(before: str, after: str, path: str, *, limit: int = 20_000) -> str:
    """The change of a file as the operator sees it before allowing it."""
    old_count, new_count = before.count("\n"), after.count("\n")
    if max(old_count, new_count) > 5_000:
        return f"{path}: {old_count:,} lines become {new_count:,}"
    pieces: list[str] = []
    size = 0
    for line in difflib.unified_diff(before.splitlines(), after.splitlines(), path, path, lineterm=""):
        size += len(line) + 1
        if size > limit:
            pieces.append("… [the rest of the change is not shown]")
            break
        pieces.append(line)
    return "\n".join(pieces)
