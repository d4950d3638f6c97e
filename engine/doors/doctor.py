"""What is configured, found, missing, and how to mend it (SPEC 9.8). Works when no engine will open."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from engine.clock import SystemClock
from engine.config import FixedSettings, Settings
from engine.config_file import VARIABLES, dotted
from engine.git import OLDEST, Git, repository_root
from engine.home import Home
from engine.lock import read_holder
from engine.settings_store import SettingsStore
from engine.storage import migrations
from engine.storage.files import damaged_fix
from engine.values import Refusal, sanitise

OK, WARN, FAIL = "ok", "warn", "fail"
KEYRING_SECONDS = 3.0
"""A locked keyring may ask and never return; it is given so long (STACK)."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at. `state` is ok, warn (something works less well) or fail (something does not work)."""

    name: str
    state: str
    message: str
    fix: str = ""


def examine(home: Home, workspaces: Sequence[str]) -> dict[str, Any]:
    """Look at everything. Nothing is changed, nothing leaves the machine."""
    settings, config = _config(home)
    found = [
        _home(home),
        _engine(home),
        config,
        *_missing_workspaces(home, settings),
        *_variables(os.environ),
        _database(home.database),
        _index(),
        _git(),
        _gh(),
        _keyring(),
        _sandbox(),
        _agents(home, settings),
        *(_workspace(path) for path in workspaces),
    ]
    if not workspaces:
        found.append(Check("workspace", WARN, "no workspace", "run clawpy inside a git repository, or name one"))
    return {
        "version": _version("clawpy-console") or "not installed",
        "python": sys.version.split()[0],
        "ok": all(check.state != FAIL for check in found),
        "checks": [
            {"name": check.name, "state": check.state, "message": sanitise(check.message), "fix": sanitise(check.fix)}
            for check in found
        ],
        "paths": home.paths(),
        "settings": None if config.state == FAIL else settings.model_dump(mode="json", by_alias=True),
    }


def _home(home: Home) -> Check:
    for folder in (home.config, home.data, home.cache, home.logs):
        there = next((part for part in (folder, *folder.parents) if part.exists()), folder)
        if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
            return Check(
                "home", FAIL, f"{there} cannot be written", "make it writable, or name another with --home DIR"
            )
    free = shutil.disk_usage(next(part for part in (home.data, *home.data.parents) if part.exists())).free
    if free < 100 * 1024 * 1024:
        return Check("home", WARN, f"{free // 1024 // 1024} MB free on the disk of {home.data}", "free some space")
    return Check("home", OK, f"{home.root or home.data}, {free // 1024 // 1024 // 1024} GB free")


def _engine(home: Home) -> Check:
    holder = read_holder(home)
    if holder is None:
        return Check("engine", OK, "none is running")
    try:
        os.kill(holder.pid, 0)
    except ProcessLookupError:
        return Check("engine", OK, f"none is running; the one with process id {holder.pid} ended without saying so")
    except PermissionError:
        return Check("engine", WARN, f"process {holder.pid} of another user holds this home", "use a home of your own")
    return Check("engine", OK, f"running with process id {holder.pid} since {holder.since}")


def _config(home: Home) -> tuple[Settings, Check]:
    try:
        settings = SettingsStore(home.config_file, clock=SystemClock()).current
    except Refusal as error:
        return Settings(), Check("config", FAIL, error.message, error.fix)
    said = str(home.config_file) if home.config_file.exists() else f"defaults; {home.config_file} is not there"
    return settings, Check("config", OK, said)


def _missing_workspaces(home: Home, settings: Settings) -> list[Check]:
    """Workspaces that the settings name and that are not there: a slip of the pen, or a folder that was moved."""
    return [
        Check(
            "config",
            WARN,
            f"{home.config_file}: {dotted(('workspaces', path))}: there is no such folder",
            f"mend the path, or take it out: clawpy config unset '{dotted(('workspaces', path))}'",
        )
        for path in settings.workspaces
        if not Path(path).is_dir()
    ]


def _variables(environment: Any) -> list[Check]:
    """Variables that look like settings and are none: a slip of the pen would otherwise go unnoticed."""
    other = re.compile(r"CLAWPY_(HOME|SESSION|[A-Z0-9_]+_API_KEY)")
    unknown = sorted(
        name
        for name in environment
        if name.startswith("CLAWPY_") and name not in VARIABLES and not other.fullmatch(name)
    )
    fix = "see `clawpy config get`; CLAWPY_CROSS_POLL_ENABLED sets crossPollEnabled"
    return [Check("environment", WARN, f"{name} is no setting and does nothing", fix) for name in unknown]


