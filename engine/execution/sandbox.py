"""What a session's commands may touch (SPEC 3.8): the sandbox ladder and the environment without secrets.

Rungs built so far: bubblewrap, where it really works (it is tried once, not looked up), and none. Inside bubblewrap
everything is read-only but the session's folder, its scratch and its caches; places where secrets live, other
programs' sockets and the engine's own data are hidden; there is no network but loopback unless the operator allowed
it for the workspace; and no process outlives the session, since the whole lot shares one process namespace.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from engine.home import Home

SESSION_MARK = "CLAWPY_SESSION"
"""Environment variable that every process of a session carries: its session's id."""

SECRET_PLACES = (
    ".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".netrc", ".pgpass", ".my.cnf", ".npmrc", ".yarnrc.yml",
    ".pypirc", ".git-credentials", ".password-store", ".vault-token", ".boto", ".s3cfg", ".databrickscfg",
    ".cargo/credentials", ".cargo/credentials.toml", ".gem/credentials", ".terraform.d", ".m2/settings.xml",
    ".gradle/gradle.properties", ".config/gh", ".config/glab-cli", ".config/hub", ".config/git/credentials",
    ".config/gcloud", ".config/op", ".config/rclone", ".config/doctl", ".config/heroku", ".config/containers",
    ".config/google-chrome", ".config/chromium", ".mozilla", ".thunderbird", ".local/share/keyrings",
    ".local/share/python_keyring", ".local/share/kwalletd", ".claude", ".claude.json", ".codex", ".gemini",
    ".config/anthropic", ".config/openai", ".local/share/opencode", ".bash_history", ".zsh_history",
    ".python_history", ".node_repl_history", ".psql_history", ".local/share/fish/fish_history",
    "Library/Keychains",
)  # fmt: skip
"""Folders and files under the operator's home that sessions do not see."""

SECRET_POINTERS = (
    "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE", "GOOGLE_APPLICATION_CREDENTIALS", "KUBECONFIG", "DOCKER_CONFIG",
    "GNUPGHOME", "NETRC", "NPM_CONFIG_USERCONFIG", "PGPASSFILE", "CLOUDSDK_CONFIG",
)  # fmt: skip
"""Environment variables that say where a secret is kept; what they name is hidden too."""

PASSED = frozenset(
    (
        "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "VIRTUAL_ENV", "CONDA_PREFIX",
        "PYENV_ROOT", "PYENV_VERSION", "PYTHONPATH", "CARGO_HOME", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN", "RUSTFLAGS",
        "GOPATH", "GOROOT", "GOFLAGS", "GOTOOLCHAIN", "NVM_DIR", "NVM_BIN", "VOLTA_HOME", "FNM_DIR", "NODE_PATH",
        "JAVA_HOME", "GEM_HOME", "GEM_PATH", "ASDF_DIR", "ASDF_DATA_DIR", "MISE_DATA_DIR", "HOMEBREW_PREFIX",
        "NIX_PATH", "NIX_PROFILES", "CC", "CXX", "CFLAGS", "CXXFLAGS", "LDFLAGS", "PKG_CONFIG_PATH", "MAKEFLAGS",
        "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SDKROOT", "DEVELOPER_DIR", "SSL_CERT_FILE", "SSL_CERT_DIR",
        "DJANGO_SETTINGS_MODULE", "XDG_DATA_DIRS", "XDG_CONFIG_DIRS",
    )
)  # fmt: skip
"""The only variables of the engine's own environment that a session inherits, besides LC_*."""

_CREDENTIALS_IN_URL = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s@]+@", re.IGNORECASE)


PRIVATE = tuple(dict.fromkeys((Path("/tmp").resolve(), Path("/var/tmp").resolve())))
"""Places of which a session has its own, empty at first: other programs' temporary files are none of its business."""


@dataclass(frozen=True, slots=True)
class Confinement:
    """What one session's commands may touch; all paths absolute.

    `folder` is where it works, writable but for its `.git`. `readable` are shown read-only even where they lie in a
    place that is otherwise private (/tmp). `scratch` goes with the session, `caches` stay for later sessions of the
    same workspace. `hidden` are secrets. `network` beyond loopback.
    """

    folder: Path
    scratch: Path
    caches: Path
    readable: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    network: bool = False


