"""Asks the providers on this machine, such as Ollama, for their models (SPEC 3.8)."""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import json
import time
from collections.abc import Mapping
from functools import partial
from urllib.parse import SplitResult, urlsplit

from engine.background import run_in_thread
from engine.config.service_settings import ProviderKind, ProviderSettings
from engine.model import LocalModels, sanitise

TIMEOUT_S = 0.5
"""Seconds in which a server must answer completely."""

MAX_ANSWER_BYTES = 256 * 1024
"""Maximum size of an answer."""

MAX_MODELS = 9
"""Maximum number of models of a provider."""

_LATE = f"did not list its models within {TIMEOUT_S:g} s"


def query_local_models(providers: Mapping[str, ProviderSettings]) -> LocalModels:
    """Ask the providers on this machine for their models, all at the same time. Blocks for at most a second."""
    addresses = {
        name: address for name, provider in providers.items() if (address := _local_address(provider)) is not None
    }
    until = time.monotonic() + TIMEOUT_S
    pending = {
        name: run_in_thread(f"clawpy-models-{name}", partial(_query_server, address, until))
        for name, address in addresses.items()
    }
    ids: list[str] = []
    faults: list[str] = []
    for name, future in pending.items():
        try:
            models, fault = future.result(max(0.0, until - time.monotonic()))
        except TimeoutError:
            models, fault = [], _LATE
        ids += [f"{name}:{model}" for model in models]
        faults += [f"{name} at {addresses[name].netloc.rpartition('@')[2]} {fault}"] if fault else []
    return LocalModels(tuple(ids), tuple(faults))


def _local_address(provider: ProviderSettings) -> SplitResult | None:
    """The address of a provider on this machine that needs no key. None for every other one."""
    if not provider.keyless or provider.kind is not ProviderKind.OPENAI:
        return None
    try:
        parts = urlsplit(provider.base_url)
        return parts if parts.scheme == "http" and _is_loopback(parts.hostname or "") and parts.port != 0 else None
    except ValueError:
        return None


def _query_server(address: SplitResult, until: float) -> tuple[list[str], str]:
    """(models, problem): the models of one server, and its problem as the end of a sentence, "" for none. Both are
    empty if no server listens. `until` is in monotonic seconds."""
    connection = http.client.HTTPConnection(address.hostname or "", address.port or 80, timeout=TIMEOUT_S)
    with contextlib.closing(connection):
        try:
            connection.connect()
        except OSError as error:
            return [], _LATE if isinstance(error, TimeoutError) else ""
        try:
            connection.request("GET", f"{address.path.rstrip('/')}/models")  # no proxy, and no redirection is followed
            response = connection.getresponse()
            if response.status != 200:
                return [], f"answers {response.status} instead of its list of models"
            body = b""
            while (chunk := response.read1(65_536)) and len(body) <= MAX_ANSWER_BYTES and time.monotonic() < until:
                body += chunk
            if len(body) > MAX_ANSWER_BYTES:
                return [], f"sends more than {MAX_ANSWER_BYTES // 1024} KB instead of its list of models"
            names = [entry["id"] for entry in json.loads(body)["data"] or []]
            models = [name for name in names if 0 < len(name) <= 120 and name == sanitise(name) and name.isprintable()]
            return models[:MAX_MODELS], ""
        except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return [], "answers, but without a list of models"


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
