"""Finds the repository that a folder belongs to, by its files, and says why git does not read one."""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import shlex
import shutil
import tempfile
import threading
from pathlib import Path

from engine.files import read_plain
from engine.frozen import frozen
from engine.git.process import GitError, operators_configuration, run_git
from engine.model import Refusal, sanitise

# -- a configuration that names no program, in the place of a repository's own
#
# git runs programs that a repository's configuration names: filters, hooks, a file-system monitor, text converters,
# diff and merge drivers, signature checkers, transports, and more with each release. Switching off what is known would
# always miss something. So git never reads that configuration. It reads one that we write: an allow-list of settings
# which are only data (line endings, file modes, who the operator is, what a branch follows), taken from the operator's
# files and the repository's own. It lies in a shadow folder of ours that replaces the repository's common folder
# (`GIT_COMMON_DIR`) and links to its objects and refs. There are no hooks in it. Attributes may name a filter or a
# driver; there is none of that name.


MAX_CONFIG_BYTES = 4_000_000
"""Bytes of a configuration file; a larger one is refused."""

_LINKED_ENTRIES = ("objects", "refs", "packed-refs", "reftable", "logs", "info", "shallow", "worktrees")
"""The entries of the common folder that git may see: all but `config` and `hooks`."""

_ALLOWED_SETTING = re.compile(
    r"core\.(repositoryformatversion|filemode|symlinks|ignorecase|precomposeunicode|protecthfs|protectntfs|autocrlf|eol"
    r"|sparsecheckout|sparsecheckoutcone|trustctime|checkstat|sharedrepository|logallrefupdates|untrackedcache|fsync"
    r"|fsyncmethod|fsyncobjectfiles|longpaths)"
    r"|extensions\.(?!worktreeconfig$|partialclone$).*|index\.(version|sparse|skiphash|threads)"
    r"|user\.(name|email|useconfigonly)|(author|committer)\.(name|email)"
    r"|branch\..*\.(remote|merge)|remote\..*\.(url|fetch)|url\..*\.insteadof"
    r"|merge\.(renames|renamelimit|directoryrenames)",
    re.DOTALL,
)
"""Settings that are taken over, from whichever file; none names a program. Without `extensions.partialClone` there is
no remote to fetch a missing object from."""

_ALLOWED_OPERATOR_SETTING = re.compile(r"core\.(excludesfile|attributesfile)")
"""Settings that name files, and are taken over from the operator's own configuration alone."""

_FILTER_SETTING = re.compile(r"filter\.(.*)\.(clean|smudge|process|required)", re.DOTALL)

_FIXED_CONFIG = """
[core]
\tquotePath = false
\tsafecrlf = false
\tsplitIndex = false
\tfsmonitor = false
\thooksPath = /dev/null
\tattributesFile = {attributes}
[diff]
\tignoreSubmodules = all
[submodule]
\trecurse = false
[log]
\tmailmap = false
[gc]
\tauto = 0
[maintenance]
\tauto = false
[protocol]
\tallow = never
[advice]
\tdetachedHead = false
"""
"""Written last, and so it wins. A `.mailmap` would be opened by every log, and may be a pipe."""


Setting = tuple[str, str | None]
"""Key and value; None for the value of a key without `=`."""


@frozen
class Repository:
    """A working tree and where its git files are. `git_dir` and `common` differ in linked worktrees."""

    top: Path
    git_dir: Path
    common: Path

    def environment(self) -> dict[str, str]:
        """The variables that have git work on this repository, whatever lies in the folder it runs in.
        Raises `GitError` and `Refusal` when the configuration cannot be read."""
        shadow = _shadows.of(self)
        return {
            "GIT_DIR": str(self.git_dir),
            "GIT_WORK_TREE": str(self.top),
            "GIT_COMMON_DIR": str(shadow.folder),
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
        }

    @property
    def filters(self) -> frozenset[str]:
        """The names of the filters that a configuration gives programs to. None is run."""
        return _shadows.of(self).filters


