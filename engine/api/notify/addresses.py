"""Finds the address of each surface: in the environment, the key stores, or the settings (SPEC 10.2, 11.1).

An address may contain a token. It is available as `Address.url` for the delivery only, and in no repr, log, error or
document.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NoReturn
from urllib.parse import urlsplit

from engine.config import SettingsSource
from engine.config.notify import OPEN_SCHEMES, STORED_WITH_KEYS, Surface, key_name, variable
from engine.keys import ENVIRONMENT, Keys
from engine.model import Refusal

EXAMPLE = 'for example "ntfys://ntfy.sh/my-secret-topic"; see https://appriseit.com/services/ for others'
"""The format of an address, for errors."""


class Address:
    """An address and where it comes from: "environment", "keyring", "file" or "settings". Its repr has the scheme
    only."""

    __slots__ = ("_url", "source", "surface")

    def __init__(self, surface: Surface, url: str, source: str) -> None:
        self.surface = surface
        self.source = source
        self._url = url

    @property
    def url(self) -> str:
        """The address itself, for its delivery and nothing else."""
        return self._url

    @property
    def service(self) -> str:
        """The kind of service, such as `ntfy`: the scheme only."""
        return self._url.partition("://")[0]

    def __repr__(self) -> str:
        return f"Address({self.surface.value!r}, {self.service!r}, {self.source!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("the address was not stored")


class Addresses:
    """Finds addresses. Reading a keyring may take 3 s, so one that no setting names is not looked for."""

    def __init__(self, settings: SettingsSource, keys: Keys, *, environment: Mapping[str, str] = os.environ) -> None:
        self._settings = settings
        self._keys = keys
        self._environment = environment
        self._stored_urls: dict[Surface, str] = {}  # addresses that came from the keys

    def is_configured(self, surface: Surface) -> bool:
        """Whether an address is set. Quick."""
        return bool(self._environment.get(variable(surface), "").strip() or self._url_in_settings(surface))

    def of(self, surface: Surface) -> Address | None:
        """The address of a surface, None when none is set.

        Raises `Refusal`: `no_address` when the settings say that it is stored and it is not, `bad_address` when it is
        malformed, and what the key file raises.
        """
        url, source = self._environment.get(variable(surface), "").strip(), ENVIRONMENT
        if not url:
            url, source = self._url_in_settings(surface), "settings"
        if url == STORED_WITH_KEYS:
            key = self._keys.get(key_name(surface))
            if key is None:
                message = f'notify.{surface.value}.url is "key", but no address is stored for {surface.value}'
                raise Refusal("no_address", message, f"clawpy notify set {surface.value}, or set {variable(surface)}")
            url, source = key.value, key.source
            self._stored_urls[surface] = url
        if not url:
            return None
        if is_malformed(url):  # which is not repeated: it may be a secret
            raise Refusal("bad_address", f"what is stored for {surface.value} is not an address", EXAMPLE)
        return Address(surface, url, source)

    def secrets(self) -> tuple[str, ...]:
        """Parts of all known addresses that may be secret, to be removed from what is sent."""
        urls = [self._environment.get(variable(surface), "").strip() for surface in Surface]
        urls += self._stored_urls.values()
        return tuple(part for url in urls if url for part in secret_parts(url))

    def _url_in_settings(self, surface: Surface) -> str:
        return self._settings.current.notify.of(surface).url


def is_malformed(url: str) -> bool:
    """Whether `url` is no address at all, of whatever service."""
    scheme, between, rest = url.partition("://")
    return not between or not scheme.isascii() or not scheme.isalnum() or any(sign.isspace() for sign in rest)


def secret_parts(url: str) -> tuple[str, ...]:
    """An address and its parts that may be secret; a path is none for services that need no secret."""
    try:
        split = urlsplit(url)
        inside = [split.username, split.password, *split.query.replace("=", "&").split("&")]
        if split.scheme not in OPEN_SCHEMES:
            inside += [split.hostname, *split.path.split("/")]
    except ValueError:
        inside = []
    return (url, *(part for part in inside if part))
