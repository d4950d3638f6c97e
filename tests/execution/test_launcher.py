"""Who takes an assignment: `auto`, fallbacks, words, estimates (SPEC 3.4, 3.8)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from engine.config import ChannelSettings, FixedSettings, Settings
from engine.config.sections import PROVIDERS, ProviderKind
from engine.config.settings_file import read_settings
from engine.execution.routing import ModelRouter
from engine.execution.runners.flow_registry import PROSE as SENTENCE
from engine.execution.session_run import Admission
from engine.keys import Key
from engine.model import Assignment, Refusal, RunnerInfo

PROSE = Assignment("explain the cart", "koji-core", "/w", "auto")
FLOW = replace(PROSE, flow="run_tests")


class Bench(Admission):
    """Admission without a database: what each runner says, what the like cost before."""

    def __init__(self, confines: bool = True, **says: RunnerInfo | Refusal) -> None:
        self.says: dict[str, RunnerInfo | Refusal] = {name.replace("__", ":"): info for name, info in says.items()}
        self.usual: dict[str, int] = {}
        self._sandbox: Any = SimpleNamespace(confines=confines, describe=lambda network, hosts: "a sandbox")

    def runner_of(self, assignment: Assignment) -> Any:
        if assignment.runner not in self.says:
            raise Refusal("no_runner", f"there is no runner {assignment.runner!r}")

        def check(asked_assignment: Assignment) -> RunnerInfo:
            assert asked_assignment.runner == assignment.runner
            answer = self.says[assignment.runner]
            if isinstance(answer, Refusal):
                raise answer
            return answer

        def apply_edit(asked_assignment: Assignment, edit: str) -> Assignment:
            raise Refusal(
                SENTENCE if " " in edit else "bad_parameters", "run_tests takes parameters", "`run_tests paths=…`"
            )

        return SimpleNamespace(check=check, apply_edit=apply_edit)

    def usual_cost(self, runner: str, channel: str) -> int | None:
        return self.usual.get(runner)


def launcher(bench: Bench, **channel: Any) -> Bench:
    settings = Settings(channels={"koji-core": ChannelSettings(agent="backend_builder", **channel)})
    bench._settings = FixedSettings(settings)
    return bench


YES = RunnerInfo(available=True, executor="openai:gpt", hosts=("api.openai.com",))
CLAUDE = RunnerInfo(available=True, executor="Claude Code", hosts=("api.anthropic.com",))
FREE = RunnerInfo(available=True, is_free=True)
NO = RunnerInfo(available=False, reason="no provider has a key")


def test_auto_is_a_flow_where_the_work_names_one_and_a_model_where_it_does_not():
    made = launcher(Bench(flow=FREE, model=YES, acp__claude=CLAUDE))
    assert made.choose(FLOW) == (replace(FLOW, runner="flow"), "")
    assert made.choose(PROSE) == (replace(PROSE, runner="model"), "")


def test_a_card_made_for_auto_goes_to_whom_its_channel_was_given_since():
    made = launcher(Bench(model=YES, acp__claude=CLAUDE), runner="acp:claude")
    assert made.choose(PROSE) == (replace(PROSE, runner="acp:claude"), "")
    assert made.check(PROSE).executor == "Claude Code"


def test_auto_never_takes_a_coding_agent_that_nobody_named():
    made = launcher(Bench(model=NO, acp__claude=CLAUDE))
    assert made.choose(PROSE) == (PROSE, "")
    info = made.check(PROSE)
    assert not info.available
    assert info.reason == "no provider has a key"


def test_before_any_runner_of_prose_exists_the_card_says_how_to_set_one_up():
    info = launcher(Bench(flow=FREE)).check(PROSE)
    assert not info.available
    assert "clawpy key set openai" in info.reason


@pytest.mark.parametrize("absent", [None, NO, Refusal("no_runner", "Claude Code is not there", "install it")])
def test_a_runner_that_is_absent_or_broken_falls_back_as_configured_and_says_so(absent: RunnerInfo | Refusal | None):
    named = replace(PROSE, runner="acp:claude")
    bench = Bench(model=YES, acp__gemini=NO) if absent is None else Bench(model=YES, acp__gemini=NO, acp__claude=absent)
    chosen, words = launcher(bench, fallback=("acp:gemini", "acp:claude", "model")).choose(named)
    assert chosen == replace(PROSE, runner="model")
    assert "openai:gpt" in words
    assert "acp:claude" in words
    assert ("is not there" if isinstance(absent, Refusal) else "") in words


def test_auto_falls_back_too():
    chosen, words = launcher(Bench(model=NO, acp__claude=CLAUDE), fallback=("acp:claude",)).choose(PROSE)
    assert chosen.runner == "acp:claude"
    assert "Claude Code" in words
    assert "no provider has a key" in words


def test_a_flow_is_never_given_to_an_agent():
    made = launcher(Bench(flow=RunnerInfo(False, "`paths` must be a list"), model=YES), fallback=("model",))
    assert made.choose(FLOW) == (FLOW, "")
    assert made.check(FLOW).reason == "`paths` must be a list"


def test_a_flow_edited_in_prose_is_work_for_who_takes_prose_else_refused_with_its_parameters():
    edit, flow = "only the part about the cart", replace(FLOW, runner="flow", parameters={"paths": ["a"]})
    made = launcher(Bench(flow=FREE, model=YES)).apply_edit(flow, edit)
    assert made == replace(PROSE, prompt=edit, runner="model")
    for bench, words in ((Bench(flow=FREE, model=NO), edit), (Bench(flow=FREE, model=YES), "cart")):
        with pytest.raises(Refusal) as refused:
            launcher(bench).apply_edit(flow, words)
        assert (refused.value.code, refused.value.fix) == ("bad_parameters", "`run_tests paths=…`")


def test_check_of_auto_is_that_of_who_would_do_it():
    info = launcher(Bench(model=NO, acp__claude=CLAUDE), fallback=("acp:claude",)).check(PROSE)
    assert info.consent_text == "Claude Code; network: api.anthropic.com for it alone"


def test_what_is_free_is_estimated_at_nothing_all_else_by_its_history_then_the_setting():
    bench = Bench(flow=FREE, model=YES)
    made = launcher(bench)
    assert made.check(FLOW).estimate == 0
    assert made.check(PROSE).estimate == 50_000
    bench.usual = {"model": 120_000, "flow": 7}
    assert (made.check(FLOW).estimate, made.check(PROSE).estimate) == (0, 120_000)
    bench.says["model"] = FREE
    assert made.check(PROSE).estimate == 0, "a model on this machine, whatever others cost before"


def test_without_a_sandbox_the_card_says_what_cannot_be_undone():
    assert "cannot be undone" in launcher(Bench(confines=False, model=YES)).check(PROSE).undo_note
    assert "cannot be undone" not in launcher(Bench(model=YES)).check(PROSE).undo_note


# Which model does it: what the operator named is never replaced, and whoever is missing is named with the way in.


class Ring:
    """Keys by name; a name with "!" before it lies in a file that others can read."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def get(self, name: str) -> Key | None:
        if f"!{name}" in self.names:
            raise Refusal("loose_keys", "keys.json can be read by others", "chmod 600 'keys.json'")
        return Key(name, "environment", "sk-1") if name in self.names else None


