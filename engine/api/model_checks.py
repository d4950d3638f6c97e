"""Checks of `doctor` on what carries out text prompts: keys, providers, models and coding agents (SPEC 9.8, 11.1)."""

from __future__ import annotations

import shutil

from engine.api.checks import OK, WARN, Check
from engine.api.connectivity import check_provider
from engine.api.keys import prospects
from engine.config import FixedSettings, Settings
from engine.config.agents import ACP
from engine.execution.routing import ModelRouter, setup_command
from engine.home import Home
from engine.key_stores import NoKeyring
from engine.keys import Keys
from engine.model import Refusal, extras


def memory_model(settings: Settings, models: ModelRouter) -> list[Check]:
    """The model for summaries and the nightly work, where one is set."""
    model = settings.memory.model
    if not model:
        return []
    try:
        models.named(model, "`model` of [memory] names it")
    except Refusal as error:
        return [Check("memory", WARN, f"{error.message}; sessions are summarised by rules", error.fix)]
    return [Check("memory", OK, f"{model} summarises sessions and decides at night what to keep of the day")]


def key_storage(keys: Keys) -> Check:
    """Where keys are stored; a plain file is a warning (SPEC 11.1)."""
    badge = keys.badge()
    try:
        keyring = keys.backend()
        if badge:
            return Check("keys", WARN, badge, f"move them into {keyring}: clawpy key set NAME")
        return Check("keys", OK, f"kept in {keyring}")
    except NoKeyring as error:
        if badge:
            return Check("keys", WARN, f"{badge}; {error}", "start a keyring; clawpy key set NAME then moves them")
        fix = "set keys as CLAWPY_<PROVIDER>_API_KEY in the environment, or clawpy key set NAME --store file"
        return Check("keys", WARN, f"{error}; flows need no key", fix)


def provider_checks(router: ModelRouter, keys: Keys, *, online: bool) -> list[Check]:
    """Providers that can be used, and those in the settings that cannot."""
    checks = []
    for state in router.providers():
        if not state.usable:
            if state.named:
                words, fix = state.words, f"clawpy key set {state.name}"
                if not extras.installed(extras.MODELS):
                    absent = extras.not_installed(extras.MODELS)
                    words, fix = absent.message, absent.fix
                checks.append(Check("provider", WARN, f"{state.name}: {words}", fix))
            continue
        model = state.settings.model or "no model set"
        message = f"{state.name}: {model} at {state.settings.host}, key: {state.source}"
        fix = "" if state.settings.model else f"clawpy config set providers.{state.name}.model NAME"
        check = Check("provider", OK if state.settings.model else WARN, message, fix)
        if online:
            key = keys.get(state.name)
            if fault := check_provider(state.settings, None if key is None else key.value):
                check = Check("provider", WARN, f"{state.name}: {fault}", f"clawpy key test {state.name}")
        checks.append(check)
    return checks


def text_prompts(home: Home, settings: Settings, keys: Keys) -> Check:
    """Which model or agent would run text prompts now, and how to set one up."""
    served, unserved = prospects(home, FixedSettings(settings), keys)
    answers = [f"{', '.join(channels)} on {model}" for model, channels in served.items()]
    answers += [f"{name}: {why}" for name, why in unserved.items() if why.startswith("its runner is acp:")]
    others = {why: name for name, why in unserved.items() if not why.startswith("its runner is")}
    if answers and not others:
        return Check("prose", OK, "; ".join(answers))
    if answers:
        return Check("prose", WARN, "; ".join(answers), "; ".join(f"{name}: {why}" for why, name in others.items()))
    return Check("prose", WARN, "no model configured; flows need none", setup_command())


def coding_agents(home: Home, settings: Settings) -> list[Check]:
    """Coding agents in the settings, and those that are installed and could serve a channel (SPEC 9.8)."""
    from engine.execution.runners.acp.agents import describe_agent, find_agents

    checks = []
    for name, section in settings.acp.items():
        agent = describe_agent(name, section.command, data=home.data)
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
    for agent in find_agents(data=home.data):
        if agent.name not in settings.acp:
            fix = agent.missing or f"clawpy agents serve CHANNEL {agent.name}"
            lacks = " without its adapter" if agent.missing else ""
            checks.append(
                Check("coding agent", OK, f"{agent.title} is installed{lacks} and could serve a channel", fix)
            )
    return checks
