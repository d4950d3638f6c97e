"""Checks of `doctor` beyond this machine: the index server, the shared database, notifications (SPEC 1.9, 4.10,
10.2)."""

from __future__ import annotations

import os
import sqlite3
from urllib.parse import urlsplit

from engine.api.checks import OK, WARN, Check, read_rows
from engine.api.model_checks import check_url
from engine.api.notify.delivery import Addresses
from engine.api.notify.notes import is_switched_on
from engine.config import FixedSettings, Settings
from engine.config.sections import DESKTOP, SPEAK, Surface, url_problem
from engine.home import Home
from engine.keys import Keys
from engine.memory.index import URL_VARIABLE
from engine.model import Refusal, extras
from engine.model.secrets import redact
from engine.storage.shared import SHARED_URL, SharedDatabase


def index_server_url(settings: Settings) -> str:
    """The address of the Chroma server, "" where the index is in a folder."""
    return os.environ.get(URL_VARIABLE, "").strip().rstrip("/") or settings.memory.chroma_url


def index_server_checks(settings: Settings, *, online: bool) -> list[Check]:
    """The Chroma server, if one is set; it is asked only when `online`."""
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
    """The shared PostgreSQL, if one is set; it is asked only when `online`."""
    url = os.environ.get(SHARED_URL, "")
    if not url:
        return []
    if not online:
        return [Check("shared", OK, f"machines share the database of {SHARED_URL}; `clawpy doctor --online` checks it")]
    try:
        with SharedDatabase(url, ()).connect() as connection:
            where = f"{connection.info.dbname} on {connection.info.host}"
    except Refusal as refusal:
        return [Check("shared", WARN, refusal.message, refusal.fix)]
    except Exception as error:  # whatever a connection does
        reason = " ".join(redact(str(error)).split()) or type(error).__name__
        fix = f"fix {SHARED_URL}, or start its server; unsent changes wait"
        return [Check("shared", WARN, f"the shared database cannot be reached: {reason}", fix)]
    return [Check("shared", OK, f"machines share {where}; it answers")]


def notification_checks(home: Home, settings: Settings, keys: Keys) -> list[Check]:
    """The address of each surface, and notifications that were not delivered (SPEC 10.2)."""
    addresses = Addresses(FixedSettings(settings), keys)
    checks = []
    for surface in Surface:
        if not addresses.is_configured(surface):
            continue
        try:
            address = addresses.of(surface)
        except Refusal as refusal:
            checks.append(Check("notify", WARN, refusal.message, refusal.fix))
            continue
        if address is not None:
            if address.service not in (DESKTOP, SPEAK) and not extras.installed(extras.NOTIFY):
                absent = extras.not_installed(extras.NOTIFY)
                checks.append(Check("notify", WARN, f"{surface.value}: {absent.message}", absent.fix))
                continue
            flag = "" if is_switched_on(surface, settings) else "; it is switched off"
            checks.append(Check("notify", OK, f"{surface.value}: {address.service}, from the {address.source}{flag}"))
    if home.database.exists():
        query = "SELECT surface, count(*), max(note) FROM notifications WHERE standing = 'dead' GROUP BY surface"
        try:
            for surface_name, number, note in read_rows(home.database, query):
                message = f"{number} not delivered to the {surface_name}: {note}"
                fix = f"clawpy notify test {surface_name}, then clawpy notify retry {surface_name}"
                checks.append(Check("notify", WARN, message, fix))
        except sqlite3.Error:
            pass  # the check of the database says what is wrong with it
    gateway = settings.notify.gateway
    if gateway and (urlsplit(gateway).hostname or "") not in {*settings.gateway.hosts, "127.0.0.1", "localhost", "::1"}:
        message = f"buttons call {gateway}, and the gateway does not answer to that name"
        checks.append(Check("notify", WARN, message, "add it to gateway.hosts"))
    return checks
