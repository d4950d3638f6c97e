"""Finds secrets, leftovers and large files that should not be pushed or committed.

The card and the review that → runs use the same functions. At most the newest `MAX_COMMITS` commits and `MAX_BYTES` of
new files are read; the other commits are counted.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

from engine.files import read_plain
from engine.frozen import frozen
from engine.git import LITERAL_PATHS, Git
from engine.git.history import read_file_at
from engine.git.leftovers import SECRET_KIND, UnwantedLine, scan_line
from engine.git.patch import FilePatch, PatchLine, read_patch
from engine.git.secrets import SECRET_HINT, is_secret_file
from engine.git.state import FileState, GitState
from engine.wording import article

MAX_COMMITS = 2_000
MAX_BYTES = 32_000_000
MAX_READ_BYTES = 512_000
"""Maximum size of a file that is searched for secrets. Larger ones are data."""

LARGE_FILE_BYTES = 10_000_000
"""A file with more bytes is large."""

FOLDER_BYTES = 1 << 62
"""The size that is used for a folder. It is larger than that of any file."""

MAX_PROBLEMS = 500
RECENT_AGE = timedelta(days=7)
"""If there is neither a remote nor another branch, commits of at most this age count as unpushed."""

LARGE_FILE = "large file"
FILLED_FOLDER = "files that a tool fills"
"""The kind of a folder such as `node_modules`."""

_PATCH_OPTIONS = ("--unified=0", "--no-color", "--find-renames", "--irreversible-delete", "--no-prefix")
_SMALL_FILES = ("-c", f"core.bigFileThreshold={MAX_READ_BYTES}")
_SECRET_HINT = re.compile(SECRET_HINT.pattern.encode())
_TOOL_FOLDER = re.compile(r"^(.*?(?:^|/)(?:node_modules|\.venv|venv|__pycache__|site-packages))/")
_TEST_PATH = re.compile(r"(?:^|/)(?:tests?|testdata|test[-_]data|fixtures?|examples?|samples?)/", re.I)


@frozen
class CommitSpan:
    """Commits that nobody else has. They are in the history of `head`, but not in that of `without` or of any remote
    branch."""

    head: str
    without: str = ""
    """Empty for none."""
    newest: int = MAX_COMMITS
    """Maximum number of commits."""
    shared: bool = True
    """Whether the repository has a remote, so that the commits will be pushed."""

    @property
    def arguments(self) -> tuple[str, ...]:
        """The arguments for `git rev-list` and `git log`."""
        end = (f"^{self.without}",) if self.without else ()
        return (f"--max-count={self.newest}", self.head, *end, "--not", "--remotes")


@frozen
class UnpushedProblem:
    """A secret, a leftover or a file that should not be pushed. The text in which it was found is not kept."""

    kind: str
    path: str
    line: int = 0
    """0 for a whole file."""
    sha: str = ""
    """The commit; "" if it is not committed."""
    is_in_history_only: bool = False
    """Whether only commits have it, because a later commit or an uncommitted change removes it from the file."""
    size: int = 0
    """The number of bytes of a large file, or of the largest file in a folder."""

    @property
    def is_secret(self) -> bool:
        """Whether it is a likely secret."""
        return self.kind.startswith(SECRET_KIND)

    @property
    def description(self) -> str:
        """The problem in words: `config.py:12 holds an AWS access key`, `data/dump.bin is 60 MB`, and if only commits
        have it, `the history of config.py holds an AWS access key`."""
        kind = self.kind.removeprefix(f"{SECRET_KIND}: ")
        place = f"{self.path}:{self.line}" if self.line else self.path
        if self.is_in_history_only:
            place = f"the history of {self.path}" if self.line else f"{self.path} in the history"
        if self.kind == FILLED_FOLDER:
            return f"{place} holds {kind}"
        if self.size:
            size = f"{self.size / 1_000_000:.{0 if self.size >= 10_000_000 else 1}f} MB"
            return f"{place} is {size}" + ("" if kind == LARGE_FILE else f" ({kind})")
        return f"{place} {'holds' if self.line else 'is'} {article(kind)} {kind}"

    @property
    def description_with_commit(self) -> str:
        """The problem in words, and the commit that has it."""
        return f"{self.description}, {f'in {self.sha[:10]}' if self.sha else 'not committed yet'}"


@frozen
class UnpushedWork:
    """The problems in commits and files that are not pushed."""

    commits: int = 0
    """Number of commits that nobody else has."""
    unread: int = 0
    """Number of those commits that were not read."""
    shared: bool = True
    """See `CommitSpan`."""
    committed: tuple[UnpushedProblem, ...] = ()
    """Problems of the commits, secrets first."""


NOTHING_UNPUSHED = UnpushedWork()


@frozen
class _UnwantedFiles:
    """A kind of files that belong in no repository, by their names and their least size in bytes."""

    kind: str
    min_size: int
    names: re.Pattern[str]


_KINDS_OF_UNWANTED_FILES = (
    _UnwantedFiles("database dump", 1_000_000, re.compile(r"\.(?:sql|dump|bak|pgdump)(?:\.(?:gz|bz2|xz|zst))?$", re.I)),
    _UnwantedFiles("database", 1_000_000, re.compile(r"\.(?:sqlite3?|mdb|rdb)$", re.I)),
    _UnwantedFiles("archive", 2_000_000, re.compile(r"\.(?:zip|tar|tgz|tar\.(?:gz|bz2|xz|zst)|7z|rar|iso|war)$", re.I)),
    _UnwantedFiles("core dump", 100_000, re.compile(r"(?:^|/)core(?:\.\d+)?$|\.(?:hprof|dmp|stackdump)$")),
)


@frozen
class _RawEntry:
    """A file after a commit that changed it."""

    sha: str
    status: str
    blob: str
    path: str


def find_unpushed_span(state: GitState, now: datetime) -> CommitSpan | None:
    """The commits that are not pushed; None if there are none.

    If the branch has an upstream, these are the commits that the upstream does not have. If the repository has a
    remote, they are the commits that no remote branch has. Otherwise they are the commits that the base does not have,
    or on the base itself, those of the last week.
    """
    if not state.head:
        return None
    if state.upstream_tip:
        return CommitSpan(state.head, state.upstream_tip, shared=state.has_remote)
    if state.has_remote:
        return CommitSpan(state.head)
    if state.base_tip and state.base_tip != state.head and state.branch != state.base:
        return CommitSpan(state.head, state.base_tip, shared=False)
    newest = sum(now - commit.at <= RECENT_AGE for commit in state.recent)
    return CommitSpan(state.head, newest=newest, shared=False) if newest else None


def read_unpushed(git: Git, state: GitState, now: datetime) -> UnpushedWork:
    """The problems in the commits that are not pushed. Raises `GitError`."""
    span = find_unpushed_span(state, now)
    return NOTHING_UNPUSHED if span is None else read_commits(git, span)


def read_commits(git: Git, span: CommitSpan, *, leftovers: bool = False) -> UnpushedWork:
    """The problems in the commits of a span. With `leftovers`, these include debugging and conflict markers that are
    still there. Raises `GitError`."""
    shas = git.text("rev-list", *span.arguments).split()
    if not shas:
        return UnpushedWork(shared=span.shared)
    listing = git.output(
        "diff-tree", "--stdin", "--root", "-r", "-z", "--raw", "--no-abbrev", "--no-renames", "--always", "-c",
        stdin="\n".join(shas).encode() + b"\n",
    )  # fmt: skip
    entries = list(_parse_raw_diff(listing))
    sizes = _read_object_sizes(git, {entry.blob for entry in entries})
    problems = _find_unwanted_files(git, entries, sizes, span.without, span.head)
    costs = Counter[str]()
    for entry in entries:
        costs[entry.sha] += _bound_read_cost(sizes.get(entry.blob, 0))
    read = _take_within_limit((sha, costs[sha]) for sha in shas)
    patch = git.run(
        *_SMALL_FILES, "diff-tree", "--stdin", "--root", "-r", "--patch", "--cc", *_PATCH_OPTIONS, "--format=%x01%H",
        stdin="\n".join(read).encode() + b"\n", allowed=(0, 128),
    )  # fmt: skip
    if patch.returncode:
        read = []  # a partial clone does not have all files
    else:
        problems += _scan_patch(git, span.head, patch.stdout, leftovers=leftovers)
    return UnpushedWork(len(shas), len(shas) - len(read), span.shared, _sort_problems(problems))


def mark_edited_out(git: Git, unpushed: UnpushedWork, files: Iterable[FileState]) -> UnpushedWork:
    """The problems of commits, of which those secrets are marked as in the history only that uncommitted changes
    removed. `files` are the uncommitted files."""
    changed = {file.path for file in files}
    read_problems = cache(partial(_find_problems_of_lines, git))

    def mark(problem: UnpushedProblem) -> UnpushedProblem:
        if not (problem.is_secret and problem.line and problem.path in changed):
            return problem
        lines = read_problems(problem.path)
        is_edited_out = lines is not None and problem.kind not in {line.kind for line in lines}
        return replace(problem, is_in_history_only=problem.is_in_history_only or is_edited_out)

    return replace(unpushed, committed=tuple(map(mark, unpushed.committed)))


def read_untracked(git: Git, paths: Iterable[str]) -> tuple[UnpushedProblem, ...]:
    """Secrets in files that git does not track, as far as `MAX_BYTES` and `MAX_PROBLEMS` allow."""
    costs = ((path, _bound_read_cost(_read_size_on_disk(git.folder / path))) for path in paths)
    searched = _take_within_limit(itertools.islice(costs, MAX_PROBLEMS))
    problems = (problem for path in searched for problem in _find_problems_of_lines(git, path) or ())
    return tuple(itertools.islice((problem for problem in problems if problem.is_secret), MAX_PROBLEMS))


def _find_problems_of_lines(git: Git, path: str) -> list[UnpushedProblem] | None:
    """Secrets and leftovers in a file of the working tree; None if it cannot be read."""
    try:
        text = read_plain(git.folder / path, MAX_READ_BYTES, follow=False).decode(errors="surrogateescape")
    except FileNotFoundError:
        return []
    except (OSError, ValueError):
        return None  # a link, or too large
    lines = text.split("\n")
    return [
        UnpushedProblem(problem.kind, path, number)
        for number, (line, after) in enumerate(itertools.zip_longest(lines, lines[1:], fillvalue=""), 1)
        for problem in scan_line(path, line, after)
    ]


def read_uncommitted(git: Git, head: str, files: Iterable[FileState]) -> tuple[UnpushedProblem, ...]:
    """Secrets in staged and changed tracked files, and large or unwanted files in the index. `head` is "" if there is
    no commit yet. Raises `GitError`."""
    changed = [file.path for file in files if file.staged or file.modified]
    return read_since(git, head, changed) if changed else ()


def read_since(git: Git, base: str, paths: Iterable[str]) -> tuple[UnpushedProblem, ...]:
    """The problems of the index and of its files, as if all commits since `base` were not committed. `base` is "" for
    all commits. `paths` are searched first. Raises `GitError`."""
    base = base or git.text("hash-object", "-t", "tree", "--stdin", stdin=b"")  # a tree without files
    listing = git.output("diff-index", "--cached", "-r", "-z", "--raw", "--no-abbrev", "--no-renames", base)
    entries = list(_parse_raw_diff(listing))
    problems = _find_unwanted_files(git, entries, _read_object_sizes(git, {entry.blob for entry in entries}), base, "")
    changed = itertools.islice(dict.fromkeys([*paths, *(entry.path for entry in entries)]), MAX_PROBLEMS)
    searched = _take_within_limit((path, _bound_read_cost(_read_size_on_disk(git.folder / path))) for path in changed)
    for option in (["--cached"], []) if searched else ():
        patch = git.output(
            *_SMALL_FILES, "diff-index", *option, "--patch", *_PATCH_OPTIONS, base, "--", *searched,
            environment=LITERAL_PATHS,
        )  # fmt: skip
        problems += [
            UnpushedProblem(problem.kind, line.path, line.line)
            for _, line, problem in _scan_lines(patch, leftovers=False)
        ]
    return _sort_problems({(problem.kind, problem.path, problem.line): problem for problem in problems}.values())


def _read_size_on_disk(file: Path) -> int:
    """The number of bytes of a file; 0 if it was removed since it was staged."""
    try:
        return file.lstat().st_size
    except OSError:
        return 0


def _parse_raw_diff(listing: bytes) -> Iterator[_RawEntry]:
    """The files in the output of `--raw -z`, for one or more commits. With `-c`, a merge has only the files that differ
    from those of all its parents. Its other files come from a parent, which is read separately."""
    fields = iter(listing.split(b"\0"))
    sha = ""
    for field in fields:
        if field.startswith(b":"):
            # A colon for each parent; the modes of the parents and of the result; the objects likewise; the statuses.
            *values, statuses = field.decode().lstrip(":").split(" ")
            mode, blob = values[len(values) // 2 - 1], values[-1]
            path = next(fields, b"").decode(errors="surrogateescape")
            if mode not in ("000000", "160000", "120000"):
                yield _RawEntry(sha, statuses[0], blob, path)
        elif field:
            sha = field.decode().strip()


def _read_object_sizes(git: Git, names: Iterable[str]) -> dict[str, int]:
    """The size of each object by its name, which is an id or COMMIT:PATH.

    A folder has the size `FOLDER_BYTES`. An object that does not exist is left out, such as a file that is not in a
    commit, or that a partial clone does not have.
    """
    names = list(names)
    listing = "".join(f"{name}\n" for name in names).encode(errors="surrogateescape")
    output = git.output("cat-file", "--batch-check=%(objecttype) %(objectsize)", "--buffer", stdin=listing)
    sizes = {}
    for name, line in zip(names, output.splitlines(), strict=True):
        kind, _, size = line.partition(b" ")
        if kind in (b"blob", b"tree"):
            sizes[name] = int(size) if kind == b"blob" else FOLDER_BYTES
    return sizes


def _bound_read_cost(size: int) -> int:
    """The number of bytes that are read of a file of this size."""
    return size if size <= MAX_READ_BYTES else 0


def _take_within_limit(costs: Iterable[tuple[str, int]]) -> list[str]:
    """The names whose costs are at most `MAX_BYTES` together; the first ones are preferred."""
    taken_names, remaining = [], MAX_BYTES
    for name, cost in costs:
        if cost <= remaining:
            remaining -= cost
            taken_names.append(name)
    return taken_names


def _find_unwanted_files(
    git: Git, entries: Iterable[_RawEntry], sizes: Mapping[str, int], base: str, head: str
) -> list[UnpushedProblem]:
    """The files that do not belong in a repository, one for each path. A file is left out if `base` has one of about
    the same size at the same path."""
    problems: dict[str, UnpushedProblem] = {}
    for entry in entries:
        size = sizes.get(entry.blob, 0)
        kind, path = _classify_file(entry, size)
        if kind:  # the last entry is of the oldest commit
            largest = max(size, problems[path].size) if path in problems else size
            problems[path] = UnpushedProblem(
                kind, path, sha=entry.sha, size=0 if kind.startswith(SECRET_KIND) else largest
            )
    paths = [path for path in problems if "\n" not in path]
    present = _read_object_sizes(git, [f"{commit}:{path}" for commit in (base, head) if commit for path in paths])
    for path in paths:
        problem = problems[path]
        if present.get(f"{base}:{path}", -1) * 2 >= problem.size:
            del problems[path]
        elif head and f"{head}:{path}" not in present:
            problems[path] = replace(problem, is_in_history_only=bool(problem.sha))
    return list(problems.values())


def _classify_file(entry: _RawEntry, size: int) -> tuple[str, str]:
    """(problem, path) of a file. The path may be that of a folder. Both are "" if there is no problem."""
    if entry.status == "A" and is_secret_file(entry.path) and size:
        return f"{SECRET_KIND}: file that holds keys", entry.path
    if not _TEST_PATH.search(entry.path):
        if filled := _TOOL_FOLDER.match(entry.path):
            return FILLED_FOLDER, filled[1]
        for unwanted in _KINDS_OF_UNWANTED_FILES:
            if size >= unwanted.min_size and unwanted.names.search(entry.path):
                return unwanted.kind, entry.path
    return (LARGE_FILE, entry.path) if size > LARGE_FILE_BYTES else ("", "")


def _scan_patch(git: Git, head: str, patch: bytes, *, leftovers: bool) -> list[UnpushedProblem]:
    """The problems in the lines that commits add, with the number of their line in the present file. If a later commit
    removed the line again, it is a problem only if it contains a secret."""
    texts: dict[str, list[str]] = {}
    problems: dict[tuple[str, str, int], UnpushedProblem] = {}
    for sha, added, found in _scan_lines(patch, leftovers=leftovers):
        if added.path not in texts:
            text = read_file_at(git, head, added.path).decode(errors="surrogateescape")
            texts[added.path] = [line.rstrip("\r") for line in text.split("\n")]
        present = texts[added.path]
        is_there, line = added.text in present, added.line
        if is_there and present[line - 1 : line] != [added.text]:
            line = present.index(added.text) + 1
        if is_there or found.is_secret:
            problem = UnpushedProblem(found.kind, added.path, line, sha, is_in_history_only=not is_there)
            problems[(problem.kind, problem.path, problem.line)] = problem  # the last one is of the oldest commit
        if len(problems) >= MAX_PROBLEMS:
            break
    return list(problems.values())


def _sort_problems(problems: Iterable[UnpushedProblem]) -> tuple[UnpushedProblem, ...]:
    """Sort secrets before other problems, and lines before whole files. A whole file is left out if one of its lines is
    a problem with a secret."""
    problems = list(problems)
    located = {problem.path for problem in problems if problem.is_secret and problem.line}
    shown = [problem for problem in problems if not problem.is_secret or problem.line or problem.path not in located]
    shown.sort(key=lambda problem: (not problem.is_secret, not problem.line, problem.path, problem.line))
    return tuple(shown[:MAX_PROBLEMS])


class _FoundLine(NamedTuple):
    """An added line of a patch with a problem."""

    sha: str
    line: PatchLine
    problem: UnwantedLine


def _scan_lines(patch: bytes, *, leftovers: bool) -> Iterator[_FoundLine]:
    """The added lines of a patch that have a problem; without `leftovers`, only those with a secret."""
    for file in _select_files_to_scan(patch, leftovers=leftovers):
        for line, following in itertools.zip_longest(file.added, file.added[1:]):
            after = following.text if following is not None and following.hunk == line.hunk else ""
            problems = [problem for problem in scan_line(line.path, line.text, after) if leftovers or problem.is_secret]
            yield from (_FoundLine(file.commit, line, problem) for problem in problems)


def _select_files_to_scan(patch: bytes, *, leftovers: bool) -> Iterator[FilePatch]:
    """The files of a patch, each with its commit; without `leftovers`, only the few with a hint of a secret."""
    commit = b""
    for part in re.split(rb"\n(?=\x01|diff --(?:git|cc) )", b"\n" + patch):
        if part.startswith(b"\x01"):
            commit = part
        elif leftovers or _SECRET_HINT.search(part):
            text = (commit + b"\n" + part).decode(errors="surrogateescape")
            yield from read_patch(text.split("\n"))
