"""The checks of `clawpy doctor`: what is configured, found and missing, and how to fix it (SPEC 9.8). They need no
engine.

The checks of keys, models and agents are in `model_checks`.

The operation `doctor` calls `examine`. A check reads files, the environment or the database; none of them raises.
"""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import sys
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from engine.api.model_checks import (
    Check,
    check_agents,
    check_coding_agents,
    check_embedder,
    check_key_storage,
    check_keys_of_engine,
    check_memory_model,
    check_providers,
    check_text_prompt,
    check_twin_model,
    check_url,
    fail,
    find_keys_unknown_to_engine,
    make_offline_router,
    warn,
)
from engine.api.notify.addresses import Addresses, is_switched_on
from engine.api.notify.outbox import UNDELIVERED_SQL
from engine.api.offline import read_rows
from engine.api_keys import Keys
from engine.config import find_url_problem
from engine.config.external_sections import DESKTOP_SCHEME, SPEAK_SCHEME, Surface
from engine.config.settings import FixedSettings, Settings
from engine.config.settings_file import SETTING_VARIABLES, format_key
from engine.git import INSTALL_GIT, MIN_VERSION, Git, find_repository_root, read_git_version
from engine.home import Home
from engine.installed import (
    EXTRAS,
    NOTIFY,
    find_missing_extras,
    has_extra,
    make_extras_command,
    make_install_command,
    make_not_installed_refusal,
)
from engine.lock import find_version_problem, read_holder
from engine.memory.index import URL_VARIABLE
from engine.model import Refusal
from engine.redaction import redact
from engine.settings_store import SettingsStore
from engine.storage.database import describe_recovery, find_version_refusal, read_stored_version
from engine.storage.shared import SHARED_URL, SharedDatabase
from engine.text import sanitise
from engine.wording import count

MIN_FREE_MB = 100
"""Less free space than this on the disk of a home is a warning."""

_OTHER_VARIABLES = re.compile(
    r"CLAWPY_(HOME|SESSION|SHARED_DATABASE_URL|CHROMA_URL|NOTIFY_[A-Z]+_URL|[A-Z0-9_]+_API_KEY)"
)
"""Environment variables that are read but are not settings."""


def examine(home: Home, workspaces: Sequence[str], *, online: bool = False) -> dict[str, Any]:
    """Run every check. Changes nothing. Only if `online`, providers and servers are asked, so that data leaves the
    machine."""
    settings, config = _load_settings(home)
    checks = _run_checks(home, settings, config, workspaces, online=online)
    return {
        "version": find_installed_version("clawpy-console") or "not installed",
        "python": sys.version.split()[0],
        "ok": all(check.state != "fail" for check in checks),
        "checks": [
            {"name": check.name, "state": check.state, "message": sanitise(check.message), "fix": sanitise(check.fix)}
            for check in checks
        ],
        "rungs": _describe_sandbox_rungs(),
        "paths": home.list_paths(),
        "settings": None if config.state == "fail" else settings.model_dump(mode="json", by_alias=True),
    }


def _run_checks(
    home: Home, settings: Settings, config: Check, workspaces: Sequence[str], *, online: bool
) -> list[Check]:
    unknown_to_engine = find_keys_unknown_to_engine(home, os.environ)
    keys = Keys(home, environment={name: os.environ[name] for name in os.environ if name not in unknown_to_engine})
    router = make_offline_router(home, FixedSettings(settings), keys)
    checks = [
        _check_home(home),
        _check_engine(home),
        config,
        _check_gateway(home, settings),
        *_check_workspace_settings(home, settings),
        *_check_variables(os.environ),
        check_database(home.database),
        check_index(home, is_local=not find_index_server_url(settings)),
        *check_index_server(settings, online=online),
        *check_shared_database(online=online),
        check_embedder(settings),
        _check_git(),
        _check_gh(),
        check_key_storage(keys),
        *check_keys_of_engine(unknown_to_engine),
        *check_providers(router, keys, online=online),
        check_text_prompt(settings, router),
        *check_memory_model(settings, router),
        *check_twin_model(home, settings),
        _check_sandbox(),
        check_agents(home, settings),
        check_learnings(home),
        *check_facts(home),
        *check_coding_agents(home, settings),
        *check_notifications(home, settings, keys),
        *(_check_workspace(path) for path in workspaces),
        _check_extras(),
    ]
    if not workspaces:
        fix = "run clawpy inside a git repository, or name one with --workspace DIR"
        checks.append(warn("workspace", "no workspace", fix))
    return checks


