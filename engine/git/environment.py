"""Starts git in an environment in which it asks nothing, fetches nothing and runs no program (SPEC 3.9, 11.1).

`Git` and `repository` run git by it. Fixed variables keep git from questions, editors and the network. A
configuration that is written here keeps it from programs. git runs programs that the configuration of a repository
names: filters, hooks, a file-system monitor, text converters, diff and merge drivers, signature checkers, transports,
and more with each release. A list of settings to switch off would never be complete. So git does not read that
configuration, but the written one.

The written configuration has only settings from an allow-list, which are data, such as line endings, file modes, the
operator's name, and the upstream of a branch. They come from the operator's files and from those of the repository. The
configuration is in a shadow folder, which replaces the repository's common folder (`GIT_COMMON_DIR`) and links to its
objects and refs. The shadow folder has no hooks. Attributes may name a filter or a driver, but none is configured.

Shadow folders are in the folder for temporary files of this process, which other modules use, too.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from engine.files import read_plain, read_signature
from engine.frozen import frozen
from engine.installed import find_program, search_path_without
from engine.model import Refusal

MIN_VERSION = (2, 38)
"""The first version with `merge-tree --write-tree`, which merges without changing a working tree."""

INSTALL_GIT = f"install git {'.'.join(map(str, MIN_VERSION))} or newer"
"""What to do if git is missing or too old."""

PASSED_VARIABLES = ("HOME", "XDG_CONFIG_HOME", "TMPDIR", "USER", "LOGNAME", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
"""The variables that git gets from the engine's environment, in addition to a checked PATH."""

CONFIGURATION_VARIABLES = ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM")
"""The variables with the places of the operator's configuration. Only commands that read it get them."""

FIXED_VARIABLES = {
    "LC_ALL": "C.UTF-8",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_PAGER": "cat",
    "GIT_EDITOR": "false",
    "GIT_SEQUENCE_EDITOR": "false",
    "GIT_ASKPASS": "false",
    "GIT_SSH_COMMAND": "false",
    "GIT_NO_LAZY_FETCH": "1",  # git 2.44 and newer; older ones find no remote to fetch from, see `repository`
    "GIT_ALLOW_PROTOCOL": "",
}
"""Variables with which git asks no questions, opens no editor or pager, and fetches nothing."""

MAX_CONFIG_BYTES = 4_000_000
"""Maximum size of a configuration file. A larger one is refused."""

_LINKED_ENTRIES = ("objects", "refs", "packed-refs", "reftable", "logs", "info", "shallow", "worktrees")
"""The entries of the common folder that the shadow folder links to. `config` and `hooks` are not among them."""

_ALLOWED_SETTING = re.compile(
    r"core\.(repositoryformatversion|filemode|symlinks|ignorecase|precomposeunicode|protecthfs|protectntfs|autocrlf|eol"
    r"|sparsecheckout|sparsecheckoutcone|trustctime|checkstat|sharedrepository|logallrefupdates|untrackedcache|fsync"
    r"|fsyncmethod|fsyncobjectfiles|longpaths)"
    r"|extensions\.(?!worktreeconfig$|partialclone$).*|index\.(version|sparse|skiphash|threads)"
    r"|user\.(name|email|useconfigonly)|(author|committer)\.(name|email)"
    r"|branch\..*\.(remote|merge)|remote\..*\.(url|fetch)|url\..*\.insteadof"
    r"|merge\.(renames|renamelimit|directoryrenames)|init\.defaultbranch",
    re.DOTALL,
)
"""The settings that are read from any file. None of them names a program. `extensions.partialClone` is not among them,
so that git has no remote from which it could fetch missing objects."""

_ALLOWED_OPERATOR_SETTING = re.compile(r"core\.(excludesfile|attributesfile)")
"""Settings that name files. They are read only from the operator's own configuration."""

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
"""The end of every configuration, which overrides earlier settings. `mailmap` is off, because every log would open a
`.mailmap`, which may be a pipe."""


Setting = tuple[str, str | None]
"""A key and its value. The value is None for a key without `=`."""


