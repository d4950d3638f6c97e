"""Checks of `doctor` on what carries out text prompts: keys, providers, models and coding agents (SPEC 9.8, 11.1)."""

from __future__ import annotations

import shutil

from engine.api.channel_models import channel_models, channels_by_model
from engine.api.checks import OK, WARN, Check
from engine.api.connectivity import check_provider
from engine.config import FixedSettings, Settings
from engine.config.agents import ACP
from engine.execution.routing import ModelRouter, ProviderState, setup_command
from engine.home import Home
from engine.key_stores import NoKeyring
from engine.keys import Keys
from engine.model import Refusal, extras


def memory_model_check(settings: Settings, router: ModelRouter) -> list[Check]:
    """The model for summaries and the nightly work, where one is set."""
    model = settings.memory.model
    if not model:
        return []
    try:
        router.choose_named(model, "`model` of [memory] names it")
    except Refusal as error:
        return [Check("memory", WARN, f"{error.message}; sessions are summarised by rules", error.fix)]
    return [Check("memory", OK, f"{model} summarises sessions and decides at night what to keep of the day")]


def key_storage_check(keys: Keys) -> Check:
    """The place where keys are stored; a plain file is a warning (SPEC 11.1)."""
    badge = keys.badge()
    try:
        keyring = keys.backend()
    except NoKeyring as error:
        if badge:
            return Check("keys", WARN, f"{badge}; {error}", "start a keyring; clawpy key set NAME then moves them")
        fix = "set keys as CLAWPY_<PROVIDER>_API_KEY in the environment, or clawpy key set NAME --store file"
        return Check("keys", WARN, f"{error}; flows need no key", fix)
    if badge:
        return Check("keys", WARN, badge, f"move them into {keyring}: clawpy key set NAME")
    return Check("keys", OK, f"kept in {keyring}")


def provider_checks(router: ModelRouter, keys: Keys, *, online: bool) -> list[Check]:
    """Providers that can be used, and those in the settings that cannot."""
    return [
        _usable_provider(state, keys, online=online) if state.usable else _unusable_provider(state)
        for state in router.providers()
        if state.usable or state.is_configured
    ]


def _unusable_provider(state: ProviderState) -> Check:
    words, fix = state.problem, f"clawpy key set {state.name}"
    if not extras.installed(extras.MODELS):
        absent = extras.not_installed(extras.MODELS)
        words, fix = absent.message, absent.fix
    return Check("provider", WARN, f"{state.name}: {words}", fix)


def _usable_provider(state: ProviderState, keys: Keys, *, online: bool) -> Check:
    settings = state.settings
    if online:
        key = keys.get(state.name)
        if problem := check_provider(settings, None if key is None else key.value):
            return Check("provider", WARN, f"{state.name}: {problem}", f"clawpy key test {state.name}")
    message = f"{state.name}: {settings.model or 'no model set'} at {settings.host}, key: {state.source}"
    if settings.model:
        return Check("provider", OK, message)
    return Check("provider", WARN, message, f"clawpy config set providers.{state.name}.model NAME")


def text_prompt_check(settings: Settings, router: ModelRouter) -> Check:
    """The models and agents that would answer text prompts now, and how to set one up."""
    models = channel_models(FixedSettings(settings), router)
    answers = [f"{channels} on {model}" for model, channels in channels_by_model(models).items()]
    answers += [f"{entry.channel}: its runner is {entry.runner}" for entry in models if entry.runner.startswith(ACP)]
    if not answers:
        return Check("prose", WARN, "no model configured; flows need none", setup_command())
    channel_by_reason = {entry.reason: entry.channel for entry in models if entry.reason}  # one is enough as an example
    if channel_by_reason:
        fix = "; ".join(f"{channel}: {reason}" for reason, channel in channel_by_reason.items())
        return Check("prose", WARN, "; ".join(answers), fix)
    return Check("prose", OK, "; ".join(answers))


def coding_agent_checks(home: Home, settings: Settings) -> list[Check]:
    """Coding agents in the settings, and those that are installed and could serve a channel (SPEC 9.8)."""
    from engine.execution.runners.acp.agents import describe_agent, find_agents

    checks = []
    for name, section in settings.acp.items():
        agent = describe_agent(name, section.command, home.data)
        runner = f"{ACP}{name}"
        serves = [channel for channel, line in settings.channels.items() if runner in (line.runner, *line.fallback)]
        message = f"{agent.title} serves {', '.join(serves) or 'no channel'}"
        if shutil.which(section.command[0]) is None:
            fix = f"install it, or fix [acp.{name}]"
            checks.append(Check("coding agent", WARN, f"{message}; `{section.command[0]}` is not on the PATH", fix))
        else:
            reach = ", ".join(section.hosts) or "none"
            words = f"{message}; network: {reach}; to log in, if needed: {agent.login}"
            checks.append(Check("coding agent", OK, words))
    for agent in find_agents(home.data):
        if agent.name not in settings.acp:
            fix = agent.missing or f"clawpy agents serve CHANNEL {agent.name}"
            lacks = " without its adapter" if agent.missing else ""
            checks.append(
                Check("coding agent", OK, f"{agent.title} is installed{lacks} and could serve a channel", fix)
            )
    return checks