def _check_home(home: Home) -> Check:
    for folder in (home.config, home.data, home.cache, home.logs):
        existing = _find_existing_part(folder)
        if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
            fix = "make it writable, or name another with --home DIR"
            return fail("home", f"{existing} cannot be written", fix)
    free_mb = shutil.disk_usage(_find_existing_part(home.data)).free // 1024**2
    if free_mb < MIN_FREE_MB:
        return warn("home", f"{free_mb} MB free on the disk of {home.data}", "free some space")
    return Check("home", f"{home.root or home.data}, {free_mb // 1024} GB free")


def _find_existing_part(folder: Path) -> Path:
    """The folder, or the lowest folder above it that exists."""
    return next(part for part in (folder, *folder.parents) if part.exists())


def _check_extras() -> Check:
    """The optional extras that are not installed."""
    missing = find_missing_extras()
    if not missing:
        return Check("extras", f"all installed: {', '.join(EXTRAS)}")
    message = "; ".join(f"{extra}: {EXTRAS[extra].purpose}" for extra in missing)
    return Check("extras", f"not installed: {message}. To install them: {make_extras_command(*missing)}")


def _check_engine(home: Home) -> Check:
    holder = read_holder(home)
    if holder is None:
        return Check("engine", "none is running")
    try:
        os.kill(holder.pid, 0)
    except ProcessLookupError:
        return Check("engine", f"none is running; the one with process id {holder.pid} has died")
    except PermissionError:
        return warn(
            "engine", f"process {holder.pid} of another user is using this home", "use your own home: --home DIR"
        )
    if problem := find_version_problem(holder):
        return warn("engine", problem.message, problem.fix)
    return Check("engine", f"running with process id {holder.pid} since {holder.since}")


def _check_gateway(home: Home, settings: Settings) -> Check:
    """The address of the gateway, and whether its settings allow it."""
    from engine.api.gateway.access import make_listen_address

    holder = read_holder(home)
    if holder is not None and holder.gateway:
        return Check("gateway", f"listens at {holder.gateway}")
    try:
        address = make_listen_address(settings.gateway)
    except Refusal as error:
        return warn("gateway", error.message, error.fix)
    if holder is not None and holder.address and settings.gateway.enabled:
        return warn("gateway", f"enabled at {address.url}, but it is not listening", "see `clawpy status`")
    return Check("gateway", f"opens at {address.url}" if settings.gateway.enabled else "off; `clawpy serve` opens it")


def _load_settings(home: Home) -> tuple[Settings, Check]:
    try:
        settings = SettingsStore(home.config_file).current
    except Refusal as error:
        return Settings(), fail("config", error.message, error.fix)
    message = str(home.config_file) if home.config_file.exists() else f"defaults; {home.config_file} does not exist"
    return settings, Check("config", message)


def _check_workspace_settings(home: Home, settings: Settings) -> list[Check]:
    """Workspaces in the settings whose folder is missing, and those that may run without a sandbox or install
    packages."""
    checks = []
    for path, workspace in settings.workspaces.items():
        name = format_key(("workspaces", path))
        if not Path(path).is_dir():
            fix = f"fix the path, or remove the workspace: clawpy config unset '{name}'"
            checks.append(warn("config", f"{home.config_file}: {name}: the folder does not exist", fix))
        if workspace.without_sandbox:
            message = f"{name}.withoutSandbox: work may run without a sandbox once you approve it"
            fix = f"to confirm each time: clawpy config unset '{name}.withoutSandbox'"
            checks.append(warn("config", message, fix))
        if workspace.prepare:
            message = f"{name}.prepare: agents' worktrees get the packages, over the network"
            checks.append(Check("config", message))
    return checks


def _check_variables(environment: Iterable[str]) -> list[Check]:
    """Environment variables that look like settings but are not, such as misspelt ones."""
    unknown = sorted(
        name
        for name in environment
        if name.startswith("CLAWPY_") and name not in SETTING_VARIABLES and not _OTHER_VARIABLES.fullmatch(name)
    )
    fix = "see `clawpy config get`; CLAWPY_CROSS_POLL_ENABLED sets crossPollEnabled"
    return [warn("environment", f"{name} is not a setting and does nothing", fix) for name in unknown]


def _check_git() -> Check:
    try:
        version_text = read_git_version()
    except Refusal as error:
        return fail("git", error.message, error.fix)
    match = re.search(r"(\d+)\.(\d+)", version_text)
    if match is None or (int(match[1]), int(match[2])) < MIN_VERSION:
        return fail("git", f"{version_text} is too old", f"{INSTALL_GIT}; landing needs it")
    return Check("git", version_text)


def _check_gh() -> Check:
    path = shutil.which("gh")
    if path is None:
        fix = "install the GitHub command line if you want pull requests and CI among the signals"
        return warn("gh", "gh is not installed, so pull requests and CI are not among the signals", fix)
    return Check("gh", path)


