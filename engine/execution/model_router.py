"""Chooses the model of a run (SPEC 3.8, 5.4).

A learned hint comes first, then the agent's `tools.json`, then the channel, and last the first usable provider. A hint
that cannot be followed is ignored. The operator's choice is never replaced by another model if it cannot be used,
because it may be for the price, or because the code must not leave the machine. For the same reason a hint never moves
work from a local model to a remote one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from enum import Enum, auto
from urllib.parse import urlsplit

from engine.api_keys import Key, Keys, advise_without_keyring
from engine.config import find_model_problem, is_loopback_host
from engine.config.external_sections import PROVIDERS, ProviderKind, ProviderSettings, TokenPrice
from engine.config.settings import SettingsSource
from engine.execution.runners.model import Model
from engine.execution.runners.model.request_costs import compute_blended_price, find_highest_price
from engine.frozen import frozen
from engine.installed import MODELS, SetupStep, has_extra, make_extras_command, make_not_installed_refusal
from engine.model import Refusal
from engine.model.adaptation import ModelRun
from engine.model.prompts import RunKind
from engine.wording import to_microusd

KEYLESS = "keyless"
"""Stands for the source of a key if a provider needs none."""

DEFAULT = "default"
"""The entry of `models` in `tools.json` for every kind of run that has no entry of its own."""

Hints = Callable[[ModelRun], tuple[str, str] | None]
"""Returns the id of a learned model for a run and the reason for it, or None (SPEC 5.4)."""

FIRST_KEY = SetupStep("no model configured", "clawpy key set openai")
"""The step if no provider can be used."""

READ_KEYS = SetupStep(
    "the keys cannot be read", "repair the file of keys; `clawpy key list` shows it", "clawpy key list"
)
"""The step if the file of keys is damaged."""


@frozen
class ModelChoice:
    """A chosen model, its address, and the reason for the choice."""

    provider: str
    model: str
    reason: str
    base_url: str
    kind: ProviderKind
    host: str
    keyless: bool
    price: TokenPrice | None
    """The price in the settings of its provider."""

    @property
    def is_free(self) -> bool:
        """Whether nobody is paid for it: its price in the settings is 0, or it has none there and needs no key or runs
        on this machine. A server on this machine that has the name of a built-in provider may be a gateway to it, and
        so may one without a key elsewhere, if the public list knows its name. That list takes half a second to load."""
        if self.price is not None:
            return not (self.price.input or self.price.output)
        if is_loopback_host(urlsplit(self.base_url).hostname or ""):
            return self.keyless or self.provider not in PROVIDERS
        if not self.keyless:
            return False
        return find_highest_price(Model(self.provider, self.model, self.kind, self.base_url)) is None

    @property
    def id(self) -> str:
        """`provider:model`"""
        return f"{self.provider}:{self.model}"

    def make_model(self, key: Key | None = None) -> Model:
        """The model as the host needs it: with its address, this key, and its price in the settings."""
        return Model(
            self.provider,
            self.model,
            self.kind,
            self.base_url,
            key.value if key else "",
            is_free=self.is_free,
            input_price=to_microusd(self.price.input) if self.price else None,
            output_price=to_microusd(self.price.output) if self.price else None,
        )


class ProviderProblem(Enum):
    """The kind of problem because of which a provider cannot be used."""

    NO_KEY = auto()
    UNREADABLE_KEYS = auto()
    """The file of keys is damaged, or others can read it."""
    NOT_INSTALLED = auto()
    """The packages that talk to models are missing."""


@frozen
class ProviderState:
    """The state of one provider."""

    name: str
    settings: ProviderSettings
    source: str
    """The source of its key, or `KEYLESS`; "" when it cannot be used."""
    problem: str = ""
    """Why it cannot be used; "" when it can."""
    problem_kind: ProviderProblem | None = None
    is_configured: bool = False
    """Whether the settings name it."""

    @property
    def usable(self) -> bool:
        """Whether it can be called."""
        return bool(self.source)


@frozen
class ModelRouter:
    """Chooses models. Thread-safe, and quick except for the first read of a keyring.

    `models` returns the `models` of an agent's `tools.json`, which are ids by kind of run. It raises `Refusal` for an
    agent that does not exist or is broken.
    """

    settings: SettingsSource
    keys: Keys
    models: Callable[[str], Mapping[str, str]]
    hints: Hints = lambda run: None

    def choose(
        self, agent: str, channel: str, run_kind: str = RunKind.TASK, prompt: str = "", workspace: str = ""
    ) -> ModelChoice:
        """The model for one run. Raises `Refusal` `no_model`, and as the agent's folder."""
        hint = self.hints(ModelRun(agent, channel, run_kind, prompt, workspace))
        hinted = None
        with suppress(Refusal):  # an outdated hint is ignored
            hinted = self.choose_named(*hint) if hint is not None else None
        if hinted is None:
            return self._choose_configured_model(agent, channel, run_kind)
        if hinted.keyless:
            return hinted
        try:
            configured = self._choose_configured_model(agent, channel, run_kind)
        except Refusal:
            return hinted
        return configured if configured.keyless else hinted

    def _choose_configured_model(self, agent: str, channel: str, run_kind: str) -> ModelChoice:
        """The operator's choice, or the model of the first usable provider."""
        models = self.models(agent)
        for kind in (run_kind, DEFAULT):
            configured_model = models.get(kind)
            if configured_model:
                return self.choose_named(configured_model, f"tools.json of {agent} names it for {kind}")
        channel_settings = self.settings.current.channels.get(channel)
        if channel_settings is not None and channel_settings.model:
            return self.choose_named(channel_settings.model, f"channel {channel} names it")
        states = self.list_providers()
        for state in states:
            if state.usable and state.settings.model:
                return _make_choice(state, state.settings.model, f"{state.name} is the first usable provider")
        steps = find_missing_steps(states)
        raise Refusal("no_model", steps[0].problem, describe_setup(steps))

    def find_missing_steps(self) -> list[SetupStep]:
        """See `find_missing_steps`."""
        return find_missing_steps(self.list_providers())

    def list_providers(self) -> list[ProviderState]:
        """Every provider. Those that the settings name are first."""
        return [self.read_provider(name) for name in self.settings.current.list_providers()]

    def read_provider(self, name: str) -> ProviderState:
        """One provider. Raises `Refusal` `no_model` when there is none of that name."""
        current = self.settings.current
        settings = current.get_provider(name)
        if settings is None:
            names = ", ".join(current.list_providers())
            raise Refusal(
                "no_model",
                f"there is no provider {name}",
                f"known providers: {names}; for another, add [providers.{name}]",
            )
        is_configured = name in current.providers

        def make_unusable(kind: ProviderProblem | None, problem: str) -> ProviderState:
            return ProviderState(name, settings, "", problem, kind, is_configured)

        try:
            key = self.keys.get(name)
        except Refusal as refusal:
            return make_unusable(ProviderProblem.UNREADABLE_KEYS, f"{refusal.message}: {refusal.fix}")
        if key is None and not settings.keyless:
            return make_unusable(ProviderProblem.NO_KEY, f"no key: clawpy key set {name}")
        if key is None and not is_configured:
            return make_unusable(None, f"not named in the settings: {_make_set_model_command(name)}")
        if not has_extra(MODELS):
            return make_unusable(ProviderProblem.NOT_INSTALLED, str(make_not_installed_refusal(MODELS)))
        source = KEYLESS if key is None else key.source
        return ProviderState(name, settings, source, is_configured=is_configured)

    def get_key(self, provider: str) -> Key | None:
        """The key of a provider. Raises `Refusal` when its place is not safe."""
        return self.keys.get(provider)

    def choose_named(self, model_id: str, reason: str, *, keyed: bool = False) -> ModelChoice:
        """The model with the id `PROVIDER:MODEL`, which is named for a `reason`. `keyed` says that the caller has a key
        of its own. Raises `Refusal` `no_model`."""
        problem = find_model_problem(model_id)
        if problem:
            raise Refusal("no_model", f"{reason}: {problem}", "fix it there")
        provider, _, model = model_id.partition(":")
        try:
            state = self.read_provider(provider)
        except Refusal as refusal:
            raise Refusal("no_model", f"{model_id}: {refusal.message} ({reason})", refusal.fix) from refusal
        if not has_extra(MODELS):
            absent = make_not_installed_refusal(MODELS)
            raise Refusal("no_model", f"{model_id} cannot be used ({reason}): {absent.message}", absent.fix)
        if not (state.usable or keyed):
            raise Refusal("no_model", f"{model_id} cannot be used ({reason}): {state.problem}", _describe_fix(state))
        return _make_choice(state, model, reason)

    def list_named_models(self, agents: Iterable[str]) -> list[str]:
        """Every model that the settings or the folders of these agents name, usable or not."""
        current = self.settings.current
        providers = [(state.name, state.settings.model) for state in self.list_providers() if state.settings.model]
        models = [f"{provider}:{model}" for provider, model in providers]
        models += [channel.model for channel in current.channels.values() if channel.model]
        for agent in agents:
            models += self.models(agent).values()
        return list(dict.fromkeys(models))

    def find_blended_price(self, model_id: str) -> int | None:
        """Micro-dollars for a million tokens of a model, prompt and answer together; 0 for a model without a bill, None
        when the price is unknown. The first call imports the price list, which takes half a second."""
        try:
            choice = self.choose_named(model_id, "looking up its price")
        except Refusal:
            return None
        model = choice.make_model()
        if model.is_free:
            return 0
        return compute_blended_price(model)


