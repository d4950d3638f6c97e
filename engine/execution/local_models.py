"""Models that run on this machine and wait to be named: asked of the providers that need no key (SPEC 3.8, 9.1).

A provider is asked for its list of models only where its address is this very machine; nothing but that is sent.
"""

from __future__ import annotations

import http.client
import ipaddress
import json
from collections.abc import Mapping
from urllib.parse import urlsplit

from engine.config_agents import ProviderKind, ProviderSettings
from engine.values import sanitise

PATIENCE = 0.5
"""Seconds for a server of this machine to answer; where none listens, no time at all passes."""

LARGEST = 256 * 1024
"""Bytes of an answer that are looked at."""

MOST = 9
"""Models that are told of a provider."""


def running(providers: Mapping[str, ProviderSettings]) -> list[str]:
    """Ids (`ollama:qwen3`) of models that answer on this machine, by provider, in the order in which it tells them.
    Blocking, up to half a second a provider; what does not answer, or answers something else, has none."""
    return [
        f"{name}:{model}"
        for name, one in providers.items()
        if one.keyless and one.kind is ProviderKind.OPENAI
        for model in _listed(one.base_url)
    ]


def _listed(base_url: str) -> list[str]:
    try:
        parts = urlsplit(base_url)
        if parts.scheme != "http" or not _here(parts.hostname or ""):
            return []
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 80, timeout=PATIENCE)
        try:
            connection.request("GET", f"{parts.path.rstrip('/')}/models")  # no proxy, and no redirection is followed
            answer = connection.getresponse()
            document = json.loads(answer.read(LARGEST)) if answer.status == 200 else {}
        finally:
            connection.close()
        names = [str(one["id"]) for one in document.get("data") or []]
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError, AttributeError):
        return []  # nobody listens, or it is something else that does
    return [name for name in names if name and name == sanitise(name) and len(name) <= 120 and name.isprintable()][
        :MOST
    ]


def _here(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
