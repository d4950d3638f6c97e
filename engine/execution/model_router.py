"""Chooses the model of a run (SPEC 3.8, 5.4).

A learned hint comes first, then the agent's `tools.json`, then the channel, and last the first usable provider. A hint
that cannot be followed is ignored. The operator's choice is never replaced by another model if it cannot be used,
because it may be for the price, or because the code must not leave the machine. For the same reason a hint never moves
work from a local model to a remote one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from engine import extras
from engine.config import SettingsSource
from engine.config.provider_settings import ProviderKind, ProviderSettings, model_problem
from engine.frozen import frozen
from engine.keys import Key, Keys, without_keyring
from engine.model import Refusal

KEYLESS = "keyless"
"""Stands for the source of a key if a provider needs none."""

DEFAULT = "default"
"""The entry of `models` in `tools.json` for every kind of run that has no entry of its own."""

Hints = Callable[[str, str, str, str, str], tuple[str, str] | None]
"""Returns the id of a learned model and the reason for it, or None (SPEC 5.4). Its arguments are an agent, a channel, a
kind of run, a prompt and a workspace."""


@frozen
class ModelChoice:
    """A chosen model, its address, and the reason for the choice."""

    provider: str
    model: str
    reason: str
    base_url: str
    kind: ProviderKind
    host: str
    keyless: bool = False

    @property
    def id(self) -> str:
        """`provider:model`"""
        return f"{self.provider}:{self.model}"


@frozen
class ProviderState:
    """The state of one provider."""

    name: str
    settings: ProviderSettings
    source: str
    """The source of its key, or `KEYLESS`; "" when it cannot be used."""
    problem: str = ""
    """Why it cannot be used; "" when it can."""
    is_configured: bool = False
    """Whether the settings name it."""

    @property
    def usable(self) -> bool:
        """Whether it can be called."""
        return bool(self.source)


class ModelRouter:
    """Chooses models. Thread-safe, and quick except for the first read of a keyring.

    `models` returns the `models` of an agent's `tools.json`, which are ids by kind of run. It raises `Refusal` for an
    agent that does not exist or is broken.
    """

    def __init__(
        self,
        settings: SettingsSource,
        keys: Keys,
        *,
        models: Callable[[str], Mapping[str, str]],
        hints: Hints = lambda agent, channel, run_kind, prompt, workspace: None,
    ) -> None:
        self._settings = settings
        self._keys = keys
        self._models = models
        self._hints = hints

    def choose(
        self, agent: str, channel: str, run_kind: str = "task", prompt: str = "", workspace: str = ""
    ) -> ModelChoice:
        """The model for one run. Raises `Refusal` `no_model`, and as the agent's folder."""
        hinted = self._hinted_model(self._hints(agent, channel, run_kind, prompt, workspace))
        if hinted is None:
            return self._configured_model(agent, channel, run_kind)
        if hinted.keyless:
            return hinted
        try:
            configured = self._configured_model(agent, channel, run_kind)
        except Refusal:
            return hinted
        return configured if configured.keyless else hinted

    def _hinted_model(self, hint: tuple[str, str] | None) -> ModelChoice | None:
        if hint is None:
            return None
        try:
            return self.choose_named(*hint)
        except Refusal:
            return None  # the hint is outdated

    def _configured_model(self, agent: str, channel: str, run_kind: str) -> ModelChoice:
        """The operator's choice, or the model of the first usable provider."""
        models = self._models(agent)
        for kind in (run_kind, DEFAULT):
            chosen = models.get(kind)
            if chosen:
                return self.choose_named(chosen, f"tools.json of {agent} names it for {kind}")
        channel_settings = self._settings.current.channels.get(channel)
        if channel_settings is not None and channel_settings.model:
            return self.choose_named(channel_settings.model, f"channel {channel} names it")
        states = self.providers()
        for state in states:
            if state.usable and state.settings.model:
                return _make_choice(state, state.settings.model, f"{state.name} is the first usable provider")
        raise Refusal("no_model", _why_no_model(states), setup_command())

    def providers(self) -> list[ProviderState]:
        """Every provider. Those that the settings name are first."""
        return [self.provider(name) for name in self._settings.current.provider_names()]

    def provider(self, name: str) -> ProviderState:
        """One provider. Raises `Refusal` `no_model` when there is none of that name."""
        current = self._settings.current
        settings = current.provider(name)
        if settings is None:
            names = ", ".join(current.provider_names())
            raise Refusal(
                "no_model",
                f"there is no provider {name}",
                f"known providers: {names}; for another, add [providers.{name}]",
            )
        is_configured = name in current.providers
        try:
            key = self._keys.get(name)
        except Refusal as refusal:
            return ProviderState(name, settings, "", f"{refusal.message}: {refusal.fix}", is_configured)
        source = KEYLESS if settings.keyless and is_configured else ""
        if key is not None:
            source = key.source
        problem = ""
        if source and not extras.installed(extras.MODELS):
            source, problem = "", str(extras.not_installed(extras.MODELS))
        elif not source and settings.keyless:
            problem = f"not named in the settings: {_set_model_command(name)}"
        elif not source:
            problem = f"no key: clawpy key set {name}"
        return ProviderState(name, settings, source, problem, is_configured)

    def key(self, provider: str) -> Key | None:
        """The key of a provider. Raises `Refusal` when its place is not safe."""
        return self._keys.get(provider)

    def choose_named(self, model_id: str, reason: str, *, keyed: bool = False) -> ModelChoice:
        """The model with the id `PROVIDER:MODEL`, which is named for a `reason`. `keyed` says that the caller has a key
        of its own. Raises `Refusal` `no_model`."""
        problem = model_problem(model_id)
        if problem:
            raise Refusal("no_model", f"{reason}: {problem}", "fix it there")
        provider, _, model = model_id.partition(":")
        try:
            state = self.provider(provider)
        except Refusal as refusal:
            raise Refusal("no_model", f"{model_id}: {refusal.message} ({reason})", refusal.fix) from refusal
        if not extras.installed(extras.MODELS):
            absent = extras.not_installed(extras.MODELS)
            raise Refusal("no_model", f"{model_id} cannot be used ({reason}): {absent.message}", absent.fix)
        if not (state.usable or keyed):
            fix = without_keyring(provider) if "no key" in state.problem else _set_model_command(provider)
            raise Refusal("no_model", f"{model_id} cannot be used ({reason}): {state.problem}", fix)
        return _make_choice(state, model, reason)


def setup_command() -> str:
    """The commands that set up a first provider."""
    first = "" if extras.installed(extras.MODELS) else f"{extras.command(extras.MODELS)}, then "
    return f"{first}`clawpy key set openai`, or `clawpy config set providers.ollama.model NAME` for a local model"


def _make_choice(state: ProviderState, model: str, reason: str) -> ModelChoice:
    settings = state.settings
    keyless = state.source == KEYLESS
    return ModelChoice(state.name, model, reason, settings.base_url, settings.kind, settings.host, keyless)


def _why_no_model(states: list[ProviderState]) -> str:
    """Why there is no usable provider with a model."""
    if not extras.installed(extras.MODELS):
        return extras.not_installed(extras.MODELS).message
    without_model = [state.name for state in states if state.usable]
    if without_model:
        name = without_model[0]
        return f"{name} is available, but no model is set: clawpy config set providers.{name}.model NAME"
    unsafe = [state.problem for state in states if not state.usable and "chmod" in state.problem]
    return unsafe[0] if unsafe else "no provider has a key"


def _set_model_command(provider: str) -> str:
    return f"clawpy config set providers.{provider}.model NAME"
