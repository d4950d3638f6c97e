"""Documentation that still names what your own work renamed or removed."""

from __future__ import annotations

import os.path
import re
import time
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Final

from engine.frozen import frozen
from engine.git import Git
from engine.git.patch import Line, Patch

MAX_NAMES: Final = 60
MAX_MENTIONS: Final = 50
MAX_LINES: Final = 1_000
"""So many lines of documentation are looked at."""
MIN_NAME_LENGTH: Final = 4
TIMEOUT_S: Final = 5.0

_DOCUMENTS: Final = (".md", ".markdown", ".rst", ".txt", ".adoc")
_IN_DOCUMENTS: Final = tuple(f":(glob,icase)**/*{suffix}" for suffix in _DOCUMENTS)
_ELSEWHERE: Final = tuple(f":(exclude,glob,icase)**/*{suffix}" for suffix in _DOCUMENTS)
_HISTORY: Final = re.compile(
    r"(?:^|/)(?:change|history|news|release|upgrad|migrat|changes)[^/]*(?:$|/)|(?:^|/)requirements[^/]*\.txt$"
    r"|(?:^|/)(?:licen[cs]e|authors|robots)[^/]*$|(?:^|/)(?:CMakeLists|testdata|fixtures)",
    re.I,
)
"""Files that speak of what was, and texts that are no documentation."""
_PAST: Final = re.compile(r"\b(?:removed|renamed|deprecated|formerly|used to|replaced|instead of|no longer)\b", re.I)

_CODE: Final = re.compile(
    r"\.(?:py|pyi|js|jsx|mjs|cjs|ts|tsx|go|rs|rb|php|java|kt|kts|scala|swift|c|h|cc|cpp|hpp|cs|ex|exs|sh|lua|pl|vue)$"
)
_CONFIG: Final = re.compile(r"\.(?:toml|ya?ml|ini|cfg|conf|json|env|properties)$")
_DEFINED: Final = re.compile(
    r"^\s*(?:(?:pub(?:\([^)]*\))?|export|default|async|public|private|protected|internal|static|final|abstract|override"
    r"|open|data|suspend|unsafe|const)\s+)*"
    r"(?P<word>def|class|function\*?|fn|func|fun|struct|enum|trait|interface|type|module|object|const|let|var|defp?)\s+"
    r"(?:\([^)]*\)\s*)?(?:self\.)?(?P<name>[A-Za-z_]\w*[?!]?)"
)
_CONSTANT: Final = re.compile(r"^(?P<name>[A-Z][A-Z0-9_]{3,})\s*(?::[^=]+)?=[^=]")
_OPTION: Final = re.compile(r"""["'`](?P<name>--[a-z][a-z0-9-]{2,})["'`=\s,]""")
_KEY: Final = re.compile(r"""^\s*["']?(?P<name>[A-Za-z][\w-]*[A-Za-z0-9])["']?\s*[:=]""")
_LOOKS_LIKE_CODE: Final = re.compile(r"_|[a-z0-9][A-Z]|[/.]|^--|\d")


@frozen
class Mention:
    """A line of documentation that names `old`, which is gone. `new` is what took its place, "" where that is not
    evident. `line` counts from 1. `text` is the line as it stands there."""

    path: str
    line: int
    old: str
    new: str = ""
    text: str = ""


@frozen
class Gone:
    """A name that the patch took away. `new` as in `Mention`."""

    name: str
    new: str = ""


def stale_mentions(git: Git, patch: Patch) -> tuple[Mention, ...]:
    """Lines of documentation that name what `patch` took away and what is nowhere in the sources any more, by path and
    line. Costs at most three processes, none where nothing was taken away. Raises `GitError`, also when they
    take longer than `TIMEOUT_S` together."""
    gone = {one.name: one for one in gone_names(git, patch)}
    if not gone:
        return ()
    deadline = time.monotonic() + TIMEOUT_S
    found = [one for one in _grep(git, list(gone), _IN_DOCUMENTS, deadline) if not _HISTORY.search(one.path)]
    mentions: list[Mention] = []
    for one in found[:MAX_LINES]:
        if _PAST.search(one.text):
            continue
        here = [name for name, is_gone in gone.items() if _names(one.text, name) and not _is_new(one.text, is_gone)]
        for name in here:
            if not any(name != other and name in other for other in here):  # `cart.py` of `src/cart.py` is no other
                mentions.append(Mention(one.path, one.line, name, gone[name].new, one.text.strip()[:300]))
    alive = _alive(git, {mention.old for mention in mentions}, deadline)
    return tuple(
        sorted((mention for mention in mentions if mention.old not in alive), key=lambda one: (one.path, one.line))
    )[:MAX_MENTIONS]


def _is_new(text: str, gone: Gone) -> bool:
    return bool(gone.new) and _names(text, gone.new)


