"""The verb `notify` (SPEC 10.2): the address and state of each surface."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from engine.api.documents import Document, instant
from engine.api.notify import delivery
from engine.api.notify.notes import is_switched_on, setting_of
from engine.clock import SystemClock
from engine.config.sections import STORED_WITH_KEYS, Surface, address_problem, key_name, variable
from engine.home import Home
from engine.keys import Keys
from engine.model import Refusal
from engine.settings_store import SettingsStore

if TYPE_CHECKING:
    from engine.api.services import ApiServices


def store_address(home: Home, name: str, url: str, *, in_file: bool, write: Callable[[str, str], Any]) -> Document:
    """Set the address of a surface. One that may contain a secret is stored among the keys, in this process;
    `write(key, value)` writes the setting. Raises `Refusal` `bad_address`, `not_installed`, and what `Keys.set`
    does."""
    surface, url = Surface(name), url.strip()
    if not url:
        fix = f"{delivery.EXAMPLE}; to remove the address: clawpy config unset notify.{surface}.url"
        raise Refusal("bad_address", f"no address was given, so the one for {surface} was not changed", fix)
    if delivery.is_malformed(url):
        raise Refusal("bad_address", "that is not an address", delivery.EXAMPLE)
    if not delivery.is_known_service(url):
        fix = "see https://appriseit.com/services/ for the format"
        raise Refusal("bad_address", "that is not the address of a known service, or it is incomplete", fix)
    source = "settings"
    if address_problem(url):
        export = f"either export {variable(surface)}=… where clawpy is started"
        keep = f"keep it in a file that only you can read: clawpy notify set {surface} --store file"
        keyring_fix = f"{export}, or {keep}"
        source = Keys(home).set(key_name(surface), url, consent_file=in_file, keyring_fix=keyring_fix)
        url = STORED_WITH_KEYS
    write(f"notify.{surface}.url", url)
    current = SettingsStore(home.config_file, clock=SystemClock()).current
    off = "" if is_switched_on(surface, current) else f"; first: clawpy config set {setting_of(surface)} true"
    return {
        "surface": surface.value,
        "source": source,
        "message": f"the address for {surface} is stored in the {source}; test it: clawpy notify test {name}{off}",
    }


def test_surfaces(engine: ApiServices, surface: Surface | None) -> list[Document]:
    """Send a test to a surface, or to all that have an address. Raises `Refusal` `no_surface`."""
    chosen = [surface] if surface else [each for each in Surface if engine.notify.addresses.is_configured(each)]
    if not chosen:
        fix = "clawpy notify set phone, then paste, for example, ntfys://ntfy.sh/my-secret-topic"
        raise Refusal("no_surface", "no address is set", fix)
    return [_test_surface(engine, each) for each in chosen]


def list_surfaces(engine: ApiServices) -> list[Document]:
    """Each surface with its address and what was not delivered."""
    undelivered = {notes.surface: notes for notes in engine.notify.outbox.undelivered()}
    return [
        {
            "surface": surface.value,
            **_address_document(engine, surface),
            "undelivered": undelivered[surface].count if surface in undelivered else 0,
            "since": instant(undelivered[surface].since) if surface in undelivered else None,
            "why": undelivered[surface].note if surface in undelivered else engine.notify.trouble(surface),
        }
        for surface in Surface
    ]


def _address_document(engine: ApiServices, surface: Surface) -> Document:
    """The service of a surface, or what is missing."""
    on = is_switched_on(surface, engine.settings.current)
    reply: Document = {"service": "", "source": "", "enabled": on, "message": "", "fix": ""}
    try:
        address = engine.notify.addresses.of(surface)
    except Refusal as refusal:
        return reply | {"message": refusal.message, "fix": refusal.fix}
    if address is None:
        return reply | {
            "message": "no address",
            "fix": f"clawpy notify set {surface}, or set {variable(surface)}",
        }
    reply |= {"service": address.service, "source": address.source}
    if not on:
        return reply | {
            "message": f"{setting_of(surface)} is off", "fix": f"clawpy config set {setting_of(surface)} true",
        }  # fmt: skip
    return reply


def _test_surface(engine: ApiServices, surface: Surface) -> Document:
    try:
        failure = engine.notify.test(surface)
    except Refusal as refusal:
        return {"surface": surface.value, "delivered": False, "message": refusal.message, "fix": refusal.fix}
    if failure is None:
        words, fix = "accepted by the service; check whether it arrived", ""
    else:
        words, fix = failure.words, f"is its address right? clawpy notify set {surface}"
    return {"surface": surface.value, "delivered": failure is None, "message": words, "fix": fix}