def _describe_sandbox_rungs() -> list[dict[str, Any]]:
    """Each rung of the sandbox ladder, with its guarantees on this machine: "held", "not held", or "n.a." if the rung
    does not work here."""
    from engine.execution.sandbox.ladder import UNMEASURED, measure_rungs, report_rungs

    guarantees_by_rung = measure_rungs()
    return [
        {
            "name": rung.name,
            "works": rung.works,
            "inForce": rung.in_force,
            "lacks": sanitise(rung.limitations),
            "holds": guarantees_by_rung.get(rung.name, UNMEASURED),
        }
        for rung in report_rungs()
    ]


def _check_sandbox() -> Check:
    from engine.execution.sandbox.ladder import find_best_sandbox, report_rungs

    rungs = report_rungs()
    in_force = next(rung for rung in rungs if rung.in_force)
    if in_force.name == "none":
        missing = [rung for rung in rungs if rung.fix]
        limitations = "".join(f"; {rung.name}: {rung.limitations}" for rung in missing)
        fix = missing[0].fix if missing else "there is no sandbox for this platform; you confirm each approval"
        message = "none works here: nothing runs by itself, and you confirm each approval"
        return warn("sandbox", f"{message}{limitations}", fix)
    lacks = f" ({in_force.limitations})" if in_force.limitations else ""
    return Check("sandbox", f"{find_best_sandbox().describe(network=False)}{lacks}")


def check_notifications(home: Home, settings: Settings, keys: Keys) -> list[Check]:
    """The address of each surface, and notifications that were not delivered (SPEC 10.2)."""
    addresses = Addresses(FixedSettings(settings), keys)
    checks = [check for surface in Surface if (check := _check_surface(surface, addresses, settings))]
    checks += _check_undelivered(home.database)
    gateway = settings.notify.gateway
    if gateway and (urlsplit(gateway).hostname or "") not in {*settings.gateway.hosts, "127.0.0.1", "localhost", "::1"}:
        message = f"buttons call {gateway}, and the gateway does not answer to that name"
        checks.append(warn("notify", message, "add it to gateway.hosts"))
    return checks


def _check_surface(surface: Surface, addresses: Addresses, settings: Settings) -> Check | None:
    """Whether notifications can be sent to a surface. None if it has no address."""
    try:
        address = addresses.find(surface)
    except Refusal as refusal:
        return warn("notify", refusal.message, refusal.fix)
    if address is None:
        return None
    if address.service not in (DESKTOP_SCHEME, SPEAK_SCHEME) and not has_extra(NOTIFY):
        not_installed = make_not_installed_refusal(NOTIFY)
        return warn("notify", f"{surface.value}: {not_installed.message}", not_installed.fix)
    flag = "" if is_switched_on(surface, settings) else "; it is switched off"
    return Check("notify", f"{surface.value}: {address.service}, from the {address.source}{flag}")


def _check_undelivered(database: Path) -> list[Check]:
    """The notifications that were not delivered, by surface."""
    if not database.exists():
        return []
    try:
        rows = read_rows(database, UNDELIVERED_SQL)
    except sqlite3.Error:
        return []  # the check of the database reports the error
    return [
        warn(
            "notify",
            f"{undelivered} not delivered to the {surface}: {reason}",
            f"clawpy notify test {surface}, then clawpy notify retry {surface}",
        )
        for surface, undelivered, reason, _ in rows
    ]


def _check_workspace(path: str) -> Check:
    from engine.execution.runners.flow import format_in_project
    from engine.execution.runners.flows.suite_runs import describe_how_to_run_tests
    from engine.execution.runners.toolchains.projects import find_projects

    try:
        root = find_repository_root(Path(path))
        if not Git(root).text("rev-parse", "--verify", "--quiet", "HEAD", allowed=(0, 1)):
            return warn("workspace", f"{root} has no commit yet", "make a commit; most cards need a history")
    except Refusal as error:
        return fail("workspace", error.message, error.fix)
    projects = find_projects(root)
    test_tools = [
        f"{', '.join(tool.title for tool in project.tools)}{format_in_project(project.path)}"
        for project in projects
        if project.tools
    ]
    if test_tools:
        return Check("workspace", f"{root}: tests with {'; '.join(test_tools)}")
    first_project = projects[0]
    reasons = f" ({'; '.join(first_project.searched_places)})" if first_project.searched_places else ""
    return warn(
        "workspace", f"{root}: no tool to run its tests{reasons}", describe_how_to_run_tests(first_project, root)
    )


