"""Whether a provider answers and takes a key: it leaves the machine, and is asked only when the operator says so."""

from __future__ import annotations

import urllib.error
import urllib.request
from typing import Any

from engine.config.agents import ProviderKind, ProviderSettings

SECONDS = 5.0


class _Stay(urllib.request.HTTPRedirectHandler):
    """Follows nothing: a key would go along."""

    def redirect_request(self, *_: Any) -> None:
        return None


def reach(provider: ProviderSettings, key: str | None, *, seconds: float = SECONDS) -> str:
    """Ask a provider for its list of models. "" when it answers and takes the key, else in words why not."""
    headers = {"user-agent": "clawpy-console"}
    if provider.kind is ProviderKind.ANTHROPIC:
        address = f"{provider.base_url}/v1/models"
        headers |= {"anthropic-version": "2023-06-01"} | ({"x-api-key": key} if key else {})
    else:
        address = f"{provider.base_url}/models"
        headers |= {"authorization": f"Bearer {key}"} if key else {}
    try:
        request = urllib.request.Request(address, headers=headers)
        # What is plain http is near, and a proxy is not on the way there.
        handlers = [_Stay(), *([urllib.request.ProxyHandler({})] if request.type == "http" else [])]
        with urllib.request.build_opener(*handlers).open(request, timeout=seconds) as answer:
            return "" if answer.status == 200 else f"{provider.host} answers {answer.status}"
    except urllib.error.HTTPError as error:
        with error:
            if error.code in (401, 403):
                return f"{provider.host} does not accept the key ({error.code})"
            if error.code == 404:
                return f"{provider.host} answers, but there are no models at this path; check its baseUrl"
            return f"{provider.host} answers {error.code}"
    except urllib.error.URLError as error:
        return f"{provider.host} cannot be reached: {error.reason}"
    except (OSError, ValueError) as error:
        return f"{provider.host} cannot be reached: {type(error).__name__}"


def answers(address: str, *, seconds: float = SECONDS) -> str:
    """Ask an address that takes no key. "" when it answers well, else in words why not."""
    try:
        handlers = [_Stay(), *([urllib.request.ProxyHandler({})] if address.startswith("http:") else [])]
        with urllib.request.build_opener(*handlers).open(address, timeout=seconds) as answer:
            return "" if answer.status == 200 else f"it answers {answer.status}"
    except urllib.error.HTTPError as error:
        with error:
            return f"it answers {error.code}"
    except urllib.error.URLError as error:
        return f"it cannot be reached: {error.reason}"
    except (OSError, ValueError) as error:
        return f"it cannot be reached ({type(error).__name__})"