@frozen
class _Shadow:
    """A folder that replaces a common folder, and what it was made from."""

    folder: Path
    filters: frozenset[str]
    sources: tuple[Path, ...]
    stamp: tuple[object, ...]


class _Shadows:
    """The shadow folders of this process, each made again when a configuration changed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._root: tuple[int, Path] | None = None
        self._cache: dict[Path, _Shadow] = {}

    def of(self, repository: Repository) -> _Shadow:
        """The up-to-date shadow of a repository."""
        with self._lock:
            if self._root is None or self._root[0] != os.getpid() or not self._root[1].is_dir():
                self._root = os.getpid(), Path(tempfile.mkdtemp(prefix="clawpy-git-"))
                self._cache = {}
                atexit.register(_remove_root, *self._root)
            cached = self._cache.get(repository.git_dir)
            if cached is not None and cached.stamp == configuration_stamp(repository, cached.sources):
                return cached
            shadow = _create_shadow(repository, self._root[1])
            for removed in [git_dir for git_dir in self._cache if not git_dir.is_dir()]:
                shutil.rmtree(self._cache.pop(removed).folder, ignore_errors=True)
            self._cache[repository.git_dir] = shadow
            return shadow


_shadows = _Shadows()


def _remove_root(process: int, root: Path) -> None:
    if process == os.getpid():  # not in a fork of it
        shutil.rmtree(root, ignore_errors=True)


def _create_shadow(repository: Repository, root: Path) -> _Shadow:
    folder = root / hashlib.sha256(os.fsencode(repository.git_dir)).hexdigest()[:20]
    folder.mkdir(exist_ok=True)
    for name in _LINKED_ENTRIES:
        if not os.path.lexists(folder / name):
            (folder / name).symlink_to(repository.common / name)
    operators = operators_files()
    stamp = configuration_stamp(repository, operators)
    own = _own_settings(repository, root)
    own_data = [item for item in own if _ALLOWED_SETTING.fullmatch(item[0])]
    # With the settings of the repository written first, so that the operator's `includeIf` finds what it looks for.
    _write_config(folder, own_data)
    foreign, files = _foreign_settings(repository, folder)
    allowed = [
        item for item in foreign if _ALLOWED_SETTING.fullmatch(item[0]) or _ALLOWED_OPERATOR_SETTING.fullmatch(item[0])
    ]
    attributes = next((value for key, value in reversed(allowed) if key == "core.attributesfile"), "")
    _write_config(folder, [*allowed, *own_data], repository.common, attributes or "")
    sources = tuple(dict.fromkeys([*operators, *files]))
    if sources != operators:
        stamp = configuration_stamp(repository, sources)
    filters = frozenset(match[1] for key, _ in [*foreign, *own] if (match := _FILTER_SETTING.fullmatch(key)))
    return _Shadow(folder, filters, sources, stamp)


def _foreign_settings(repository: Repository, shadow: Path) -> tuple[list[Setting], list[Path]]:
    """The settings of the operator and the machine, and the files that they stand in."""
    done = run_git(
        ["config", "--null", "--show-origin", "--includes", "--list"],
        repository.top,
        {"GIT_DIR": str(repository.git_dir), "GIT_COMMON_DIR": str(shadow), **operators_configuration()},
        without=(repository.top, repository.common.parent),
        timeout=10,
    )
    if done.returncode:
        raise GitError(["config", "--list"], done.returncode, done.stderr.decode(errors="replace"), repository.top)
    fields = done.stdout.decode(errors="surrogateescape").split("\0")
    entries = [
        (origin, entry)
        for origin, entry in zip(fields[0::2], fields[1::2], strict=False)
        if origin != f"file:{shadow / 'config'}"
    ]
    files = [Path(origin.removeprefix("file:")) for origin, _ in entries]
    return [_parse_entry(entry) for _, entry in entries], files


def _own_settings(repository: Repository, root: Path) -> list[Setting]:
    """The configuration in the repository's own files, without included files."""
    own = _read_settings(repository.common / "config", repository, root)
    if dict(own).get("extensions.worktreeconfig", "") in (None, "true", "yes", "on", "1"):
        own += _read_settings(repository.git_dir / "config.worktree", repository, root)
    return own