class Sandbox(Protocol):
    """One rung of the ladder."""

    @property
    def name(self) -> str: ...

    @property
    def confines(self) -> bool:
        """True when commands are held by the operating system, not by good manners."""

    def describe(self, *, network: bool) -> str:
        """How a session's row says it, for instance "bubblewrap, no network"."""

    def wrap(self, argv: Sequence[str], confinement: Confinement, *, cwd: Path) -> list[str]:
        """The command line that runs `argv` in `cwd` confined."""

    def temporary(self, confinement: Confinement) -> str:
        """TMPDIR as commands see it."""


class NoSandbox:
    """The last rung: a clean environment and a process group, no more. Nothing autonomous may execute here."""

    name = "none"
    confines = False

    def describe(self, *, network: bool) -> str:
        return "none"

    def wrap(self, argv: Sequence[str], confinement: Confinement, *, cwd: Path) -> list[str]:
        return list(argv)

    def temporary(self, confinement: Confinement) -> str:
        return str(confinement.scratch / "tmp")


class Bubblewrap:
    """`bwrap`, unprivileged; about 10 ms a command."""

    name = "bubblewrap"
    confines = True

    def __init__(self, program: str = "bwrap") -> None:
        self._program = program

    def describe(self, *, network: bool) -> str:
        return "bubblewrap, with network" if network else "bubblewrap, no network"

    def temporary(self, confinement: Confinement) -> str:
        return "/tmp"

    def wrap(self, argv: Sequence[str], confinement: Confinement, *, cwd: Path) -> list[str]:
        seen = (confinement.folder, confinement.scratch, confinement.caches, *confinement.readable)
        tools = [tool for tool in tools_in(PRIVATE, argv[0]) if not any(tool.is_relative_to(one) for one in seen)]
        confinement = replace(confinement, readable=(*confinement.readable, *tools))
        return [self._program, *self._mounts(confinement), "--chdir", str(cwd), "--", *argv]

    def works(self) -> bool:
        """Try it, with every kind of option that sessions use."""
        base = [*self._base(), "--tmpfs", "/tmp", "--chdir", "/"]
        try:
            done = subprocess.run(
                [self._program, *base, "--", "true"], capture_output=True, timeout=10, stdin=subprocess.DEVNULL
            )
        except (OSError, subprocess.TimeoutExpired):
            return False
        return done.returncode == 0

    def _base(self) -> list[str]:
        # die-with-parent and the process namespace: nothing survives. new-session: no typing into our terminal.
        return [
            "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL",
            "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc",
        ]  # fmt: skip

    def _mounts(self, confinement: Confinement) -> list[str]:
        """Later mounts cover earlier ones: the read-only world, private places, secrets, then what is shown again."""
        shown = sorted({*confinement.readable}, key=lambda path: len(path.parts))
        writable = (confinement.folder, confinement.scratch, confinement.caches)
        arguments = self._base()
        if confinement.network:
            arguments += ["--share-net"]
        for place in PRIVATE:
            if place.is_dir():
                arguments += ["--bind", str(confinement.scratch / "tmp"), str(place)]
        # Sockets are files: a read-only mount does not stop anyone from talking to Docker or an ssh agent.
        arguments += _fresh_run(confinement.network)
        covered = {*PRIVATE, Path("/run").resolve()}
        again = (*shown, *writable)
        empty = confinement.scratch / "empty"
        early, late = _hiding_order(confinement.hidden, covered, again)
        arguments += _hide(early, empty)
        for path in shown:
            arguments += ["--ro-bind", str(path), str(path)]
        for path in writable:
            arguments += ["--bind", str(path), str(path)]
        own_git = confinement.folder / ".git"
        if own_git.exists():
            # Whoever may write .git can plant a hook or a filter that the operator's next git command runs.
            arguments += ["--ro-bind", str(own_git), str(own_git)]
        return arguments + _hide(late, empty)


def tools_in(places: Iterable[Path], program: str, path: str | None = None) -> list[Path]:
    """Installations that lie in `places` and that a command needs: that of `program` and those on the search path
    (`path`, by default PATH). Of `x/bin/tool` that is `x`; of a tool that lies in a place itself only the tool."""
    places = set(places)
    found = shutil.which(program, path=path)
    searched = (os.environ.get("PATH", "") if path is None else path).split(os.pathsep)
    wanted = [Path(folder) / "tool" for folder in searched if folder]
    if found:
        # A virtual environment may be a link, and its interpreter one that leads to another installation.
        own = Path(found)
        wanted = [own, own.parent.resolve() / own.name, own.resolve(), *wanted]
    tools = []
    for tool in dict.fromkeys(wanted):
        if not any(tool.is_relative_to(place) for place in places):
            continue
        root = tool.parent.parent if tool.parent.name in ("bin", "sbin") else tool.parent
        root = tool if root in places else root
        if root.exists() and not root.is_symlink():  # nothing can be mounted on a link
            tools.append(root)
    return tools