def gone_names(git: Git, patch: Patch) -> list[Gone]:
    """Names and paths that the patch removes and does not bring back, at most `MAX_NAMES`, paths first."""
    paths = dict(patch.renamed)
    new_paths = {new for _, new in patch.renamed} | patch.untracked | {one.path for one in patch.added}
    for old in patch.deleted:
        same = [new for new in new_paths if PurePosixPath(new).name == PurePosixPath(old).name]
        paths.setdefault(old, same[0] if len(same) == 1 else "")
    found = [
        Gone(old, new)
        for old, new in paths.items()
        if len(old) >= MIN_NAME_LENGTH and not os.path.lexists(git.folder / old)
    ]  # fmt: skip
    found += [
        Gone(PurePosixPath(one.name).name, PurePosixPath(one.new).name)
        for one in found
        if "/" in one.name and PurePosixPath(one.name).name != PurePosixPath(one.new or "x").name
    ]
    added = {name for one in patch.added for _, name in _definitions(one)}
    by_hunk: dict[tuple[int, str], set[str]] = {}
    for one in patch.added:
        for word, name in _definitions(one):
            by_hunk.setdefault((one.hunk, word), set()).add(name)
    taken: dict[tuple[int, str], set[str]] = {}
    for one in patch.removed:
        for word, name in _definitions(one):
            if len(name) >= MIN_NAME_LENGTH and name not in added:
                taken.setdefault((one.hunk, word), set()).add(name)
    for (hunk, word), names in taken.items():
        new = by_hunk.get((hunk, word), set())
        only = next(iter(new)) if len(new) == 1 and len(names) == 1 else ""
        found += [Gone(name, only) for name in sorted(names)]
    return list({one.name: one for one in reversed(found)}.values())[::-1][:MAX_NAMES]


def _definitions(line: Line) -> Iterable[tuple[str, str]]:
    """What a line defines: (the kind of thing, its name)."""
    if _CONFIG.search(line.path):
        if match := _KEY.match(line.text):
            yield "key", match["name"]
        return
    if not _CODE.search(line.path):
        return
    if match := _DEFINED.match(line.text):
        local = match["word"] in ("const", "let", "var") and line.text[:1].isspace()
        if not local and not match["name"].startswith(("test_", "__")):
            yield match["word"], match["name"]
    elif match := _CONSTANT.match(line.text):
        yield "constant", match["name"]
    yield from (("option", match["name"]) for match in _OPTION.finditer(line.text))


def _names(text: str, name: str) -> bool:
    """Whether a line of documentation names this, and means code when it does."""
    word = rf"(?<![\w-]){re.escape(name)}(?![\w-])"
    if _LOOKS_LIKE_CODE.search(name):
        return re.search(word, text) is not None
    quoted = rf"`[^`]*{word}[^`]*`|{word}\(|\bimport\b.*{word}|[\"']{word}[\"']|^\s*{word}\s*[:=]"
    return re.search(quoted, text) is not None


def _left(deadline: float) -> float:
    """Seconds until then, at least one tenth."""
    return max(0.1, deadline - time.monotonic())


def _grep(git: Git, names: list[str], where: tuple[str, ...], deadline: float) -> list[Line]:
    asked = [part for name in names for part in ("-e", name)]
    out = git.run(
        "grep", "-n", "-z", "-w", "-F", "-I", "--untracked", "--no-color", "--max-depth=-1", *asked, "--", *where,
        allowed=(0, 1), timeout=_left(deadline),
    ).stdout.decode(errors="surrogateescape")  # fmt: skip
    found = []
    for row in out.split("\n"):
        path, _, rest = row.partition("\0")
        line, _, text = rest.partition("\0")
        if line.isdigit():
            found.append(Line(path, int(line), text.rstrip("\r")))
    return found


def _alive(git: Git, names: set[str], deadline: float) -> set[str]:
    """Those that the sources still hold as a word of their own, or that a file is called."""
    alive: set[str] = set()
    paths = [":(glob)**/" + re.sub(r"([*?\[\\])", r"\\\1", name) for name in names if re.search(r"[/.]", name)]
    if paths:
        out = git.text(
            "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *paths, timeout=_left(deadline)
        )
        there = [path for path in out.split("\0") if path and os.path.lexists(git.folder / path)]
        alive = {name for name in names if any(f"/{path}".endswith(f"/{name}") for path in there)}
    asked = [part for name in sorted(names - alive) for part in ("-e", name)]
    if asked:
        done = git.run(
            "grep", "-o", "-h", "-w", "-F", "-I", "--untracked", "--no-color", *asked, "--", ".", *_ELSEWHERE,
            allowed=(0, 1), timeout=_left(deadline),
        )  # fmt: skip
        # Of names that overlap git tells the longest alone: `cart.py` stands for `cart`, too.
        told = " ".join(sorted(set(done.stdout.decode(errors="surrogateescape").split("\n"))))
        alive |= {name for name in names if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", told)}
    return alive
