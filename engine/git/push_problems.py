"""Finds secrets, leftovers and unwanted files that should not be pushed or committed.

The card and the review that → runs use the same functions. At most the newest `MAX_COMMITS` commits and `MAX_BYTES` of
new files are read. A commit that is too large is skipped, and older ones are read. All others are counted.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator
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
from engine.git.secrets import SECRET_HINT
from engine.git.state import FileState, GitState
from engine.git.unwanted_files import (
    FILLED_FOLDER,
    LARGE_FILE,
    ChangedFile,
    UnwantedFile,
    find_unwanted_files,
    read_changed_files,
)
from engine.wording import article

MAX_COMMITS = 2_000
"""Maximum number of commits that are read."""

MAX_BYTES = 32_000_000
"""Maximum number of bytes of new files that are read."""

MAX_READ_BYTES = 512_000
"""Maximum size of a file that is searched for secrets. Larger ones are data."""

MAX_PROBLEMS = 500
"""Maximum number of secrets, and of other problems, of one reading; and of files that are searched on the disk."""

RECENT_AGE = timedelta(days=7)
"""If there is neither a remote nor another branch, commits of at most this age count as unpushed."""

_PATCH_OPTIONS = ("--unified=0", "--no-color", "--find-renames", "--irreversible-delete", "--no-prefix")
"""Options for patches as `read_patch` needs them, without the lines of deleted files."""
_SMALL_FILES = ("-c", f"core.bigFileThreshold={MAX_READ_BYTES}")
"""Options with which git takes large files for binary ones, so that they are not searched."""
_SECRET_HINT = re.compile(SECRET_HINT.pattern.encode())
"""`SECRET_HINT` for bytes."""


@frozen
class CommitSpan:
    """Commits that nobody else has. They are in the history of `head`, but not in that of `excluded` or of any remote
    branch."""

    head: str
    excluded: str = ""
    """Empty for none."""
    max_commits: int = MAX_COMMITS
    """Maximum number of commits that are read, the newest."""
    has_remote: bool = True
    """Whether the repository has a remote, so that the commits will be pushed."""

    @property
    def revisions(self) -> tuple[str, ...]:
        """The arguments of git that name all commits of the span."""
        end = (f"^{self.excluded}",) if self.excluded else ()
        return (self.head, *end, "--not", "--remotes")

    @property
    def arguments(self) -> tuple[str, ...]:
        """The arguments for `git rev-list` and `git log`."""
        return (f"--max-count={self.max_commits}", *self.revisions)


@frozen
class PushProblem:
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
    has_remote: bool = True
    """See `CommitSpan`."""
    committed: tuple[PushProblem, ...] = ()
    """Problems of the commits, secrets first."""


NOTHING_UNPUSHED = UnpushedWork()
"""Stands for a repository in which everything is pushed."""


def find_unpushed_span(state: GitState, now: datetime) -> CommitSpan | None:
    """The commits that are not pushed; None if there are none.

    If the branch has an upstream, these are the commits that the upstream does not have. If the repository has a
    remote, they are the commits that no remote branch has. Otherwise they are the commits that the base does not have,
    or on the base itself, those of the last week.
    """
    if not state.head:
        return None
    if state.upstream_tip:
        return CommitSpan(state.head, state.upstream_tip, has_remote=state.has_remote)
    if state.has_remote:
        return CommitSpan(state.head)
    if state.base_tip and state.base_tip != state.head and state.branch != state.base:
        return CommitSpan(state.head, state.base_tip, has_remote=False)
    newest = sum(now - commit.at <= RECENT_AGE for commit in state.recent)
    return CommitSpan(state.head, max_commits=newest, has_remote=False) if newest else None


def read_unpushed(git: Git, state: GitState, now: datetime) -> UnpushedWork:
    """The problems in the commits that are not pushed. Raises `GitError`."""
    span = find_unpushed_span(state, now)
    return NOTHING_UNPUSHED if span is None else read_commits(git, span)


def read_commits(git: Git, span: CommitSpan, *, leftovers: bool = False) -> UnpushedWork:
    """The problems in the commits of a span. With `leftovers`, these include debugging and conflict markers that are
    still there. Raises `GitError`."""
    shas = git.text("rev-list", *span.arguments).split()
    if not shas:
        return UnpushedWork(has_remote=span.has_remote)
    files = _read_files_of_commits(git, shas)
    unwanted = find_unwanted_files(git, files, span.excluded, span.head)
    read = _select_commits_to_read(shas, files)
    patch = _read_patch_of_commits(git, read)
    if patch is None:
        read, lines = [], []
    else:
        lines = _scan_commits(git, span.head, patch, leftovers=leftovers)
    number = _count_commits(git, span, len(shas))
    problems = _sort_problems([*map(_make_problem_of_file, unwanted), *lines])
    return UnpushedWork(number, number - len(read), span.has_remote, problems)


def _read_files_of_commits(git: Git, shas: Iterable[str]) -> list[ChangedFile]:
    """The files that each commit changed."""
    listing = git.output(
        "diff-tree", "--stdin", "--root", "-r", "-z", "--raw", "--no-abbrev", "--no-renames", "--always", "-c",
        stdin="\n".join(shas).encode() + b"\n",
    )  # fmt: skip
    return read_changed_files(git, listing)


def _select_commits_to_read(shas: Iterable[str], files: Iterable[ChangedFile]) -> list[str]:
    """The commits whose changed files have at most `MAX_BYTES` together."""
    costs = Counter[str]()
    for file in files:
        costs[file.sha] += _bound_read_cost(file.size)
    return _take_within_limit((sha, costs[sha]) for sha in shas)


def _read_patch_of_commits(git: Git, shas: Iterable[str]) -> bytes | None:
    """The patches of the commits; None in a partial clone that does not have all files."""
    patch = git.run(
        *_SMALL_FILES, "diff-tree", "--stdin", "--root", "-r", "--patch", "--cc", *_PATCH_OPTIONS, "--format=%x01%H",
        stdin="\n".join(shas).encode() + b"\n", allowed=(0, 128),
    )  # fmt: skip
    return None if patch.returncode else patch.stdout


def _count_commits(git: Git, span: CommitSpan, listed_count: int) -> int:
    """The number of commits of a span, of which `listed_count` were listed. A span that asks for fewer than
    `MAX_COMMITS` has no others."""
    return int(git.text("rev-list", "--count", *span.revisions)) if listed_count == MAX_COMMITS else listed_count


def _make_problem_of_file(file: UnwantedFile) -> PushProblem:
    return PushProblem(file.kind, file.path, sha=file.sha, is_in_history_only=file.is_in_history_only, size=file.size)


def mark_edited_out(git: Git, unpushed: UnpushedWork, files: Iterable[FileState]) -> UnpushedWork:
    """The problems of commits, of which those secrets are marked as in the history only that uncommitted changes
    removed. `files` are the uncommitted files."""
    changed = {file.path for file in files}
    read_problems = cache(partial(_scan_working_file, git))

    def mark(problem: PushProblem) -> PushProblem:
        if not (problem.is_secret and problem.line and problem.path in changed):
            return problem
        lines = read_problems(problem.path)
        is_edited_out = lines is not None and problem.kind not in {line.kind for line in lines}
        return replace(problem, is_in_history_only=problem.is_in_history_only or is_edited_out)

    return replace(unpushed, committed=tuple(map(mark, unpushed.committed)))


def read_untracked(git: Git, paths: Iterable[str]) -> tuple[PushProblem, ...]:
    """Secrets in files that git does not track, as far as `MAX_BYTES` and `MAX_PROBLEMS` allow."""
    costs = ((path, _bound_read_cost(_read_size_on_disk(git.folder / path))) for path in paths)
    searched = _take_within_limit(itertools.islice(costs, MAX_PROBLEMS))
    problems = (problem for path in searched for problem in _scan_working_file(git, path) or ())
    return tuple(itertools.islice((problem for problem in problems if problem.is_secret), MAX_PROBLEMS))


def read_uncommitted(git: Git, head: str, files: Iterable[FileState]) -> tuple[PushProblem, ...]:
    """Secrets in staged and changed tracked files, and large or unwanted files in the index. `head` is "" if there is
    no commit yet. Raises `GitError`."""
    changed = [file.path for file in files if file.staged or file.modified]
    return read_since(git, head, changed) if changed else ()


def read_since(git: Git, base: str, paths: Iterable[str]) -> tuple[PushProblem, ...]:
    """The problems of the index and of its files, as if all commits since `base` were not committed. `base` is "" for
    all commits. `paths` are searched first. Raises `GitError`."""
    base = base or git.text("hash-object", "-t", "tree", "--stdin", stdin=b"")  # a tree without files
    listing = git.output("diff-index", "--cached", "-r", "-z", "--raw", "--no-abbrev", "--no-renames", base)
    files = read_changed_files(git, listing)
    problems = [_make_problem_of_file(file) for file in find_unwanted_files(git, files, base, "")]
    changed = itertools.islice(dict.fromkeys([*paths, *(file.path for file in files)]), MAX_PROBLEMS)
    searched = _take_within_limit((path, _bound_read_cost(_read_size_on_disk(git.folder / path))) for path in changed)
    for option in (["--cached"], []) if searched else ():
        patch = git.output(
            *_SMALL_FILES, "diff-index", *option, "--patch", *_PATCH_OPTIONS, base, "--", *searched,
            environment=LITERAL_PATHS,
        )  # fmt: skip
        problems += [
            PushProblem(problem.kind, line.path, line.line) for _, line, problem in _scan_lines(patch, leftovers=False)
        ]
    return _sort_problems({(problem.kind, problem.path, problem.line): problem for problem in problems}.values())


def _scan_working_file(git: Git, path: str) -> list[PushProblem] | None:
    """Secrets and leftovers in a file of the working tree; None if it cannot be read."""
    try:
        text = read_plain(git.folder / path, MAX_READ_BYTES, follow=False).decode(errors="surrogateescape")
    except FileNotFoundError:
        return []
    except (OSError, ValueError):
        return None  # a link, or too large
    lines = text.split("\n")
    return [
        PushProblem(problem.kind, path, number)
        for number, (line, after) in enumerate(itertools.zip_longest(lines, lines[1:], fillvalue=""), 1)
        for problem in scan_line(path, line, after)
    ]


def _read_size_on_disk(file: Path) -> int:
    """The number of bytes of a file; 0 if it was removed since it was staged."""
    try:
        return file.lstat().st_size
    except OSError:
        return 0


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


def _scan_commits(git: Git, head: str, patch: bytes, *, leftovers: bool) -> list[PushProblem]:
    """The problems in the lines that commits add, with the number of their line in the present file. If a later commit
    removed the line again, it is a problem only if it contains a secret."""
    texts: dict[str, list[str]] = {}
    secrets: dict[tuple[str, str, int], PushProblem] = {}
    others: dict[tuple[str, str, int], PushProblem] = {}
    for sha, added, found in _scan_lines(patch, leftovers=leftovers):
        problems = secrets if found.is_secret else others
        if len(problems) >= MAX_PROBLEMS:
            continue
        if added.path not in texts:
            text = read_file_at(git, head, added.path).decode(errors="surrogateescape")
            texts[added.path] = [line.rstrip("\r") for line in text.split("\n")]
        present = texts[added.path]
        is_there, line = added.text in present, added.line
        if is_there and present[line - 1 : line] != [added.text]:
            line = present.index(added.text) + 1
        if is_there or found.is_secret:
            problem = PushProblem(found.kind, added.path, line, sha, is_in_history_only=not is_there)
            problems[(problem.kind, problem.path, problem.line)] = problem  # the last one is of the oldest commit
    return [*secrets.values(), *others.values()]


def _sort_problems(problems: Iterable[PushProblem]) -> tuple[PushProblem, ...]:
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
