"""Finds documentation with names that your own changes removed (SPEC 2.11). Cards offer to mend it.

For example a commit renames `load` to `read_all`. Then a line of the README with `load()` is a stale mention, if no
source has that name any more. `inspection` asks for the mentions, and a flow replaces the names.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from engine.frozen import frozen, group_pairs
from engine.git import Git
from engine.git.patch import Patch, PatchLine

MAX_NAMES = 60
"""Maximum number of removed names that are searched for."""

MAX_MENTIONS = 50
"""Maximum number of mentions that are returned."""

MAX_LINES = 1_000
"""Maximum number of lines of documentation that are read."""

MAX_EXCERPT_CHARS = 300
"""Maximum number of characters of a line that a mention has."""

MIN_NAME_LENGTH = 4
"""Shorter names are words of any text."""

TIMEOUT_S = 5.0
"""Maximum time in seconds of a git process."""

DOCUMENT_SUFFIXES = (".md", ".markdown", ".rst", ".txt", ".adoc")
"""The endings of files of documentation."""

_DOCUMENTS_ONLY = tuple(f":(glob,icase)**/*{suffix}" for suffix in DOCUMENT_SUFFIXES)
_OUTSIDE_DOCUMENTS = tuple(f":(exclude,glob,icase)**/*{suffix}" for suffix in DOCUMENT_SUFFIXES)
_NOT_DOCUMENTATION = re.compile(
    r"(?:^|/)(?:change|history|news|release|upgrad|migrat|changes)[^/]*(?:$|/)|(?:^|/)requirements[^/]*\.txt$"
    r"|(?:^|/)(?:licen[cs]e|authors|robots)[^/]*$|(?:^|/)(?:CMakeLists|testdata|fixtures)",
    re.I,
)
"""Files about the past, such as change logs, and texts that are no documentation."""

_PAST_TENSE = re.compile(r"\b(?:removed|renamed|deprecated|formerly|used to|replaced|instead of|no longer)\b", re.I)
"""Words of a line that speaks of the past, in which a former name is right."""

_CODE_FILE = re.compile(
    r"\.(?:py|pyi|js|jsx|mjs|cjs|ts|tsx|go|rs|rb|php|java|kt|kts|scala|swift|c|h|cc|cpp|hpp|cs|ex|exs|sh|lua|pl|vue)$"
)
"""Files whose definitions, constants and options are names."""

_CONFIG_FILE = re.compile(r"\.(?:toml|ya?ml|ini|cfg|conf|json|env|properties)$")
"""Files whose keys are names."""

_DEFINITION = re.compile(
    r"^\s*(?:(?:pub(?:\([^)]*\))?|export|default|async|public|private|protected|internal|static|final|abstract|override"
    r"|open|data|suspend|unsafe|const)\s+)*"
    r"(?P<word>def|class|function\*?|fn|func|fun|struct|enum|trait|interface|type|module|object|const|let|var|defp?)\s+"
    r"(?:\([^)]*\)\s*)?(?:self\.)?(?P<name>[A-Za-z_]\w*[?!]?)"
)
"""A line that defines a name, such as `def load(` or `pub async fn load(`."""

_CONSTANT_DEFINITION = re.compile(r"^(?P<name>[A-Z][A-Z0-9_]{3,})\s*(?::[^=]+)?=[^=]")
"""A line that sets a constant, such as `MAX_SIZE: int = 3`."""

_COMMAND_OPTION = re.compile(r"""["'`](?P<name>--[a-z][a-z0-9-]{2,})["'`=\s,]""")
"""The option of a command in quotes, such as `"--dry-run"`."""

_CONFIG_KEY = re.compile(r"""^\s*["']?(?P<name>[A-Za-z][\w-]*[A-Za-z0-9])["']?\s*[:=]""")
"""A line that sets a key, such as `max-size: 3`."""

_LOOKS_LIKE_CODE = re.compile(r"_|[a-z0-9][A-Z]|[/.]|^--|\d")
"""A name that is no word of a text. Other names are searched only in the form of code."""


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
    excerpt: str = ""
    """The first `MAX_EXCERPT_CHARS` characters of the line."""


def find_stale_mentions(git: Git, patch: Patch) -> tuple[Mention, ...]:
    """The lines of documentation with names that `patch` removed and that the sources do not have any more, sorted by
    path and line.

    Runs at most three git processes, and none if nothing was removed. Raises `GitError`, also if one of them takes
    longer than `TIMEOUT_S`.
    """
    removed = _find_removed_names(git, patch)
    lines = _grep_names(git, list(removed), _DOCUMENTS_ONLY) if removed else []
    documentation = [line for line in lines if not _NOT_DOCUMENTATION.search(line.path)]
    present = [line for line in documentation if not _PAST_TENSE.search(line.text)][:MAX_LINES]
    mentions = [mention for line in present for mention in _find_mentions(line, removed)]
    used = _find_used_names(git, {mention.old for mention in mentions})
    stale = [mention for mention in mentions if mention.old not in used]
    return tuple(sorted(stale, key=lambda mention: (mention.path, mention.line)))[:MAX_MENTIONS]


def _find_mentions(line: PatchLine, removed: Mapping[str, str]) -> Iterator[Mention]:
    """The removed names that a line of documentation mentions without their successors."""
    names = [name for name in removed if _is_mentioned(line.text, name)]
    for name in names:
        new = removed[name]
        is_part = any(name != other and name in other for other in names)  # as `cart.py` in `src/cart.py`
        if not is_part and not (new and _is_mentioned(line.text, new)):
            yield Mention(line.path, line.line, name, new, line.text.strip()[:MAX_EXCERPT_CHARS])


def _find_removed_names(git: Git, patch: Patch) -> dict[str, str]:
    """At most `MAX_NAMES` paths and names that the patch removes, paths first. The value is the name that replaced it;
    "" if that is not clear."""
    paths = dict.fromkeys(patch.deleted, "") | dict(patch.renamed)
    gone = {old: new for old, new in paths.items() if not os.path.lexists(git.folder / old)}
    names = {PurePosixPath(old).name: PurePosixPath(new).name for old, new in gone.items()}
    removed = gone | {old: new for old, new in names.items() if old != new} | _find_removed_definitions(patch)
    return dict([(name, new) for name, new in removed.items() if len(name) >= MIN_NAME_LENGTH][:MAX_NAMES])


def _find_removed_definitions(patch: Patch) -> dict[str, str]:
    """The names of removed definitions. The value is the name that replaced it: the only added definition of the same
    sort in the same hunk, or "" if there is none."""
    removed, added = _group_definitions(patch.removed), _group_definitions(patch.added)
    defined = {name for names in added.values() for name in names}
    successors: dict[str, str] = {}
    for hunk_and_sort, names in removed.items():
        gone, new = [name for name in sorted({*names}) if name not in defined], {*added.get(hunk_and_sort, ())}
        successors |= dict.fromkeys(gone, min(new) if len(gone) == len(new) == 1 else "")
    return successors


def _group_definitions(lines: Iterable[PatchLine]) -> dict[tuple[int, str], list[str]]:
    """The names of the definitions in these lines, by hunk and sort."""
    return group_pairs(((line.hunk, sort), name) for line in lines for sort, name in _find_definitions(line))


def _find_definitions(line: PatchLine) -> Iterable[tuple[str, str]]:
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
    elif match := _CONSTANT_DEFINITION.match(line.text):
        yield "constant", match["name"]
    yield from (("option", match["name"]) for match in _COMMAND_OPTION.finditer(line.text))


def _is_mentioned(text: str, name: str) -> bool:
    """Whether a line of documentation contains this name and means the code with it."""
    word = rf"(?<![\w-]){re.escape(name)}(?![\w-])"
    if _LOOKS_LIKE_CODE.search(name):
        return re.search(word, text) is not None
    quoted = rf"`[^`]*{word}[^`]*`|{word}\(|\bimport\b.*{word}|[\"']{word}[\"']|^\s*{word}\s*[:=]"
    return re.search(quoted, text) is not None


def _grep_names(git: Git, names: list[str], where: tuple[str, ...]) -> list[PatchLine]:
    """The lines that have one of `names` as a word, in the files that the pathspecs `where` select."""
    patterns = [part for name in names for part in ("-e", name)]
    output = git.text(
        "grep", "-n", "-z", "-w", "-F", "-I", "--untracked", "--no-color", "--max-depth=-1", *patterns, "--", *where,
        allowed=(0, 1), timeout=TIMEOUT_S,
    )  # fmt: skip
    rows = [row.split("\0", 2) for row in output.split("\n") if row.count("\0") >= 2]
    return [PatchLine(path, int(line), text.rstrip("\r")) for path, line, text in rows]


def _find_used_names(git: Git, names: set[str]) -> set[str]:
    """Those of `names` that the sources still have, as a word or as the name of a file."""
    used_names = _find_present_files(git, [name for name in names if re.search(r"[/.]", name)])
    patterns = [part for name in sorted(names - used_names) for part in ("-e", name)]
    if patterns:
        output = git.text(
            "grep", "-o", "-h", "-w", "-F", "-I", "--untracked", "--no-color", *patterns, "--", ".",
            *_OUTSIDE_DOCUMENTS, allowed=(0, 1), timeout=TIMEOUT_S,
        )  # fmt: skip
        # git prints only the longest of overlapping names, so `cart.py` in the output also counts for `cart`.
        words = " ".join({*output.split("\n")})
        used_names |= {name for name in names if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", words)}
    return used_names


def _find_present_files(git: Git, names: Sequence[str]) -> set[str]:
    """Those of `names` that end the path of a file."""
    if not names:
        return set()
    paths = [":(glob)**/" + re.sub(r"([*?\[\\])", r"\\\1", name) for name in names]
    options = ("-z", "--cached", "--others", "--exclude-standard")
    present = git.items("ls-files", *options, "--", *paths, timeout=TIMEOUT_S)
    present = [path for path in present if os.path.lexists(git.folder / path)]
    return {name for name in names if any(f"/{path}".endswith(f"/{name}") for path in present)}
