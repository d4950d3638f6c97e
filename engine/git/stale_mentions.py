"""Finds documentation with names that your own changes removed (SPEC 2.11)."""

from __future__ import annotations

import os.path
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Final

from engine.frozen import frozen
from engine.git import Git
from engine.git.patch import Patch, PatchLine

MAX_NAMES: Final = 60
MAX_MENTIONS: Final = 50
MAX_LINES: Final = 1_000
"""Maximum number of lines of documentation that are read."""
MIN_NAME_LENGTH: Final = 4
TIMEOUT_S: Final = 5.0

DOCUMENTS: Final = (".md", ".markdown", ".rst", ".txt", ".adoc")
_IN_DOCUMENTS: Final = tuple(f":(glob,icase)**/*{suffix}" for suffix in DOCUMENTS)
_OUTSIDE_DOCUMENTS: Final = tuple(f":(exclude,glob,icase)**/*{suffix}" for suffix in DOCUMENTS)
_NOT_DOCUMENTATION: Final = re.compile(
    r"(?:^|/)(?:change|history|news|release|upgrad|migrat|changes)[^/]*(?:$|/)|(?:^|/)requirements[^/]*\.txt$"
    r"|(?:^|/)(?:licen[cs]e|authors|robots)[^/]*$|(?:^|/)(?:CMakeLists|testdata|fixtures)",
    re.I,
)
"""Files about the past, such as change logs, and texts that are no documentation."""
_PAST_TENSE: Final = re.compile(
    r"\b(?:removed|renamed|deprecated|formerly|used to|replaced|instead of|no longer)\b", re.I
)

_CODE_FILE: Final = re.compile(
    r"\.(?:py|pyi|js|jsx|mjs|cjs|ts|tsx|go|rs|rb|php|java|kt|kts|scala|swift|c|h|cc|cpp|hpp|cs|ex|exs|sh|lua|pl|vue)$"
)
_CONFIG_FILE: Final = re.compile(r"\.(?:toml|ya?ml|ini|cfg|conf|json|env|properties)$")
_DEFINITION: Final = re.compile(
    r"^\s*(?:(?:pub(?:\([^)]*\))?|export|default|async|public|private|protected|internal|static|final|abstract|override"
    r"|open|data|suspend|unsafe|const)\s+)*"
    r"(?P<word>def|class|function\*?|fn|func|fun|struct|enum|trait|interface|type|module|object|const|let|var|defp?)\s+"
    r"(?:\([^)]*\)\s*)?(?:self\.)?(?P<name>[A-Za-z_]\w*[?!]?)"
)
_CONSTANT: Final = re.compile(r"^(?P<name>[A-Z][A-Z0-9_]{3,})\s*(?::[^=]+)?=[^=]")
_OPTION: Final = re.compile(r"""["'`](?P<name>--[a-z][a-z0-9-]{2,})["'`=\s,]""")
_CONFIG_KEY: Final = re.compile(r"""^\s*["']?(?P<name>[A-Za-z][\w-]*[A-Za-z0-9])["']?\s*[:=]""")
_LOOKS_LIKE_CODE: Final = re.compile(r"_|[a-z0-9][A-Z]|[/.]|^--|\d")


@frozen
class Mention:
    """A line of documentation with a name that does not exist any more."""

    path: str
    line: int
    """From 1."""
    old: str
    """The name that is gone."""
    new: str = ""
    """The name that replaced it; "" if that is not clear."""
    text: str = ""
    """The whole line."""


def find_stale_mentions(git: Git, patch: Patch) -> tuple[Mention, ...]:
    """The lines of documentation with names that `patch` removed and that the sources do not have any more, sorted by
    path and line.

    Runs at most three git processes, and none if nothing was removed. Raises `GitError`, also if one of them takes
    longer than `TIMEOUT_S`.
    """
    removed = _removed_names(git, patch)
    lines = _grep(git, list(removed), _IN_DOCUMENTS) if removed else []
    documentation = [line for line in lines if not _NOT_DOCUMENTATION.search(line.path)]
    mentions: list[Mention] = []
    for line in [line for line in documentation if not _PAST_TENSE.search(line.text)][:MAX_LINES]:
        names = [name for name in removed if _is_mentioned(line.text, name)]
        for name in names:
            new = removed[name]
            is_part = any(name != other and name in other for other in names)  # as `cart.py` in `src/cart.py`
            if not is_part and not (new and _is_mentioned(line.text, new)):
                mentions.append(Mention(line.path, line.line, name, new, line.text.strip()[:300]))
    used = _still_used(git, {mention.old for mention in mentions})
    stale = [mention for mention in mentions if mention.old not in used]
    return tuple(sorted(stale, key=lambda mention: (mention.path, mention.line)))[:MAX_MENTIONS]


