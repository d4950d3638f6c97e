"""Asks a provider whether it answers and accepts a key. That leaves the machine, so it happens only on request."""

from __future__ import annotations

import urllib.error
import urllib.request
from typing import Any

from engine.config.agents import ProviderKind, ProviderSettings

TIMEOUT_S = 5.0
"""Seconds that a provider or server has to answer."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: the key would be sent along."""

    def redirect_request(self, *_: Any) -> None:
        return None


def check_provider(provider: ProviderSettings, key: str | None) -> str:
    """Ask a provider for its list of models. "" when it answers and accepts the key, else the reason."""
    headers = {"user-agent": "clawpy-console"}
    if provider.kind is ProviderKind.ANTHROPIC:
        address = f"{provider.base_url}/v1/models"
        headers |= {"anthropic-version": "2023-06-01"} | ({"x-api-key": key} if key else {})
    else:
        address = f"{provider.base_url}/models"
        headers |= {"authorization": f"Bearer {key}"} if key else {}
    status, fault = _request(urllib.request.Request(address, headers=headers))
    if status in (401, 403):
        return f"{provider.host} does not accept the key ({status})"
    if status == 404:
        return f"{provider.host} answers, but there are no models at this path; check its baseUrl"
    return f"{provider.host} {fault}" if fault else ""


def check_url(address: str) -> str:
    """Ask an address that needs no key. "" when it answers well, else the reason."""
    _, fault = _request(urllib.request.Request(address))
    return f"it {fault}" if fault else ""


def _request(request: urllib.request.Request) -> tuple[int, str]:
    """The status of the answer, 0 for none, and what is wrong with it."""
    # What is plain http is near, and a proxy is not on the way there.
    handlers = [_NoRedirects(), *([urllib.request.ProxyHandler({})] if request.type == "http" else [])]
    try:
        with urllib.request.build_opener(*handlers).open(request, timeout=TIMEOUT_S) as answer:
            return answer.status, "" if answer.status == 200 else f"answers {answer.status}"
    except urllib.error.HTTPError as error:
        with error:
            return error.code, f"answers {error.code}"
    except urllib.error.URLError as error:
        return 0, f"cannot be reached: {error.reason}"
    except (OSError, ValueError) as error:
        return 0, f"cannot be reached: {type(error).__name__}"