def router(
    *keys: str,
    config: str = "",
    models: Mapping[str, str] | None = None,
    hint: str = "",
    settings: Settings | None = None,
) -> ModelRouter:
    read = settings or read_settings(config, file="config.toml", environment={})
    return ModelRouter(
        FixedSettings(read),
        Ring(*keys),
        models=lambda agent: models or {},
        hints=lambda agent, channel, *_: (hint, f"it did well on {channel}") if hint else None,
    )


def chosen(model_router: ModelRouter, run_kind: str = "task") -> str:
    return model_router.choose("backend_builder", "koji-core", run_kind, "explain").id


CHANNEL = '[channels.koji-core]\nmodel = "anthropic:claude-opus-5-5"\n'
TOOLS = {"default": "openai:gpt-6-luna", "heal": "openai:gpt-6-sol"}


def test_the_order_hint_run_kind_default_channel_first_provider():
    keys = ("openai", "anthropic")
    assert chosen(router(*keys)) == f"openai:{PROVIDERS['openai'].model}"
    assert chosen(router("anthropic")) == f"anthropic:{PROVIDERS['anthropic'].model}"
    assert chosen(router(*keys, config=CHANNEL)) == "anthropic:claude-opus-5-5"
    assert chosen(router(*keys, config=CHANNEL, models=TOOLS)) == "openai:gpt-6-luna"
    assert chosen(router(*keys, config=CHANNEL, models=TOOLS), "heal") == "openai:gpt-6-sol"
    assert chosen(router(*keys, config=CHANNEL, models=TOOLS, hint="openai:gpt-6.1-sol")) == "openai:gpt-6.1-sol"