def _database(path: Path) -> Check:
    if not path.exists():
        return Check("database", OK, "not there yet, made at the first start")
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=5)) as connection:
            [(said,)] = connection.execute("PRAGMA quick_check(1)").fetchall()
        version = migrations.stored_version(path)
    except (sqlite3.Error, ValueError) as error:
        return Check("database", FAIL, f"{path} cannot be read: {error}", damaged_fix(path))
    size = path.stat().st_size / 1024 / 1024
    if said != "ok":
        return Check("database", FAIL, f"{path} is damaged: {said}", damaged_fix(path))
    if version is not None and version > migrations.HEAD:
        return Check("database", FAIL, f"format {version} is newer than {migrations.HEAD}", "upgrade Clawpy Console")
    return Check("database", OK, f"whole, {size:.1f} MB, format {version or 'none'}, SQLite {sqlite3.sqlite_version}")


def _index() -> Check:
    version = _version("chromadb")
    if version is None:
        return Check("index", WARN, "chromadb is not installed", "install clawpy-console anew with its dependencies")
    return Check("index", OK, f"chromadb {version}; nothing is indexed, since this version has no vector search")


def _git() -> Check:
    try:
        said = Git(Path.home()).text("--version")
    except Refusal as error:
        return Check("git", FAIL, error.message, error.fix)
    match = re.search(r"(\d+)\.(\d+)", said)
    if match is None or (int(match[1]), int(match[2])) < OLDEST:
        needed = ".".join(map(str, OLDEST))
        return Check("git", FAIL, f"{said} is too old", f"install git {needed} or newer; landing needs it")
    return Check("git", OK, said)


def _gh() -> Check:
    path = shutil.which("gh")
    if path is None:
        fix = "install the GitHub command line if you want pull requests and CI among the signals"
        return Check("gh", WARN, "gh is not there, so pull requests and CI are no signals", fix)
    return Check("gh", OK, path)


def _keyring() -> Check:
    said = in_time(_keyring_backend, KEYRING_SECONDS)
    if said is None:
        return Check("keys", WARN, f"the keyring did not answer within {KEYRING_SECONDS:g} s", "unlock it")
    if said.startswith(("keyring.backends.fail", "keyring.backends.null")):
        fix = "set keys as CLAWPY_<PROVIDER>_API_KEY in the environment, or start a keyring; flows need no key"
        return Check("keys", WARN, "no usable keyring on this machine", fix)
    return Check("keys", OK, said)


def _keyring_backend() -> str:
    import keyring

    backend = keyring.get_keyring()
    return f"{type(backend).__module__}.{type(backend).__name__}"


def in_time(work: Callable[[], str], seconds: float) -> str | None:
    """What `work` returns, or None when it takes longer than `seconds`; a fault is returned in words."""
    answer: list[str] = []

    def run() -> None:
        try:
            answer.append(work())
        except Exception as error:
            answer.append(f"keyring.backends.fail: {error}")

    thread = threading.Thread(target=run, name="clawpy-doctor", daemon=True)
    thread.start()
    thread.join(seconds)
    return answer[0] if answer else None


def _sandbox() -> Check:
    from engine.execution.sandbox import best_sandbox

    sandbox = best_sandbox()
    if not sandbox.confines:
        fix = "install bubblewrap (bwrap) and allow user namespaces; until then nothing executes by itself"
        return Check("sandbox", WARN, "none works here: sessions run with a clean environment and no more", fix)
    return Check("sandbox", OK, sandbox.describe(network=False))


def _agents(home: Home, settings: Settings) -> Check:
    from engine.hierarchy.agents import Agents

    if not home.agents.exists():
        return Check("agents", OK, "not there yet, made at the first start")
    agents = Agents(
        home.agents,
        cascade_config=home.data / "wisdom_cascade_config.json",
        settings=FixedSettings(settings),
        database=None,
    )
    try:
        problems = agents.problems()
    except Refusal as error:
        return Check("agents", FAIL, error.message, error.fix)
    if problems:
        return Check("agents", WARN, "; ".join(problems), f"mend the files under {home.agents}")
    return Check("agents", OK, f"{len(agents.list())} agents, all sound")


def _workspace(path: str) -> Check:
    from engine.execution.runners.toolchain import detect_all

    try:
        root = repository_root(Path(path))
        if not Git(root).text("rev-parse", "--verify", "--quiet", "HEAD", allowed=(0, 1)):
            return Check("workspace", WARN, f"{root} has no commit yet", "commit something; most cards need a history")
    except Refusal as error:
        return Check("workspace", FAIL, error.message, error.fix)
    looked: list[str] = []
    tools = [tool.name for tool in detect_all(root, root, looked)]
    if not tools:
        reasons = f" ({'; '.join(looked)})" if looked else ""
        return Check("workspace", WARN, f"{root}: no tool to run its tests{reasons}", "install what its tests need")
    return Check("workspace", OK, f"{root}: tests with {', '.join(tools)}")


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
