"""The addresses of the surfaces on which the operator gets notifications, and whether each surface is switched on (SPEC
10.2).

An address may contain a token (SPEC 11.1), so it is never in a repr, log, error or document. `clawpy notify set` stores
one, and `doctor` checks all of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any
from urllib.parse import urlsplit

from pydantic.alias_generators import to_camel

from engine.api.documents import Document
from engine.api_keys import ENVIRONMENT, Keys
from engine.config.external_sections import (
    DESKTOP_SCHEME,
    OPEN_SCHEMES,
    SERVICE_ADDRESS,
    SPEAK_SCHEME,
    STORED_WITH_KEYS,
    Surface,
    find_address_problem,
    make_address_key_name,
    make_address_variable,
)
from engine.config.settings import Settings, SettingsSource
from engine.frozen import frozen
from engine.home import Home
from engine.installed import NOTIFY, has_extra, make_not_installed_refusal
from engine.model import Refusal
from engine.settings_store import SettingsStore

EXAMPLE = 'for example "ntfys://ntfy.sh/my-secret-topic"; see https://appriseit.com/services/ for others'
"""An example of an address, for errors."""

EXAMPLE_FIX = "clawpy notify set {}, then paste, for example, ntfys://ntfy.sh/my-secret-topic"

_PUSH_SETTING = "push_notifications_enabled"
_SETTINGS = {Surface.WATCH: "watch_complications_enabled", Surface.GLASSES: "glasses_alerts_enabled"}


def get_setting_name(surface: Surface) -> str:
    """The name in the settings file of the setting that switches a surface on or off (SPEC 7.4)."""
    return to_camel(_SETTINGS.get(surface, _PUSH_SETTING))


def is_switched_on(surface: Surface, settings: Settings) -> bool:
    """Whether the settings switch a surface on (SPEC 7.4)."""
    return bool(getattr(settings, _SETTINGS.get(surface, _PUSH_SETTING)))


@frozen
class Address:
    """An address and its source: "environment", "keyring", "file" or "settings". `url` is only for deliveries."""

    surface: Surface
    url: str = field(repr=False)
    source: str

    @property
    def service(self) -> str:
        """The kind of service, such as `ntfy`. It is the scheme of the URL, which may be written in capitals."""
        return self.url.partition("://")[0].lower()


class Addresses:
    """Finds addresses. Reading a keyring may take 3 s, so it is asked only for addresses that the settings mention."""

    def __init__(self, settings: SettingsSource, keys: Keys, *, environment: Mapping[str, str] = os.environ) -> None:
        self._settings = settings
        self._keys = keys
        self._environment = environment
        self._stored_urls: dict[Surface, str] = {}  # addresses from the key stores

    def is_configured(self, surface: Surface) -> bool:
        """Whether an address is set. Quick."""
        return bool(self._read_url_in_environment(surface) or self._read_url_in_settings(surface))

    def find(self, surface: Surface) -> Address | None:
        """The address of a surface, None if none is set.

        Raises `Refusal`: `no_address` if the settings say that it is stored and it is not, `bad_address` if it is
        malformed, and as `KeyFile.get`.
        """
        url, source = self._read_url_in_environment(surface), ENVIRONMENT
        if not url:
            url, source = self._read_url_in_settings(surface), "settings"
        if url == STORED_WITH_KEYS:
            key = self._keys.get(make_address_key_name(surface))
            if key is None:
                message = f'notify.{surface.value}.url is "key", but no address is stored for {surface.value}'
                fix = f"clawpy notify set {surface.value}, or set {make_address_variable(surface)}"
                raise Refusal("no_address", message, fix)
            url, source = key.value, key.source
            self._stored_urls[surface] = url
        if not url:
            return None
        if not SERVICE_ADDRESS.fullmatch(url):  # the error does not repeat it, because it may be a secret
            raise Refusal("bad_address", f"what is stored for {surface.value} is not an address", EXAMPLE)
        return Address(surface, url, source)

    def secrets(self) -> tuple[str, ...]:
        """Parts of all known addresses that may be secret, to be removed from what is sent."""
        urls = [*map(self._read_url_in_environment, Surface), *self._stored_urls.values()]
        return tuple(part for url in urls if url for part in find_secret_parts(url))

    def _read_url_in_environment(self, surface: Surface) -> str:
        return self._environment.get(make_address_variable(surface), "").strip()

    def _read_url_in_settings(self, surface: Surface) -> str:
        return self._settings.current.notify.get_surface(surface).url


def find_secret_parts(url: str) -> tuple[str, ...]:
    """An address and its parts that may be secret. For services without secrets, the path is not one of them."""
    try:
        split = urlsplit(url)
        inside = [split.username, split.password, *split.query.replace("=", "&").split("&")]
        if split.scheme not in OPEN_SCHEMES:
            inside += [split.hostname, *split.path.split("/")]
    except ValueError:
        inside = []
    return (url, *(part for part in inside if part))


def is_known_service(url: str) -> bool:
    """Whether an address is complete and its service is supported. Raises `Refusal` `not_installed` without Apprise."""
    if url.partition("://")[0].lower() in (DESKTOP_SCHEME, SPEAK_SCHEME):
        return True
    if not has_extra(NOTIFY):
        raise make_not_installed_refusal(NOTIFY)
    import apprise

    return apprise.Apprise.instantiate(url) is not None


def store_address(home: Home, name: str, url: str, *, in_file: bool, write: Callable[[str, str], Any]) -> Document:
    """Set the address of a surface. If it may contain a secret, this process stores it in the key stores.
    `write(key, value)` writes the setting. Raises `Refusal` `bad_address`, `not_installed`, and as `Keys.set`."""
    surface, url = Surface(name), url.strip()
    if not url:
        fix = f"{EXAMPLE}; to remove the address: clawpy config unset notify.{surface}.url"
        raise Refusal("bad_address", f"no address was given, so the one for {surface} was not changed", fix)
    if not SERVICE_ADDRESS.fullmatch(url):
        raise Refusal("bad_address", "that is not an address", EXAMPLE)
    if not is_known_service(url):
        fix = "see https://appriseit.com/services/ for the format"
        raise Refusal("bad_address", "that is not the address of a known service, or it is incomplete", fix)
    source = "settings"
    if find_address_problem(url):
        export = f"either export {make_address_variable(surface)}=… where clawpy is started"
        keep = f"keep it in a file that only you can read: clawpy notify set {surface} --store file"
        keyring_fix = f"{export}, or {keep}"
        source = Keys(home).set(make_address_key_name(surface), url, in_file=in_file, keyring_fix=keyring_fix)
        url = STORED_WITH_KEYS
    write(f"notify.{surface}.url", url)
    current = SettingsStore(home.config_file).current
    off = "" if is_switched_on(surface, current) else f"; first: clawpy config set {get_setting_name(surface)} true"
    return {
        "surface": surface.value,
        "source": source,
        "message": f"the address for {surface} is stored in the {source}; test it: clawpy notify test {name}{off}",
    }