def _fresh_run(network: bool) -> list[str]:
    """An empty /run, but for what programs need of it: NixOS' system, the resolver's file."""
    if not Path("/run").is_dir():
        return []
    arguments = ["--tmpfs", "/run"]
    kept = ["/run/current-system", "/run/opengl-driver"]
    if network:
        resolver = Path("/etc/resolv.conf").resolve()
        if resolver.is_relative_to("/run"):
            kept.append(str(resolver.parent))
    for path in kept:
        if Path(path).exists():
            arguments += ["--ro-bind", path, path]
    return arguments


def _hiding_order(
    hidden: Iterable[Path], covered: Iterable[Path], again: Sequence[Path]
) -> tuple[list[Path], list[Path]]:
    """Which secrets to hide before, which after the session's own folders are mounted.

    A secret inside such a folder is hidden after it; one that holds such a folder before it (the folder itself was
    named by the operator). What lies in a covered place, and is not shown again, is hidden already.
    """
    early: list[Path] = []
    late: list[Path] = []
    for path in sorted(set(hidden), key=lambda path: len(path.parts)):
        if any(path != one and path.is_relative_to(one) for one in again):
            late.append(path)
        elif not any(path.is_relative_to(one) for one in (*covered, *early)):
            early.append(path)
    return early, [path for path in late if not any(path != one and path.is_relative_to(one) for one in late)]


def _hide(paths: Iterable[Path], empty: Path) -> list[str]:
    arguments: list[str] = []
    for path in paths:
        arguments += ["--tmpfs", str(path)] if path.is_dir() else ["--ro-bind", str(empty), str(path)]
    return arguments


@functools.cache
def best_sandbox() -> Sandbox:
    """The highest rung that works on this machine, tried once a process."""
    program = shutil.which("bwrap")
    if program is not None:
        bubblewrap = Bubblewrap(program)
        if bubblewrap.works():
            return bubblewrap
    return NoSandbox()


def secret_places(home: Home, environment: Mapping[str, str] = os.environ) -> tuple[Path, ...]:
    """Everything that exists here and is to be hidden: the operator's secrets, the engine's own config, data, logs."""
    user = Path(environment.get("HOME") or Path.home())
    named = [user / place for place in SECRET_PLACES]
    for pointer in SECRET_POINTERS:
        named += [Path(part).expanduser() for part in environment.get(pointer, "").split(os.pathsep) if part]
    named += [home.config, home.data, home.logs]
    found: set[Path] = set()
    for path in named:
        try:
            # A link is hidden where it leads: mounting over the link itself is not possible.
            real = path.resolve(strict=True)
        except OSError:
            continue  # not there, or not readable for us either
        if real != user and real != Path("/"):
            found.add(real)
    return tuple(sorted(found))


def session_environment(
    confinement: Confinement, sandbox: Sandbox, session_id: str, inherited: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """The environment of a session's commands: an allow-list of the engine's own, nothing secret, output line by
    line and without colours, and caches where they leave the operator's tree as it was (SPEC 3.9)."""
    kept = {
        name: value
        for name, value in inherited.items()
        if (name in PASSED or name.startswith("LC_")) and not _CREDENTIALS_IN_URL.search(value)
    }
    caches = confinement.caches
    temporary = sandbox.temporary(confinement)
    return kept | {
        SESSION_MARK: session_id,
        "TMPDIR": temporary,
        "TMP": temporary,
        "TEMP": temporary,
        "TERM": "dumb",
        "NO_COLOR": "1",
        "PAGER": "cat",
        "GIT_PAGER": "cat",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "XDG_CACHE_HOME": str(caches),
        "MYPY_CACHE_DIR": str(caches / "mypy"),
        "RUFF_CACHE_DIR": str(caches / "ruff"),
        "GOCACHE": str(caches / "go-build"),
        "npm_config_cache": str(caches / "npm"),
        "npm_config_update_notifier": "false",
        "COVERAGE_FILE": str(confinement.scratch / "coverage"),
        "HYPOTHESIS_STORAGE_DIRECTORY": str(caches / "hypothesis"),
    }
