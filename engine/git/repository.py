"""Which repository a folder belongs to, and a configuration of it that names no program.

git runs programs that a repository's configuration names: filters, hooks, a file-system monitor, text converters,
diff and merge drivers, signature checkers, transports, and more with each release. Switching off what is known would
always lack something. So git never reads that configuration. It reads one that we write: an allow-list of settings
which are only data (line endings, file modes, who the operator is, what a branch follows), taken from the operator's
files and the repository's own. It lies in a folder of ours that stands in for the repository's common folder
(`GIT_COMMON_DIR`) and links to its objects and refs. There are no hooks in it. Attributes may name a filter or a
driver; there is none of that name.

The one process that runs git is started here, too.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import threading
import unicodedata
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from engine import programs
from engine.frozen import frozen
from engine.model import Refusal, sanitise
from engine.plain_files import read_plain

MIN_VERSION = (2, 38)
"""The first git whose `merge-tree --write-tree` merges without touching a working tree."""

PASSED_ON = ("HOME", "XDG_CONFIG_HOME", "TMPDIR", "USER", "LOGNAME", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
"""What git gets of our environment, besides a checked PATH: an allow-list."""

CONFIGURATION = ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM")
"""Where the operator keeps the configuration; only what reads it gets these."""

FIXED = {
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
"""Nothing is asked, edited, shown page by page or fetched."""


class GitError(Refusal):
    """A git command failed. `exit_code` and `stderr` are git's own."""

    def __init__(self, arguments: Sequence[str], exit_code: int, stderr: str, folder: Path) -> None:
        super().__init__("git_failed", f"git {' '.join(arguments[:4])} failed in {folder}: {stderr.strip()[-400:]}")
        self.exit_code = exit_code
        self.stderr = stderr


def operators_configuration() -> dict[str, str]:
    """The variables that say where the operator's own configuration is."""
    return {name: os.environ[name] for name in CONFIGURATION if name in os.environ}


