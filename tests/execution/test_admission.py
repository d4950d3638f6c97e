"""Admission: the runner that an assignment gets, fallbacks, edits in prose, estimates (SPEC 3.4, 3.8)."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from engine.clock import SystemClock
from engine.config.settings import ChannelSettings, FixedSettings, Settings
from engine.execution.runners.flows import PROSE as PROSE_EDIT
from engine.execution.session_run import Admission
from engine.model import Assignment, Refusal, RunnerInfo
from tests.execution.session_world import make_rails
from tests.support.checks import refused

PROSE = Assignment("explain the cart", "koji-core", "/w", "auto")

Answer = RunnerInfo | Refusal


class StandInRunner:
    """A family of runners that answers by the name of a runner. Flows accept a text without a space as parameters, and
    refuse them."""

    def __init__(self, family: str, answers: Mapping[str, Answer]):
        self.name = family
        self._answers = answers

    def check(self, assignment: Assignment) -> RunnerInfo:
        answer = self._answers.get(assignment.runner, Refusal("no_runner", f"there is no runner {assignment.runner!r}"))
        if isinstance(answer, Refusal):
            raise answer
        return answer

    def apply_edit(self, assignment: Assignment, edit: str) -> Assignment:
        code = PROSE_EDIT if " " in edit else "bad_parameters"
        raise Refusal(code, "run_tests takes parameters", "`run_tests paths=…`")


def make_admission(
    answers: Mapping[str, Answer], usual_costs: Mapping[str, int] | None = None, **channel: Any
) -> Admission:
    """Admission with runners that answer `answers`, and an earlier cost by the name of a runner. `channel` are the
    settings of the channel of `PROSE`; Claude Code serves another."""
    channels = {"koji-core": ChannelSettings(agent="builder", **channel)}
    channels["research"] = ChannelSettings(agent="researcher", runner="acp:claude")
    sandbox = SimpleNamespace(confines=True, describe=lambda network, hosts: "", find_hosts_problem=lambda hosts: "")
    families = {f"{name.partition(':')[0]}:*" if ":" in name else name for name in answers}
    return Admission(
        SystemClock(),
        FixedSettings(Settings(channels=channels)),
        make_rails(sandbox=sandbox),
        {family: StandInRunner(family, answers) for family in families},
        lambda runner, channel: (usual_costs or {}).get(runner),
    )


FLOW = replace(PROSE, flow="run_tests")


MODEL = RunnerInfo(available=True, executor="openai:gpt", hosts=("api.openai.com",))
CLAUDE = RunnerInfo(available=True, executor="Claude Code", hosts=("api.anthropic.com",))
FREE = RunnerInfo(available=True, is_free=True)
NO_KEY = RunnerInfo(available=False, reason="no provider has a key")
NO_CLAUDE = Refusal("no_runner", "Claude Code is not there", "install it")


CHOICES = {
    "a flow": (FLOW, {"flow": FREE, "model": MODEL}, {}, "flow"),
    "prose": (PROSE, {"model": MODEL, "acp:claude": CLAUDE}, {}, "model"),
    "channel": (PROSE, {"model": MODEL, "acp:claude": CLAUDE}, {"runner": "acp:claude"}, "acp:claude"),
    "an agent that nobody named": (PROSE, {"model": NO_KEY, "acp:claude": CLAUDE}, {}, "auto"),
}
"""An assignment, what the runners answer, the settings of its channel, and the runner that it gets."""


@pytest.mark.parametrize("assignment, answers, channel, runner", CHOICES.values(), ids=CHOICES)
def test_auto_becomes_a_flow_or_the_runner_of_the_channel_or_a_model(
    assignment: Assignment, answers: dict[str, Answer], channel: dict[str, Any], runner: str
):
    assert make_admission(answers, **channel).choose(assignment) == (replace(assignment, runner=runner), "")


def test_without_a_runner_for_prose_the_card_says_how_to_set_one_up():
    assert make_admission({"model": NO_KEY}).check(PROSE).reason == "no provider has a key"
    info = make_admission({"flow": FREE}).check(PROSE)
    assert not info.available
    assert "clawpy key set openai" in info.reason


@pytest.mark.parametrize(
    "claude, reason",
    [({}, "there is no runner"), ({"acp:claude": NO_KEY}, "no provider"), ({"acp:claude": NO_CLAUDE}, "Claude Code")],
    ids=["unknown", "not available", "refused"],
)
def test_a_missing_runner_is_replaced_by_the_first_fallback_that_is_available(claude: dict[str, Answer], reason: str):
    admission = make_admission(
        {"model": MODEL, "acp:gemini": NO_KEY, **claude}, fallback=("acp:gemini", "acp:claude", "model")
    )
    chosen, note = admission.choose(replace(PROSE, runner="acp:claude"))
    assert chosen == replace(PROSE, runner="model")
    assert note.startswith(f"served by openai:gpt: acp:claude cannot ({reason}")


EDITED_FLOW = replace(FLOW, runner="flow", parameters={"paths": ["a"]})
EDIT = "only the part about the cart"


def test_a_flow_that_is_edited_in_prose_becomes_work_for_an_agent_or_model():
    edited = make_admission({"flow": FREE, "model": MODEL}).apply_edit(EDITED_FLOW, EDIT)
    assert edited == replace(PROSE, prompt=EDIT, runner="model")


@pytest.mark.parametrize("model, edit", [(NO_KEY, EDIT), (MODEL, "cart")], ids=["no model", "no sentence"])
def test_an_edit_that_is_neither_parameters_nor_work_for_a_model_is_refused(model: Answer, edit: str):
    admission = make_admission({"flow": FREE, "model": model})
    refusal = refused("bad_parameters", partial(admission.apply_edit, EDITED_FLOW, edit))
    assert refusal.fix == "`run_tests paths=…`"


ESTIMATES = {
    "a flow is free": (FLOW, MODEL, {"flow": 7}, 0),
    "a local model is free": (PROSE, FREE, {"model": 120_000}, 0),
    "the setting before the first session": (PROSE, MODEL, {}, 50_000),
    "the usual cost": (PROSE, MODEL, {"model": 120_000}, 120_000),
}
"""An assignment, what the model answers, the usual costs of runners, and the estimate."""


@pytest.mark.parametrize("assignment, model, usual_costs, estimate", ESTIMATES.values(), ids=ESTIMATES)
def test_the_estimate_is_nothing_or_the_usual_cost_or_the_setting(
    assignment: Assignment, model: RunnerInfo, usual_costs: dict[str, int], estimate: int
):
    admission = make_admission({"flow": FREE, "model": model}, usual_costs)
    assert admission.check(assignment).estimate == estimate


def test_a_channel_that_cannot_do_a_prompt_names_one_that_can():
    info = make_admission({"model": NO_KEY, "acp:claude": CLAUDE}).check(PROSE)
    assert info.reason.endswith("; Claude Code serves research: `clawpy propose --channel research TEXT`")
