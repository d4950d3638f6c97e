"""Who takes an assignment: `auto`, fallbacks, words, estimates (SPEC 3.4, 3.8)."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from engine.config import ChannelSettings, FixedSettings, Settings
from engine.execution.launcher import Launcher
from engine.execution.runners.parameters import PROSE as SENTENCE
from engine.model import Assignment, Refusal, RunnerInfo

PROSE = Assignment("explain the cart", "koji-core", "/w", "auto")
FLOW = replace(PROSE, flow="run_tests")


class Bench:
    """Sessions and their admission, as the launcher asks them: what each runner says, what the like cost before."""

    def __init__(self, confines: bool = True, **says: RunnerInfo | Refusal) -> None:
        self.says: dict[str, RunnerInfo | Refusal] = {name.replace("__", ":"): info for name, info in says.items()}
        self.usual: dict[str, int] = {}
        self.admission = self
        self.sandbox = SimpleNamespace(confines=confines, describe=lambda network, hosts: "a sandbox")

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


def launcher(bench: Bench, **channel: Any) -> Launcher:
    settings = Settings(channels={"koji-core": ChannelSettings(agent="backend_builder", **channel)})
    return Launcher(bench, FixedSettings(settings))  # type: ignore[arg-type]


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
