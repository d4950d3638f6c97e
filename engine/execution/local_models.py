"""Asks the providers of this very machine for their models, without a key (SPEC 3.8).

Nothing but that request is sent. Whatever listens there gets little time and little room."""

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
"""Seconds for a server of this machine to answer as a whole; where none listens, no time at all passes."""

LARGEST = 256 * 1024
"""Bytes of an answer that are looked at."""

MAX_MODELS = 9
"""Models that are told of a provider."""

_LATE = f"did not list its models within {TIMEOUT_S:g} s"


def query_local_models(providers: Mapping[str, ProviderSettings]) -> LocalModels:
    """The models that answer on this machine. Blocking, up to a second: all providers are asked at once."""
    addresses = {name: address for name, provider in providers.items() if (address := _local(provider)) is not None}
    if not addresses:
        return LocalModels()
    with ThreadPoolExecutor(len(addresses), thread_name_prefix="local-models") as threads:
        answers = list(threads.map(_ask, addresses.values()))
    ids = [f"{name}:{model}" for name, answer in zip(addresses, answers, strict=True) for model in answer.ids]
    faults = [
        f"{name} at {addresses[name].netloc.rpartition('@')[2]} {fault}"
        for name, answer in zip(addresses, answers, strict=True)
        for fault in answer.faults
    ]
    return LocalModels(tuple(ids), tuple(faults))


def _local(provider: ProviderSettings) -> SplitResult | None:
    """The address of a provider of this machine that needs no key; None for every other one."""
    if not provider.keyless or provider.kind is not ProviderKind.OPENAI:
        return None
    try:
        parts = urlsplit(provider.base_url)
        return parts if parts.scheme == "http" and _is_loopback(parts.hostname or "") and parts.port != 0 else None
    except ValueError:
        return None


def _ask(address: SplitResult) -> LocalModels:
    """What one server says: names without their provider, or what is wrong as the end of a sentence."""
    connection = http.client.HTTPConnection(address.hostname or "", address.port or 80, timeout=TIMEOUT_S)
    try:
        connection.connect()
    except OSError as error:
        # None listens, or one that takes nobody in.
        return LocalModels(faults=(_LATE,) if isinstance(error, TimeoutError) else ())
    # A timeout of the socket begins anew with every byte; this ends it all, whatever was sent.
    timed_out = threading.Event()
    timer = threading.Timer(TIMEOUT_S, _shut_down, (connection.sock, timed_out))
    timer.start()
    try:
        connection.request("GET", f"{address.path.rstrip('/')}/models")  # no proxy, and no redirection is followed
        answer = connection.getresponse()
        if answer.status != 200:
            return LocalModels(faults=(f"answers {answer.status} instead of its list of models",))
        body = answer.read(LARGEST + 1)
        if len(body) > LARGEST:
            return LocalModels(faults=(f"tells more than {LARGEST // 1024} KB instead of its list of models",))
        return LocalModels(tuple(_names(json.loads(body))))
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        if timed_out.is_set():
            return LocalModels(faults=(_LATE,))
        return LocalModels(faults=("answers, but without a list of models",))
    finally:
        timer.cancel()
        connection.close()


def _shut_down(connection: socket.socket, timed_out: threading.Event) -> None:
    timed_out.set()
    with contextlib.suppress(OSError):  # it was over in this moment
        connection.shutdown(socket.SHUT_RDWR)


def _names(document: Any) -> list[str]:
    names = [entry["id"] for entry in document["data"] or []]
    return [name for name in names if name and name == sanitise(name) and len(name) <= 120 and name.isprintable()][
        :MAX_MODELS
    ]


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