# -- what is missing


def find_missing_steps(states: Sequence[ProviderState]) -> list[SetupStep]:
    """The steps that are missing before a model of one of these providers can answer, the next one first; none if a
    model can."""
    steps = []
    if not has_extra(MODELS):
        steps.append(SetupStep("the extra models is missing", make_extras_command(MODELS), "clawpy doctor"))
    kinds = {state.problem_kind for state in states}
    with_key = [state for state in states if state.usable or state.problem_kind is ProviderProblem.NOT_INSTALLED]
    if not with_key and ProviderProblem.UNREADABLE_KEYS in kinds:
        steps.append(READ_KEYS)
    elif not with_key:
        keyless = (state for state in states if state.is_configured and state.problem_kind is ProviderProblem.NO_KEY)
        steps.append(
            next(
                (SetupStep(f"{state.name} has no key", f"clawpy key set {state.name}") for state in keyless), FIRST_KEY
            )
        )
    elif not any(state.settings.model for state in with_key):
        steps.append(SetupStep("no model configured", _make_set_model_command(with_key[0].name)))
    return steps


def describe_setup(steps: Sequence[SetupStep]) -> str:
    """The commands of the missing steps in one sentence, with the choice of a local model."""
    commands = ", then ".join(
        f"`{step.command}`" if step.command.startswith("clawpy") else step.command for step in steps
    )
    local = ", or `clawpy config set providers.ollama.model NAME` for a local model"
    return f"{commands}{local if FIRST_KEY in steps else ''}"


def _make_choice(state: ProviderState, model: str, reason: str) -> ModelChoice:
    """The choice of a model of this provider."""
    settings = state.settings
    keyless = state.source == KEYLESS
    return ModelChoice(
        state.name, model, reason, settings.base_url, settings.kind, settings.host, keyless, settings.price
    )


def _describe_fix(state: ProviderState) -> str:
    """How to make a provider usable."""
    if state.problem_kind is ProviderProblem.UNREADABLE_KEYS:
        return READ_KEYS.command
    if state.problem_kind is ProviderProblem.NO_KEY:
        return advise_without_keyring(state.name)
    return _make_set_model_command(state.name)


def _make_set_model_command(provider: str) -> str:
    return f"clawpy config set providers.{provider}.model NAME"