def test_a_choice_says_where_it_goes_and_why():
    choice = router("openai", config=CHANNEL.replace("anthropic:claude-opus-5-5", "openai:gpt-6-sol")).choose(
        "a", "koji-core"
    )
    assert (choice.base_url, choice.host, choice.kind) == (
        "https://api.openai.com/v1",
        "api.openai.com",
        ProviderKind.OPENAI,
    )
    assert choice.reason == "channel koji-core names it"


def test_providers_that_the_settings_name_come_before_the_others():
    local = '[providers.ollama]\nmodel = "qwen3-coder:30b"\n'
    assert chosen(router("openai", config=local)) == "ollama:qwen3-coder:30b"
    assert chosen(router("openai")).startswith("openai:"), "nobody said that ollama runs here"


def test_a_provider_without_a_model_is_passed_over():
    assert chosen(router("openai", config="[providers.ollama]\n")).startswith("openai:")
    with pytest.raises(Refusal, match=r"ollama is available.*providers\.ollama\.model"):
        chosen(router(config="[providers.ollama]\n"))


@pytest.mark.parametrize(
    ("config", "models"),
    [
        ('[channels.koji-core]\nmodel = "ollama:qwen3"\n', {}),
        ("", {"default": "ollama:qwen3"}),
        ("", {"task": "anthropic:claude-sonnet-5-5"}),
        ("", {"task": "nobody:x"}),
        ("", {"task": "gpt"}),
    ],
)
def test_what_the_operator_named_is_never_replaced(config: str, models: dict[str, str]):
    with pytest.raises(Refusal) as caught:
        chosen(router("openai", config=config, models=models))
    assert caught.value.code == "no_model"
    assert caught.value.fix


def test_a_hint_that_cannot_be_followed_is_passed_over():
    assert chosen(router("openai", hint="anthropic:claude-opus-5-5")).startswith("openai:")
    assert chosen(router("openai", hint="rubbish")).startswith("openai:")


def test_a_hint_takes_no_work_from_a_model_on_this_machine_to_one_elsewhere():
    config = '[providers.ollama]\nmodel = "qwen3"\n'
    local = {"default": "ollama:qwen3"}
    assert chosen(router("openai", config=config, models=local, hint="openai:gpt-6-luna")) == "ollama:qwen3"
    assert chosen(router("openai", config=config, models=local, hint="ollama:qwen3-small")) == "ollama:qwen3-small"
    assert chosen(router("openai", config=config, models=TOOLS, hint="ollama:qwen3-small")) == "ollama:qwen3-small"


def test_without_any_provider_the_way_in_is_told():
    with pytest.raises(Refusal) as caught:
        chosen(router())
    assert caught.value.code == "no_model"
    assert "clawpy key set openai" in caught.value.fix
    assert "providers.ollama.model" in caught.value.fix


def test_a_named_provider_without_a_key_tells_how_to_give_it_one():
    with pytest.raises(Refusal) as caught:
        chosen(router(config=CHANNEL))
    assert "CLAWPY_ANTHROPIC_API_KEY" in caught.value.fix
    assert "channel koji-core names it" in caught.value.message


def test_keys_that_must_not_be_used_make_no_provider_usable():
    model_router = router("!openai")
    state = model_router.provider("openai")
    assert not state.usable
    assert "chmod 600" in state.problem
    with pytest.raises(Refusal, match="others"):
        chosen(model_router)


def test_states_of_providers():
    model_router = router(
        "openai", config='[providers.box]\nkind = "openai"\nbaseUrl = "http://box:1/v1"\nkeyless = true\n'
    )
    states = {state.name: (state.usable, state.source, state.is_configured) for state in model_router.providers()}
    assert states == {
        "box": (True, "keyless", True), "openai": (True, "environment", False), "anthropic": (False, "", False),
        "together": (False, "", False), "ollama": (False, "", False),
    }  # fmt: skip


def test_an_agent_that_is_broken_has_no_model():
    def models(agent: str) -> Mapping[str, str]:
        raise Refusal("broken_agent", "tools.json: bad", "fix it")

    with pytest.raises(Refusal, match=r"tools\.json"):
        ModelRouter(FixedSettings(), Ring("openai"), models=models).choose("a", "koji-core")