class GitError(Refusal):
    """A git command failed. `exit_code` and `stderr` are those of git."""

    def __init__(self, arguments: Sequence[str], exit_code: int, stderr: str, folder: Path) -> None:
        super().__init__("git_failed", f"git {' '.join(arguments[:4])} failed in {folder}: {stderr.strip()[-400:]}")
        self.exit_code = exit_code
        self.stderr = stderr


def read_configuration_variables() -> dict[str, str]:
    """The variables with the places of the operator's configuration, and their present values."""
    return {name: os.environ[name] for name in CONFIGURATION_VARIABLES if name in os.environ}


# -- running git


def run_git(
    arguments: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    *,
    excluded_folders: Sequence[Path] = (),
    stdin: bytes | None = None,
    timeout: float = 60.0,
) -> subprocess.CompletedProcess[bytes]:
    """Run git in `folder`, with only the variables in `PASSED_VARIABLES`, `FIXED_VARIABLES` and `environment`.

    No program from one of `excluded_folders` is used. The root is never excluded, because it has all programs. Raises
    `GitError` with exit code -1 after `timeout` seconds, and `Refusal` `no_folder`, `no_git`.
    """
    excluded = [folder for folder in excluded_folders if folder != folder.parent]
    path = search_path_without(*excluded)
    program = find_program("git", *excluded)
    if program is None:
        raise Refusal("no_git", "git is not installed or not on the PATH", INSTALL_GIT)
    passed = {name: os.environ[name] for name in PASSED_VARIABLES if name in os.environ}
    try:
        return subprocess.run(
            [program, *arguments],
            cwd=folder,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            env={"PATH": path, **passed, **FIXED_VARIABLES, **environment},
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise GitError(arguments, -1, f"no answer within {error.timeout:.0f} s", folder) from error
    except (FileNotFoundError, NotADirectoryError) as error:
        raise Refusal("no_folder", f"{folder} does not exist", "bring it back, or name an existing folder") from error


# -- shadows of repositories


@frozen
class Repository:
    """A working tree and the folders of its git files. `git_dir` and `common` differ in a linked worktree."""

    top: Path
    git_dir: Path
    common: Path

    @property
    def own_folders(self) -> tuple[Path, Path]:
        """Its working tree and the folder of its git files. No program in them is run."""
        return self.top, self.common.parent

    def environment(self) -> dict[str, str]:
        """The variables that make git work on this repository, in whatever folder it runs. Raises `GitError` or
        `Refusal` if the configuration cannot be read."""
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
        """The names of the filters that have programs in a configuration. These programs are never run."""
        return _shadows.of(self).filters

    @property
    def configuration_stamp(self) -> tuple[object, ...]:
        """A value that changes whenever a configuration changes that git reads for this repository."""
        return _shadows.of(self).stamp


@frozen
class _Shadow:
    """A shadow folder, which replaces a common folder, and the files from which it was made."""

    folder: Path
    filters: frozenset[str]
    sources: tuple[Path, ...]
    stamp: tuple[object, ...]


class _Shadows:
    """The shadow folders of this process. A shadow folder is made again if a configuration has changed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._root = Path()
        """The temporary folder that has the shadow folders."""
        self._cache: dict[Path, _Shadow] = {}
        """By the git folder of the repository."""

    def of(self, repository: Repository) -> _Shadow:
        """The up-to-date shadow of a repository."""
        with self._lock:
            root = get_temporary_folder()
            if root != self._root:
                self._root, self._cache = root, {}
            cached = self._cache.get(repository.git_dir)
            if cached is not None and cached.stamp == read_configuration_stamp(repository, cached.sources):
                return cached
            shadow = _create_shadow(repository, root)
            for gone in [git_dir for git_dir in self._cache if not git_dir.is_dir()]:
                shutil.rmtree(self._cache.pop(gone).folder, ignore_errors=True)
            self._cache[repository.git_dir] = shadow
            return shadow


_shadows = _Shadows()


def _create_shadow(repository: Repository, root: Path) -> _Shadow:
    """Make the shadow folder of a repository, or bring it up to date.

    The configuration is written twice. First it has the repository's settings, because `includeIf` in the operator's
    files may depend on them. Then it has the settings of both.
    """
    folder = _make_shadow_folder(repository, root)
    operator_files = find_operator_files()
    # The stamp is taken before the files are read: what changes meanwhile makes the shadow out of date.
    stamp = read_configuration_stamp(repository, operator_files)
    repository_settings = _read_repository_settings(repository, root)
    allowed_settings = _select_settings(repository_settings, _ALLOWED_SETTING)
    _write_config(folder, allowed_settings)
    operator_settings, read_files = _read_operator_settings(repository, folder)
    allowed_operator_settings = _select_settings(operator_settings, _ALLOWED_SETTING, _ALLOWED_OPERATOR_SETTING)
    attributes = dict(allowed_operator_settings).get("core.attributesfile") or ""
    _write_config(folder, [*allowed_operator_settings, *allowed_settings], repository.common, attributes)
    sources = tuple(dict.fromkeys([*operator_files, *read_files]))
    if sources != operator_files:
        stamp = read_configuration_stamp(repository, sources)
    names = (_FILTER_SETTING.fullmatch(key) for key, _ in [*operator_settings, *repository_settings])
    return _Shadow(folder, frozenset(name[1] for name in names if name), sources, stamp)


def _make_shadow_folder(repository: Repository, root: Path) -> Path:
    """Make the shadow folder of a repository with its links, if it is missing. Returns it."""
    import hashlib  # not before the first frame

    folder = root / hashlib.sha256(os.fsencode(repository.git_dir)).hexdigest()[:20]
    folder.mkdir(exist_ok=True)
    for name in _LINKED_ENTRIES:
        if not os.path.lexists(folder / name):
            (folder / name).symlink_to(repository.common / name)
    return folder


def _select_settings(settings: Sequence[Setting], *allowed: re.Pattern[str]) -> list[Setting]:
    """The settings whose keys match one of the patterns."""
    return [setting for setting in settings if any(pattern.fullmatch(setting[0]) for pattern in allowed)]


def _read_operator_settings(repository: Repository, shadow: Path) -> tuple[list[Setting], list[Path]]:
    """The settings of the operator and of the machine, and the files that have them."""
    environment = {"GIT_DIR": str(repository.git_dir), "GIT_COMMON_DIR": str(shadow), **read_configuration_variables()}
    fields = _list_settings(["--show-origin", "--includes"], repository, repository.top, environment)
    settings, files = [], []
    for origin, entry in zip(fields[0::2], fields[1::2], strict=True):
        if origin != f"file:{shadow / 'config'}":
            settings.append(_parse_entry(entry))
            files.append(Path(origin.removeprefix("file:")))
    return settings, files


def _read_repository_settings(repository: Repository, root: Path) -> list[Setting]:
    """The settings in the repository's own files, without included files."""
    settings = _read_settings(repository.common / "config", repository, root)
    if dict(settings).get("extensions.worktreeconfig", "") in (None, "true", "yes", "on", "1"):
        settings += _read_settings(repository.git_dir / "config.worktree", repository, root)
    return settings


def _read_settings(file: Path, repository: Repository, root: Path) -> list[Setting]:
    """The settings in one configuration file; none if it does not exist. Raises `Refusal` `unsafe_repository`."""
    try:
        text = read_plain(file, MAX_CONFIG_BYTES)
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise Refusal("unsafe_repository", f"{file} cannot be read: {error}", "check the file") from error
    options, environment = ["--file", "-", "--no-includes"], {"GIT_DIR": str(root / "none")}
    return [_parse_entry(entry) for entry in _list_settings(options, repository, root, environment, stdin=text)]


def _list_settings(
    options: list[str],
    repository: Repository,
    folder: Path,
    environment: Mapping[str, str],
    stdin: bytes | None = None,
) -> list[str]:
    """The settings that `git config --list` prints with these options. Raises `GitError`."""
    arguments = ["config", *options, "--null", "--list"]
    excluded = repository.own_folders
    completed = run_git(arguments, folder, environment, excluded_folders=excluded, stdin=stdin, timeout=10)
    if completed.returncode:
        raise GitError(arguments, completed.returncode, completed.stderr.decode(errors="replace"), repository.top)
    return [field for field in completed.stdout.decode(errors="surrogateescape").split("\0") if field]


def _parse_entry(entry: str) -> Setting:
    """Parse a setting as `git config --null --list` prints it."""
    key, newline, value = entry.partition("\n")
    return key, value if newline else None


def _write_config(folder: Path, settings: list[Setting], common: Path | None = None, attributes: str = "") -> None:
    """Write the configuration of a shadow folder, of which `_FIXED_CONFIG` is the end. If the repository's folder
    `common` has no logs, git writes none."""
    lines = []
    for key, value in settings:
        section, _, rest = key.partition(".")
        middle, _, name = rest.rpartition(".")
        lines.append(f"[{section} {_quote(middle)}]" if middle else f"[{section}]")
        lines.append(f"\t{name}" if value is None else f"\t{name} = {_quote(value)}")
    lines.append(_FIXED_CONFIG.format(attributes=_quote(attributes)))
    if common is not None and not (common / "logs").is_dir():
        lines.append("[core]\n\tlogAllRefUpdates = false\n")  # the link to `logs` has no target to write to
    replacement = folder / "config.new"
    replacement.write_text("\n".join(lines), errors="surrogateescape")
    replacement.replace(folder / "config")


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{escaped}"'


def find_operator_files() -> tuple[Path, ...]:
    """The files in which git looks for the operator's configuration."""
    named_file = os.environ.get("GIT_CONFIG_GLOBAL")
    home = os.environ.get("HOME", "/")
    config_home = os.environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
    usual_files = [f"{config_home}/git/config", f"{home}/.gitconfig"]
    system_file = os.environ.get("GIT_CONFIG_SYSTEM", "/etc/gitconfig")
    return tuple(map(Path, [system_file, *([named_file] if named_file else usual_files)]))


def read_configuration_stamp(repository: Repository, operator_files: tuple[Path, ...]) -> tuple[object, ...]:
    """A value that changes whenever a configuration changes."""
    files = (repository.common / "config", repository.git_dir / "config.worktree", *operator_files)
    has_logs = (repository.common / "logs").is_dir()
    no_system = os.environ.get("GIT_CONFIG_NOSYSTEM")
    return *map(read_signature, files), has_logs, repository.common, no_system, operator_files


# -- a folder for temporary files

_FOLDER_PREFIX = "clawpy-git-"

_LOCK_NAME = "lock"
"""A file in the folder. Its process holds a lock on it until it ends, however it ends."""


class _TemporaryFolder:
    """Makes the folder when it is first needed, and again after a fork or if it was removed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._path: Path | None = None
        self._process = 0
        """The process that made the folder."""

    def get(self) -> Path:
        """The folder, which exists."""
        with self._lock:
            if self._path is None or self._process != os.getpid() or not self._path.is_dir():
                _remove_abandoned_folders()
                self._path, self._process = _create_folder(), os.getpid()
                atexit.register(_remove_folder, self._process, self._path)
            return self._path


_temporary_folder = _TemporaryFolder()


def get_temporary_folder() -> Path:
    """A folder for temporary files of this process. It is removed when the process ends, or by the next one if this one
    is killed."""
    return _temporary_folder.get()


def _create_folder() -> Path:
    """A new folder for temporary files of this process, with its lock."""
    root = Path(tempfile.mkdtemp(prefix=_FOLDER_PREFIX))
    new = root / f"{_LOCK_NAME}.new"
    descriptor = os.open(new, os.O_RDWR | os.O_CREAT, 0o600)  # never closed
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    new.rename(root / _LOCK_NAME)  # so that no other process sees it without the lock
    return root


def _remove_abandoned_folders() -> None:
    """Remove the folders of the operator's processes that ended without removing theirs, because they were killed."""
    for lock in Path(tempfile.gettempdir()).glob(f"{_FOLDER_PREFIX}*/{_LOCK_NAME}"):
        with suppress(OSError):  # it is held, or gone
            if lock.parent.lstat().st_uid != os.geteuid():  # one of another user may be a trap, such as a pipe
                continue
            with lock.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock.parent, ignore_errors=True)


def _remove_folder(process: int, root: Path) -> None:
    if process == os.getpid():  # a fork must not remove it
        shutil.rmtree(root, ignore_errors=True)