def _removed_names(git: Git, patch: Patch) -> dict[str, str]:
    """At most `MAX_NAMES` paths and names that the patch removes, paths first. The value is the name that replaced it;
    "" if that is not clear."""
    paths = dict.fromkeys(patch.deleted, "") | dict(patch.renamed)
    gone = {old: new for old, new in paths.items() if not os.path.lexists(git.folder / old)}
    names = {PurePosixPath(old).name: PurePosixPath(new).name for old, new in gone.items()}
    removed = gone | {old: new for old, new in names.items() if old != new} | _removed_definitions(patch)
    return dict([(name, new) for name, new in removed.items() if len(name) >= MIN_NAME_LENGTH][:MAX_NAMES])


def _removed_definitions(patch: Patch) -> dict[str, str]:
    """The names of removed definitions. The value is the name that replaced it: the only added definition of the same
    sort in the same hunk, or "" if there is none."""
    names_of: defaultdict[tuple[int, str], _HunkNames] = defaultdict(_HunkNames)
    """By hunk and sort."""
    for line in patch.removed:
        for sort, name in _definitions(line):
            names_of[line.hunk, sort].removed.add(name)
    for line in patch.added:
        for sort, name in _definitions(line):
            names_of[line.hunk, sort].added.add(name)
    defined = {name for names in names_of.values() for name in names.added}
    successors: dict[str, str] = {}
    for names in names_of.values():
        gone = sorted(names.removed - defined)
        is_clear = len(gone) == len(names.added) == 1
        successors |= dict.fromkeys(gone, min(names.added) if is_clear else "")
    return successors


@dataclass
class _HunkNames:
    """The names that the definitions of one sort in one hunk have."""

    removed: set[str] = field(default_factory=set)
    added: set[str] = field(default_factory=set)


def _definitions(line: PatchLine) -> Iterable[tuple[str, str]]:
    """(sort, name) of the definitions in a line."""
    if _CONFIG_FILE.search(line.path):
        if match := _CONFIG_KEY.match(line.text):
            yield "key", match["name"]
        return
    if not _CODE_FILE.search(line.path):
        return
    if match := _DEFINITION.match(line.text):
        local = match["word"] in ("const", "let", "var") and line.text[:1].isspace()
        if not local and not match["name"].startswith(("test_", "__")):
            yield match["word"], match["name"]
    elif match := _CONSTANT.match(line.text):
        yield "constant", match["name"]
    yield from (("option", match["name"]) for match in _OPTION.finditer(line.text))


def _is_mentioned(text: str, name: str) -> bool:
    """Whether a line of documentation contains this name and means the code with it."""
    word = rf"(?<![\w-]){re.escape(name)}(?![\w-])"
    if _LOOKS_LIKE_CODE.search(name):
        return re.search(word, text) is not None
    quoted = rf"`[^`]*{word}[^`]*`|{word}\(|\bimport\b.*{word}|[\"']{word}[\"']|^\s*{word}\s*[:=]"
    return re.search(quoted, text) is not None


def _grep(git: Git, names: list[str], where: tuple[str, ...]) -> list[PatchLine]:
    patterns = [part for name in names for part in ("-e", name)]
    output = git.text(
        "grep", "-n", "-z", "-w", "-F", "-I", "--untracked", "--no-color", "--max-depth=-1", *patterns, "--", *where,
        allowed=(0, 1), timeout=TIMEOUT_S,
    )  # fmt: skip
    rows = [row.split("\0", 2) for row in output.split("\n") if row.count("\0") >= 2]
    return [PatchLine(path, int(line), text.rstrip("\r")) for path, line, text in rows]


def _still_used(git: Git, names: set[str]) -> set[str]:
    """Those of `names` that the sources still have, as a word or as the name of a file."""
    used: set[str] = set()
    files = [name for name in names if re.search(r"[/.]", name)]
    if files:
        paths = [":(glob)**/" + re.sub(r"([*?\[\\])", r"\\\1", name) for name in files]
        options = ("-z", "--cached", "--others", "--exclude-standard")
        present = git.items("ls-files", *options, "--", *paths, timeout=TIMEOUT_S)
        present = [path for path in present if os.path.lexists(git.folder / path)]
        used = {name for name in files if any(f"/{path}".endswith(f"/{name}") for path in present)}
    patterns = [part for name in sorted(names - used) for part in ("-e", name)]
    if patterns:
        output = git.text(
            "grep", "-o", "-h", "-w", "-F", "-I", "--untracked", "--no-color", *patterns, "--", ".",
            *_OUTSIDE_DOCUMENTS, allowed=(0, 1), timeout=TIMEOUT_S,
        )  # fmt: skip
        # git prints only the longest of overlapping names, so `cart.py` in the output also counts for `cart`.
        words = " ".join({*output.split("\n")})
        used |= {name for name in names if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", words)}
    return used