def _read_settings(file: Path, repository: Repository, root: Path) -> list[Setting]:
    try:
        text = read_plain(file, MAX_CONFIG_BYTES)
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise Refusal("unsafe_repository", f"{file} cannot be read: {error}", "check the file") from error
    arguments = ["config", "--file", "-", "--no-includes", "--null", "--list"]
    without = (repository.top, repository.common.parent)
    done = run_git(arguments, root, {"GIT_DIR": str(root / "none")}, without=without, stdin=text, timeout=10)
    if done.returncode:
        raise GitError(["config", "--list"], done.returncode, done.stderr.decode(errors="replace"), file)
    return [_parse_entry(entry) for entry in done.stdout.decode(errors="surrogateescape").split("\0") if entry]


def _parse_entry(entry: str) -> Setting:
    """A setting as `git config --null --list` prints it; None for the value of one that has no `=`."""
    key, newline, value = entry.partition("\n")
    return key, value if newline else None


def _write_config(folder: Path, items: list[Setting], common: Path | None = None, attributes: str = "") -> None:
    lines = []
    for key, value in items:
        section, _, rest = key.partition(".")
        middle, _, name = rest.rpartition(".")
        lines.append(f"[{section} {_quote(middle)}]" if middle else f"[{section}]")
        lines.append(f"\t{name}" if value is None else f"\t{name} = {_quote(value)}")
    lines.append(_FIXED_CONFIG.format(attributes=_quote(attributes)))
    if common is not None and not (common / "logs").is_dir():
        lines.append("[core]\n\tlogAllRefUpdates = false\n")  # nothing can be made behind a link that leads nowhere
    replacement = folder / "config.new"
    replacement.write_text("\n".join(lines), errors="surrogateescape")
    replacement.replace(folder / "config")


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{escaped}"'


def operators_files() -> tuple[Path, ...]:
    """Where git looks for the operator's configuration."""
    named = os.environ.get("GIT_CONFIG_GLOBAL")
    home = os.environ.get("HOME", "/")
    own = (
        [named]
        if named
        else [os.environ.get("XDG_CONFIG_HOME", f"{home}/.config") + "/git/config", f"{home}/.gitconfig"]
    )
    return tuple(Path(name) for name in [os.environ.get("GIT_CONFIG_SYSTEM", "/etc/gitconfig"), *own])


def configuration_stamp(repository: Repository, operators: tuple[Path, ...]) -> tuple[object, ...]:
    """A value that changes when a configuration does."""
    files = (repository.common / "config", repository.git_dir / "config.worktree", repository.common / "logs")
    stamps = [_file_stamp(file) for file in (*files[:2], *operators)]
    return *stamps, files[2].is_dir(), repository.common, os.environ.get("GIT_CONFIG_NOSYSTEM"), operators


def _file_stamp(file: Path) -> tuple[int, ...] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def find_repository(folder: Path) -> Repository | None:
    """The repository whose working tree holds `folder`, by its files alone; None when there is none."""
    folder = folder.absolute()
    for top in (folder, *folder.parents):
        git_dir = _git_dir(top)
        if git_dir is not None:
            return Repository(top, git_dir, _common_folder(git_dir))
    return None


def _git_dir(top: Path) -> Path | None:
    """The git folder that `.git` in `top` is or names; None if git would not accept it."""
    entry = top / ".git"
    if os.path.lexists(entry / "HEAD"):
        return Path(os.path.realpath(entry))
    try:
        text = read_plain(entry, 65_536)
    except (OSError, ValueError):
        return None
    if not text.startswith(b"gitdir: "):
        return None
    return Path(os.path.realpath(top / os.fsdecode(text[len(b"gitdir: ") :].rstrip(b"\r\n"))))