def find_installed_version(package: str) -> str | None:
    """The version of an installed package, None if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def check_database(path: Path) -> Check:
    """Whether the database file is intact and has a format that this program reads."""
    if not path.exists():
        return Check("database", "does not exist yet; the first start creates it")
    if path.stat().st_size == 0:
        return fail("database", f"{path} is damaged: it is empty", describe_recovery(path))
    try:
        [(result,)] = read_rows(path, "PRAGMA quick_check(1)")
        version, refusal = read_stored_version(path), find_version_refusal(path)
    except sqlite3.OperationalError as error:  # it says nothing about the content of the file
        fix = "end the program that writes to it, make it readable and writable for you, or free some space"
        return fail("database", f"{path} cannot be read: {error}", f"{fix}; then check again")
    except (sqlite3.Error, ValueError) as error:
        return fail("database", f"{path} cannot be read: {error}", describe_recovery(path))
    size = path.stat().st_size / 1024 / 1024
    if result != "ok":
        return fail("database", f"{path} is damaged: {result}", describe_recovery(path))
    if refusal is not None:
        return fail("database", refusal.message, refusal.fix)
    return Check("database", f"intact, {size:.1f} MB, format {version}, SQLite {sqlite3.sqlite_version}")


def check_index(home: Home, *, is_local: bool) -> Check:
    """The number of memories, and the state of the index. SQLite holds all memories, so a lost index is no loss."""
    version = find_installed_version("chromadb")
    if version is None:
        return warn("index", "chromadb is not installed", make_install_command("chromadb"))
    number = missing = 0
    if home.database.exists():
        try:
            query = "SELECT count(*), coalesce(sum(model = ''), 0) FROM memories WHERE NOT forgotten"
            [(number, missing)] = read_rows(home.database, query)
        except sqlite3.Error:
            return Check("index", f"chromadb {version}; memories cannot be counted; see database")
    message = f"chromadb {version}; {count(number, 'memory', 'memories')}"
    if missing:
        message += f", {missing:,} of them without vectors yet (they are made while an engine runs)"
    if is_local and number and not (home.data / "chroma" / "chroma.sqlite3").exists():
        message += "; the index is built when needed"
    return Check("index", message)


def find_index_server_url(settings: Settings) -> str:
    """The address of the Chroma server, "" if the index is in a folder."""
    return os.environ.get(URL_VARIABLE, "").strip().rstrip("/") or settings.memory.chroma_url


def check_index_server(settings: Settings, *, online: bool) -> list[Check]:
    """The Chroma server, if one is set. It is asked only if `online`."""
    url = find_index_server_url(settings)
    if not url:
        return []
    if problem := find_url_problem(url):
        message = f"{URL_VARIABLE}: {problem}; the index is in a folder"
        return [warn("index server", message, f"fix {URL_VARIABLE}")]
    host = urlsplit(url).netloc
    if not online:
        return [Check("index server", f"the index is on {host}; `clawpy doctor --online` checks it")]
    if problem := check_url(f"{url}/api/v2/heartbeat"):
        message = f"{host}: {problem}; until then, recall searches by words and exact vectors"
        return [warn("index server", message, "start it")]
    return [Check("index server", f"the index is on {host}; it answers")]


def check_shared_database(*, online: bool) -> list[Check]:
    """The shared PostgreSQL, if one is set. It is asked only if `online`."""
    url = os.environ.get(SHARED_URL, "")
    if not url:
        return []
    if not online:
        return [Check("shared", f"machines share the database of {SHARED_URL}; `clawpy doctor --online` checks it")]
    try:
        with SharedDatabase(url).connect() as connection:
            database_name = f"{connection.info.dbname} on {connection.info.host}"
    except Refusal as refusal:
        return [warn("shared", refusal.message, refusal.fix)]
    except Exception as error:  # a connection can fail in any way
        reason = " ".join(redact(str(error)).split()) or type(error).__name__
        fix = f"fix {SHARED_URL}, or start its server; unsent changes wait"
        return [warn("shared", f"the shared database cannot be reached: {reason}", fix)]
    return [Check("shared", f"machines share {database_name}; it answers")]


def check_facts(home: Home) -> list[Check]:
    """A warning if a file of facts cannot be read."""
    from engine.memory.para import find_broken_files

    broken = find_broken_files(home.data / "para")
    fix = "fix the file: until then recall goes without its facts"
    return [warn("facts", "; ".join(broken), fix)] if broken else []


def check_learnings(home: Home) -> Check:
    """Whether all files of learnings can be read."""
    from engine.learning.learnings.store import LearningFiles

    files = LearningFiles(home.data)
    if errors := files.list_errors():
        return warn("learnings", "; ".join(errors), f"fix the files under {home.data}; all others can be read")
    return Check("learnings", f"{count(len(files.read_entries()), 'learning')} in all scopes")
