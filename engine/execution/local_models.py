"""Queries the providers of this machine for their models, without a key (SPEC 3.8). Answers are limited in time and
size."""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import json
import socket
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import SplitResult, urlsplit

from engine.config.agents import ProviderKind, ProviderSettings
from engine.model import LocalModels, sanitise

TIMEOUT_S = 0.5
"""Seconds for the whole answer of a server."""

MAX_ANSWER_BYTES = 256 * 1024
"""Maximum size of an answer."""

MAX_MODELS = 9
"""Maximum number of models of a provider."""

_LATE = f"did not list its models within {TIMEOUT_S:g} s"


def query_local_models(providers: Mapping[str, ProviderSettings]) -> LocalModels:
    """The models of providers on this machine, which are queried at the same time. Blocking, up to a second."""
    addresses = {
        name: address for name, provider in providers.items() if (address := _local_address(provider)) is not None
    }
    if not addresses:
        return LocalModels()
    with ThreadPoolExecutor(len(addresses), thread_name_prefix="local-models") as threads:
        answers = list(threads.map(_query_server, addresses.values()))
    ids = [f"{name}:{model}" for name, answer in zip(addresses, answers, strict=True) for model in answer.ids]
    faults = [
        f"{name} at {addresses[name].netloc.rpartition('@')[2]} {fault}"
        for name, answer in zip(addresses, answers, strict=True)
        for fault in answer.faults
    ]
    return LocalModels(tuple(ids), tuple(faults))


def _local_address(provider: ProviderSettings) -> SplitResult | None:
    """The address of a provider of this machine that needs no key; None for every other one."""
    if not provider.keyless or provider.kind is not ProviderKind.OPENAI:
        return None
    try:
        parts = urlsplit(provider.base_url)
        return parts if parts.scheme == "http" and _is_loopback(parts.hostname or "") and parts.port != 0 else None
    except ValueError:
        return None


def _query_server(address: SplitResult) -> LocalModels:
    """The answer of one server: names without their provider, or a problem as the end of a sentence."""
    connection = http.client.HTTPConnection(address.hostname or "", address.port or 80, timeout=TIMEOUT_S)
    try:
        connection.connect()
    except OSError as error:
        # No server listens, or it accepts no connection.
        return LocalModels(faults=(_LATE,) if isinstance(error, TimeoutError) else ())
    # A timeout of the socket restarts with every byte; this one limits the whole answer.
    timed_out = threading.Event()
    timer = threading.Timer(TIMEOUT_S, _shut_down, (connection.sock, timed_out))
    timer.start()
    try:
        connection.request("GET", f"{address.path.rstrip('/')}/models")  # no proxy, and no redirection is followed
        answer = connection.getresponse()
        if answer.status != 200:
            return LocalModels(faults=(f"answers {answer.status} instead of its list of models",))
        body = answer.read(MAX_ANSWER_BYTES + 1)
        if len(body) > MAX_ANSWER_BYTES:
            return LocalModels(faults=(f"tells more than {MAX_ANSWER_BYTES // 1024} KB instead of its list of models",))
        return LocalModels(tuple(_read_names(json.loads(body))))
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        if timed_out.is_set():
            return LocalModels(faults=(_LATE,))
        return LocalModels(faults=("answers, but without a list of models",))
    finally:
        timer.cancel()
        connection.close()


def _shut_down(connection: socket.socket, timed_out: threading.Event) -> None:
    timed_out.set()
    with contextlib.suppress(OSError):  # it is closed already
        connection.shutdown(socket.SHUT_RDWR)


def _read_names(document: Any) -> list[str]:
    names = [entry["id"] for entry in document["data"] or []]
    return [name for name in names if name and name == sanitise(name) and len(name) <= 120 and name.isprintable()][
        :MAX_MODELS
    ]


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