def call(
    arguments: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    *,
    without: Sequence[Path] = (),
    stdin: bytes | None = None,
    timeout: float = 60.0,
) -> subprocess.CompletedProcess[bytes]:
    """Run git in `folder` with exactly `PASSED_ON`, `FIXED` and `environment`. No program from a folder in `without`
    is used. Raises `GitError` (exit code -1) after `timeout` seconds, `Refusal` `no_folder`, `no_git`."""
    path = programs.search_path(*without)
    program = programs.find("git", *without)
    if program is None:
        raise Refusal("no_git", "git is not installed or not on the PATH", "install git 2.38 or newer")
    passed = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    try:
        return subprocess.run(
            [program, *arguments],
            cwd=folder,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            env={"PATH": path, **passed, **FIXED, **environment},
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise GitError(arguments, -1, f"no answer within {error.timeout:.0f} s", folder) from error
    except (FileNotFoundError, NotADirectoryError) as error:
        raise Refusal("no_folder", f"{folder} does not exist", "name an existing folder") from error


MAX_CONFIG_BYTES = 4_000_000
"""Bytes of a configuration file; a larger one is refused."""

_SHARED = ("objects", "refs", "packed-refs", "reftable", "logs", "info", "shallow", "worktrees")
"""What of the common folder git gets to see: everything but `config` and `hooks`."""

_DATA = re.compile(
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

_OPERATORS_DATA = re.compile(r"core\.(excludesfile|attributesfile)")
"""Settings that name files, and are taken over from the operator's own configuration alone."""

_FILTER = re.compile(r"filter\.(.*)\.(clean|smudge|process|required)", re.DOTALL)

_FIXED = """
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
"""What stands last, and so wins. A `.mailmap` would be opened by every log, and may be a pipe."""


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
    """A folder that stands in for a common folder, and what it was made from."""

    folder: Path
    filters: frozenset[str]
    sources: tuple[Path, ...]
    stamp: tuple[object, ...]


class _Shadows:
    """The stand-in folders of this process, each made anew when a configuration changed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._root: tuple[int, Path] | None = None
        self._known: dict[Path, _Shadow] = {}

    def of(self, repository: Repository) -> _Shadow:
        """The present one for a repository."""
        with self._lock:
            if self._root is None or self._root[0] != os.getpid() or not self._root[1].is_dir():
                self._root = os.getpid(), Path(tempfile.mkdtemp(prefix="clawpy-git-"))
                self._known = {}
                atexit.register(_remove, *self._root)
            known = self._known.get(repository.git_dir)
            if known is not None and known.stamp == _stamp(repository, known.sources):
                return known
            made = _made(repository, self._root[1])
            for gone in [git_dir for git_dir in self._known if not git_dir.is_dir()]:
                shutil.rmtree(self._known.pop(gone).folder, ignore_errors=True)
            self._known[repository.git_dir] = made
            return made


_shadows = _Shadows()


def _remove(process: int, root: Path) -> None:
    if process == os.getpid():  # not in a fork of it
        shutil.rmtree(root, ignore_errors=True)


def _made(repository: Repository, root: Path) -> _Shadow:
    folder = root / hashlib.sha256(os.fsencode(repository.git_dir)).hexdigest()[:20]
    folder.mkdir(exist_ok=True)
    for name in _SHARED:
        if not os.path.lexists(folder / name):
            (folder / name).symlink_to(repository.common / name)
    operators = _operators_files()
    stamp = _stamp(repository, operators)
    own = _own_settings(repository, root)
    _write(folder, [item for item in own if _DATA.fullmatch(item[0])])
    # With the settings of the repository in place, so that the operator's `includeIf` finds what it looks for.
    out = call(
        ["config", "--null", "--show-origin", "--includes", "--list"],
        repository.top,
        {"GIT_DIR": str(repository.git_dir), "GIT_COMMON_DIR": str(folder), **operators_configuration()},
        without=(repository.top, repository.common.parent),
        timeout=10,
    )
    if out.returncode:
        raise GitError(["config", "--list"], out.returncode, out.stderr.decode(errors="replace"), repository.top)
    fields = out.stdout.decode(errors="surrogateescape").split("\0")
    mine = f"file:{folder / 'config'}"
    theirs = [(origin, *_item(entry)) for origin, entry in zip(fields[0::2], fields[1::2], strict=False)]
    foreign = [(key, value) for origin, key, value in theirs if origin != mine]
    kept = [item for item in foreign if _DATA.fullmatch(item[0]) or _OPERATORS_DATA.fullmatch(item[0])]
    attributes = next((value for key, value in reversed(kept) if key == "core.attributesfile"), "")
    _write(folder, [*kept, *(item for item in own if _DATA.fullmatch(item[0]))], repository.common, attributes or "")
    sources = dict.fromkeys(
        [*operators, *(Path(their[0].removeprefix("file:")) for their in theirs if their[0] != mine)]
    )
    if tuple(sources) != operators:
        stamp = _stamp(repository, tuple(sources))
    filters = frozenset(match[1] for key, _ in [*foreign, *own] if (match := _FILTER.fullmatch(key)))
    return _Shadow(folder, filters, tuple(sources), stamp)


def _own_settings(repository: Repository, root: Path) -> list[tuple[str, str | None]]:
    """What the repository's own files say, without what they include."""
    own = _parsed(repository.common / "config", repository, root)
    if dict(own).get("extensions.worktreeconfig", "") in (None, "true", "yes", "on", "1"):
        own += _parsed(repository.git_dir / "config.worktree", repository, root)
    return own


def _parsed(file: Path, repository: Repository, root: Path) -> list[tuple[str, str | None]]:
    try:
        text = read_plain(file, MAX_CONFIG_BYTES)
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise Refusal("unsafe_repository", f"{file} cannot be read: {error}", "check the file") from error
    arguments = ["config", "--file", "-", "--no-includes", "--null", "--list"]
    without = (repository.top, repository.common.parent)
    done = call(arguments, root, {"GIT_DIR": str(root / "none")}, without=without, stdin=text, timeout=10)
    if done.returncode:
        raise GitError(["config", "--list"], done.returncode, done.stderr.decode(errors="replace"), file)
    return [_item(entry) for entry in done.stdout.decode(errors="surrogateescape").split("\0") if entry]


def _item(entry: str) -> tuple[str, str | None]:
    """A setting as `git config --null --list` prints it; None for the value of one that has no `=`."""
    key, newline, value = entry.partition("\n")
    return key, value if newline else None


def _write(folder: Path, items: list[tuple[str, str | None]], common: Path | None = None, attributes: str = "") -> None:
    lines = []
    for key, value in items:
        section, _, rest = key.partition(".")
        middle, _, name = rest.rpartition(".")
        lines.append(f"[{section} {_quoted(middle)}]" if middle else f"[{section}]")
        lines.append(f"\t{name}" if value is None else f"\t{name} = {_quoted(value)}")
    lines.append(_FIXED.format(attributes=_quoted(attributes)))
    if common is not None and not (common / "logs").is_dir():
        lines.append("[core]\n\tlogAllRefUpdates = false\n")  # nothing can be made behind a link that leads nowhere
    fresh = folder / "config.new"
    fresh.write_text("\n".join(lines), errors="surrogateescape")
    fresh.replace(folder / "config")


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{escaped}"'


def _operators_files() -> tuple[Path, ...]:
    """Where git looks for the operator's configuration."""
    named = os.environ.get("GIT_CONFIG_GLOBAL")
    home = os.environ.get("HOME", "/")
    own = (
        [named]
        if named
        else [os.environ.get("XDG_CONFIG_HOME", f"{home}/.config") + "/git/config", f"{home}/.gitconfig"]
    )
    return tuple(Path(one) for one in [os.environ.get("GIT_CONFIG_SYSTEM", "/etc/gitconfig"), *own])


def _stamp(repository: Repository, operators: tuple[Path, ...]) -> tuple[object, ...]:
    """What changes when a configuration does."""
    files = (repository.common / "config", repository.git_dir / "config.worktree", repository.common / "logs")
    there = [_state(file) for file in (*files[:2], *operators)]
    return *there, files[2].is_dir(), repository.common, os.environ.get("GIT_CONFIG_NOSYSTEM"), operators


def _state(file: Path) -> tuple[int, ...] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def find(folder: Path) -> Repository | None:
    """The repository whose working tree holds `folder`, by its files alone; None when there is none."""
    folder = folder.absolute()
    for top in (folder, *folder.parents):
        git_dir = _git_dir(top)
        if git_dir is not None:
            return Repository(top, git_dir, _common(git_dir))
    return None


def _git_dir(top: Path) -> Path | None:
    """What `.git` in `top` is or names; None where there is nothing that git would take."""
    place = top / ".git"
    if os.path.lexists(place / "HEAD"):
        return Path(os.path.realpath(place))
    try:
        text = read_plain(place, 65_536)
    except (OSError, ValueError):
        return None
    if not text.startswith(b"gitdir: "):
        return None
    return Path(os.path.realpath(top / os.fsdecode(text[len(b"gitdir: ") :].rstrip(b"\r\n"))))


def _common(git_dir: Path) -> Path:
    try:
        named = os.fsdecode(read_plain(git_dir / "commondir", 65_536).rstrip(b"\r\n"))
    except (OSError, ValueError):
        return git_dir
    return Path(os.path.realpath(git_dir / named))


_trusted: dict[Path, tuple[Repository, tuple[object, ...]]] = {}
"""Folders of which git said that their repository may be read, until a configuration changes."""


def repository_root(folder: Path) -> Path:
    """The top of the working tree that `folder` lies in.

    Raises `Refusal`: `no_folder`, `no_repository`, `bare_repository`, `unsafe_repository` (owned by someone else),
    `unfit_path` (no UTF-8: it could be neither stored nor shown).
    """
    folder = folder.absolute()
    shown = sanitise(str(folder))
    if not folder.is_dir():
        raise Refusal("no_folder", f"{shown} is not a folder", "name an existing folder with --workspace DIR")
    found = find(folder)
    stamp = _stamp(found, _operators_files()) if found else ()
    if found is not None and _trusted.get(folder) == (found, stamp):
        return found.top
    # The one call that lets git find the repository itself: it knows whom to trust, and `rev-parse` runs nothing.
    arguments = ["rev-parse", "--is-bare-repository", "--show-toplevel"]
    without = (found.top, found.common.parent) if found else ()
    done = call(arguments, folder, operators_configuration(), without=without, timeout=10)
    bare, _, top = done.stdout.decode(errors="surrogateescape").partition("\n")
    complaint = done.stderr.decode(errors="replace")
    if bare == "true":
        raise Refusal("bare_repository", f"{shown} is a bare repository without working files", "clone it first")
    if done.returncode == 0 and top:
        root = Path(top.removesuffix("\n"))
        here = find(root)
        if here is None or os.path.realpath(here.top) != os.path.realpath(root):
            raise Refusal(
                "no_repository",
                f"the repository of {shown} has its files elsewhere, in {sanitise(str(root))}",
                "unset core.worktree in its configuration",
            )
        if found is not None and root == found.top:
            _trusted[folder] = found, stamp
        return _storable(root)
    if "dubious ownership" in complaint:
        raise Refusal(
            "unsafe_repository",
            f"{shown} belongs to another user, so git does not read it",
            f"git config --global --add safe.directory {shlex.quote(str(folder))}",
        )
    if "must be run in a work tree" in complaint:
        raise Refusal(
            "no_repository",
            f"{shown} is inside a .git folder",
            "go to the folder above .git, or name it with --workspace DIR",
        )
    raise Refusal(
        "no_repository",
        f"{shown} is not in a git repository",
        "run `git init` there, or name another with --workspace DIR",
    )


def _storable(path: Path) -> Path:
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise Refusal(
            "unfit_path",
            f"{sanitise(str(path))}: the name of the folder is not UTF-8",
            "rename the folder, or clone the repository to another",
        ) from error
    return path


OWN = ("clawpy/", "clawpy-")
MAX_LENGTH = 50
"""Characters of a branch's name, before it is numbered."""


def own_branch(title: str, session_id: str, *, below: bool = True) -> str:
    """The branch that a session's changes become: `clawpy/` and the first words of its prompt in lower case, such as
    `clawpy/fix-lint-in-cart`, or the session's id where there is no word; `clawpy-` where none can be below `clawpy`.
    Always a name that git takes."""
    first = unicodedata.normalize("NFKC", title.strip().partition("\n")[0]).lower()
    words = "".join(one if one.isalnum() else " " for one in first).split()
    name, room = "", MAX_LENGTH - len(OWN[0])
    for word in words:
        if name and len(name) + 1 + len(word) > room:
            break
        name = f"{name}-{word}" if name else word[:room]
    return f"{OWN[0] if below else OWN[1]}{name or session_id}"


def is_own_branch(name: str, session: str) -> bool:
    """Whether a branch is one that a session's changes became. `session`: the trailer `Session` of its last commit,
    "" when it has none. A branch that you committed to is yours."""
    return name.startswith(OWN) and bool(session.strip())


FILE = ".gitmodules"
MAX_MODULES_BYTES = 1_000_000
"""Bytes of a list of submodules; a larger one counts as none."""


def submodule_paths(folder: Path) -> tuple[str, ...]:
    """The paths that the tree in `folder` lists as submodules; none where there is no list that git would read."""
    try:
        text = read_plain(folder / FILE, MAX_MODULES_BYTES, follow=False)
    except (OSError, ValueError):
        return ()
    return _listed(text)


@lru_cache(maxsize=64)
def _listed(text: bytes) -> tuple[str, ...]:
    arguments = ["config", "--file", "-", "--no-includes", "--null", "--get-regexp", r"^submodule\..*\.path$"]
    try:
        done = call(arguments, Path("/"), {"GIT_DIR": os.devnull}, stdin=text, timeout=10)
    except GitError:
        return ()
    entries = done.stdout.decode(errors="surrogateescape").split("\0")  # up to a fault, as far as it was read
    return tuple(dict.fromkeys(path for entry in entries if (path := entry.partition("\n")[2])))
