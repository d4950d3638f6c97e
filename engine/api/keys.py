"""The verb `key` (SPEC 9.8, 11.1): store, list, delete and test the keys of providers.

All of it runs in the process of the person who asks: a key crosses no socket, and a keyring that wants a password asks
that person. A running engine finds the change within 10 seconds.
"""

from __future__ import annotations

import difflib

from engine.api.channel_models import channel_models, channels_by_model, offline_router
from engine.api.connectivity import check_provider
from engine.api.documents import Document
from engine.clock import SystemClock
from engine.config import FixedSettings, Settings, SettingsSource
from engine.home import Home
from engine.key_stores import NoKeyring
from engine.keys import ENVIRONMENT, TWIN, Keys, check_name, variable
from engine.memory.index import KEY as CHROMA
from engine.model import Refusal, extras
from engine.settings_store import SettingsStore


def store_key(home: Home, name: str, value: str, *, in_file: bool = False) -> Document:
    """Store the key of a provider in the keyring, or with `in_file` (the operator agreed) in a private file. Raises
    what `Keys.set` does, and `unknown_provider`."""
    settings, keys = _load_settings(home), Keys(home)
    _check_provider_name(settings, name)
    place = keys.set(name, value, consent_file=in_file)
    wins = variable(name) if keys.where(name) == ENVIRONMENT else ""
    words = f"the key for {name} is stored in the {place}" + (
        f"; {wins} in the environment comes first" if wins else ""
    )
    return {
        "name": name,
        "source": place,
        "message": words,
        "badge": keys.badge(),
        "next": _next_step(home, settings, keys, name),
    }


def delete_key(home: Home, name: str) -> Document:
    """Delete the key of a provider. Raises what `Keys.delete` does."""
    keys = Keys(home)
    check_name(name)
    was = keys.delete(name)
    words = f"the key of {name} is taken out of the {' and the '.join(was)}"
    if keys.where(name) == ENVIRONMENT:
        words += f"; {variable(name)} still has one"
    return {"name": name, "deleted": list(was), "message": words}


def test_key(home: Home, name: str) -> Document:
    """Ask a provider whether it accepts its key. Raises `Refusal`: `unknown_provider`, `no_key`, `not_installed`."""
    settings, keys = _load_settings(home), Keys(home)
    _check_provider_name(settings, name)
    state = offline_router(home, settings, keys).provider(name) if name != TWIN else None
    if state is not None and not extras.installed(extras.MODELS):
        raise extras.not_installed(extras.MODELS)
    if state is None or not state.usable:
        message, fix = f"{name}: {state.problem if state else 'nothing to try it on'}", f"clawpy key set {name}"
        raise Refusal("no_key", message, "" if fix in message else fix)
    key = keys.get(name)
    fault = check_provider(state.settings, None if key is None else key.value)
    words = f"{state.settings.host} answers and accepts the key" if key else f"{state.settings.host} answers"
    return {"name": name, "reached": not fault, "message": fault or words}


def list_keys(home: Home) -> Document:
    """All keys by name, where each comes from, and which keyring there is."""
    settings, keys = _load_settings(home), Keys(home)
    models, known = offline_router(home, settings, keys), settings.current.provider_names()
    entries = [
        {"name": state.name, "source": state.source, "usable": state.usable, "message": state.problem}
        for state in map(models.provider, known)
    ]
    for name in dict.fromkeys([TWIN, *_known_names(keys)]):
        if name not in known:
            source = keys.where(name)
            words = "" if source else f"no key: clawpy key set {name}"
            entries.append({"name": name, "source": source, "usable": bool(source), "message": words})
    try:
        keyring = keys.backend()
    except NoKeyring as error:
        keyring = f"none: {error}"
    return {"keys": entries, "keyring": keyring, "badge": keys.badge()}


def _known_names(keys: Keys) -> tuple[str, ...]:
    try:
        return keys.names()
    except Refusal:
        return ()  # the badge says what is wrong with the file


def _next_step(home: Home, settings: SettingsSource, keys: Keys, name: str) -> str:
    """The next step, in words for the operator."""
    if name == CHROMA:
        return "it is sent to the Chroma server of the index, from the next start on"
    if name == TWIN:
        return "the Twin model uses it once twinModelEnabled is on and twinModelId names it"
    channels = channels_by_model(channel_models(settings, offline_router(home, settings, keys)))
    lines = [f"text prompts on {names} run on {model}" for model, names in channels.items()]
    if lines and not any(model.startswith(f"{name}:") for model in channels):
        provider = settings.current.provider(name)
        model = provider.model if provider and provider.model else "MODEL"
        lines.append(f"to use {name}, for example: clawpy config set channels.koji-core.model {name}:{model}")
    if not lines:
        return "no channel runs text prompts on a model yet; see `clawpy doctor`"
    return "; ".join(lines) + "; try: clawpy propose 'explain what changed here this week'"


def _load_settings(home: Home) -> SettingsSource:
    try:
        return SettingsStore(home.config_file, clock=SystemClock())
    except Refusal:
        return FixedSettings(Settings())  # a broken file is no reason to keep no key; doctor tells of it


def _check_provider_name(settings: SettingsSource, name: str) -> None:
    check_name(name)
    known = (*settings.current.provider_names(), TWIN, CHROMA)
    if name in known:
        return
    close = difflib.get_close_matches(name, known, n=1)
    fix = (
        f"did you mean {close[0]}?"
        if close
        else f"known providers: {', '.join(known)}; for another, first add [providers.{name}]"
    )
    raise Refusal("unknown_provider", f"there is no provider {name}", fix)