def _common_folder(git_dir: Path) -> Path:
    try:
        target = os.fsdecode(read_plain(git_dir / "commondir", 65_536).rstrip(b"\r\n"))
    except (OSError, ValueError):
        return git_dir
    return Path(os.path.realpath(git_dir / target))


_trusted_folders: dict[Path, tuple[Repository, tuple[object, ...]]] = {}
"""Folders of which git said that their repository may be read, until a configuration changes."""


def repository_root(folder: Path) -> Path:
    """The top of the working tree that `folder` lies in.

    Raises `Refusal`: `no_folder`, `no_repository`, `bare_repository`, `unsafe_repository` (owned by someone else),
    `broken_repository` (git does not accept its `.git`), `unfit_path` (no UTF-8: it could be neither stored nor shown).
    """
    folder = folder.absolute()
    shown = sanitise(str(folder))
    if not folder.is_dir():
        raise Refusal("no_folder", f"{shown} is not a folder", "name an existing folder with --workspace DIR")
    nearest = find_repository(folder)
    stamp = configuration_stamp(nearest, operators_files()) if nearest else ()
    if nearest is not None and _trusted_folders.get(folder) == (nearest, stamp):
        return nearest.top
    # The one call that lets git find the repository itself: it knows whom to trust, and `rev-parse` runs nothing.
    arguments = ["rev-parse", "--is-bare-repository", "--show-toplevel"]
    without = (nearest.top, nearest.common.parent) if nearest else ()
    done = run_git(arguments, folder, operators_configuration(), without=without, timeout=10)
    bare, _, top = done.stdout.decode(errors="surrogateescape").partition("\n")
    error_text = done.stderr.decode(errors="replace")
    if bare == "true":
        raise Refusal("bare_repository", f"{shown} is a bare repository without working files", "clone it first")
    if done.returncode == 0 and top:
        root = Path(top.removesuffix("\n"))
        repository = find_repository(root)
        if repository is None or os.path.realpath(repository.top) != os.path.realpath(root):
            raise Refusal(
                "no_repository",
                f"the repository of {shown} has its files elsewhere, in {sanitise(str(root))}",
                "unset core.worktree in its configuration",
            )
        if nearest is not None and root == nearest.top:
            _trusted_folders[folder] = nearest, stamp
        return _require_utf8(root)
    raise _explain_refusal(folder, nearest, error_text)


def _explain_refusal(folder: Path, nearest: Repository | None, error_text: str) -> Refusal:
    """Why git found no repository that it would read, in words. `nearest` is the one that its files suggest."""
    shown = sanitise(str(folder))
    if "dubious ownership" in error_text:
        return Refusal(
            "unsafe_repository",
            f"{shown} belongs to another user, so git does not read it",
            f"git config --global --add safe.directory {shlex.quote(str(folder))}",
        )
    if "must be run in a work tree" in error_text:
        return Refusal(
            "no_repository",
            f"{shown} is inside a .git folder",
            "go to the folder above .git, or name it with --workspace DIR",
        )
    if nearest is not None and not nearest.git_dir.exists():
        return Refusal(
            "broken_repository",
            f"{sanitise(str(nearest.top))}/.git names {sanitise(str(nearest.git_dir))}, which does not exist",
            "if that repository was moved, run `git worktree repair` in it; otherwise clone it again",
        )
    if nearest is not None:
        complaint = sanitise(error_text).strip().partition("\n")[0]
        return Refusal(
            "broken_repository",
            f"git does not accept the repository in {sanitise(str(nearest.top))}: {complaint}",
            "see what `git status` says there; a damaged HEAD or configuration is in its .git folder",
        )
    return Refusal(
        "no_repository",
        f"{shown} is not in a git repository",
        "run `git init` there, or name another with --workspace DIR",
    )


def _require_utf8(path: Path) -> Path:
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise Refusal(
            "unfit_path",
            f"{sanitise(str(path))}: the name of the folder is not UTF-8",
            "rename the folder, or clone the repository to another",
        ) from error
    return path
