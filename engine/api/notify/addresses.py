"""Where each surface is reached: the environment, then the keys, then the settings (SPEC 10.2, 11.1).

An address may hold a token. It leaves here only as `Address.url`, for the one who delivers: it is in no repr, no log,
no error and no document.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NoReturn
from urllib.parse import urlsplit

from engine.config import SettingsSource
from engine.config.notify import KEPT, OPEN_SCHEMES, Surface, key_name, variable
from engine.keys import ENVIRONMENT, Keys
from engine.model import Refusal

EXAMPLE = 'for example "ntfys://ntfy.sh/my-secret-topic"; see https://appriseit.com/services/ for others'
"""How an address is written."""


class Address:
    """An address and where it comes from: "environment", "keyring", "file" or "settings". Shown, it is a scheme."""

    __slots__ = ("_url", "source", "surface")

    def __init__(self, surface: Surface, url: str, source: str) -> None:
        self.surface = surface
        self.source = source
        self._url = url

    @property
    def url(self) -> str:
        """The address itself: for its delivery and nothing else."""
        return self._url

    @property
    def service(self) -> str:
        """What kind of service it is, for instance `ntfy`: the scheme, and no more."""
        return self._url.partition("://")[0]

    def __repr__(self) -> str:
        return f"Address({self.surface.value!r}, {self.service!r}, {self.source!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("the address was not stored")


class Addresses:
    """Finds addresses. A look at a keyring may take 3 s; one that no setting names is never looked for."""

    def __init__(self, settings: SettingsSource, keys: Keys, *, environment: Mapping[str, str] = os.environ) -> None:
        self._settings = settings
        self._keys = keys
        self._environment = environment
        self._kept: dict[Surface, str] = {}  # addresses that came from the keys

    def named(self, surface: Surface) -> bool:
        """Whether there is, or ought to be, an address. Quick."""
        return bool(self._environment.get(variable(surface), "").strip() or self._written(surface))

    def of(self, surface: Surface) -> Address | None:
        """The address of a surface, None when it is not wished for.

        Raises `Refusal`: `no_address` when it is said to be kept and is not, `bad_address` when it is none, and what
        the file of keys raises.
        """
        url, source = self._environment.get(variable(surface), "").strip(), ENVIRONMENT
        if not url:
            url, source = self._written(surface), "settings"
        if url == KEPT:
            key = self._keys.get(key_name(surface))
            if key is None:
                message = f'notify.{surface.value}.url is "key", but no address is stored for {surface.value}'
                raise Refusal("no_address", message, f"clawpy notify set {surface.value}, or set {variable(surface)}")
            url, source = key.value, key.source
            self._kept[surface] = url
        if not url:
            return None
        if malformed(url):  # which is not repeated: it may be a secret
            raise Refusal("bad_address", f"what is stored for {surface.value} is not an address", EXAMPLE)
        return Address(surface, url, source)

    def secrets(self) -> tuple[str, ...]:
        """Parts of the addresses that were asked for, or are in the environment: to be cut out of whatever is sent."""
        urls = [*(self._environment.get(variable(surface), "").strip() for surface in Surface), *self._kept.values()]
        return tuple(part for url in urls if url for part in parts(url))

    def _written(self, surface: Surface) -> str:
        return self._settings.current.notify.of(surface).url


def malformed(url: str) -> bool:
    """Whether `url` is not an address at all, of whatever service."""
    scheme, between, rest = url.partition("://")
    return not between or not scheme.isascii() or not scheme.isalnum() or any(sign.isspace() for sign in rest)


def parts(url: str) -> tuple[str, ...]:
    """An address and those parts of it that may be secret; of services that need none, a path is no secret."""
    try:
        split = urlsplit(url)
        inside = [split.username, split.password, *split.query.replace("=", "&").split("&")]
        if split.scheme not in OPEN_SCHEMES:
            inside += [split.hostname, *split.path.split("/")]
    except ValueError:
        inside = []
    return (url, *(part for part in inside if part))
