"""Admission: the runner that an assignment gets, fallbacks, edits in prose, estimates (SPEC 3.4, 3.8)."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from engine.config import ChannelSettings, WorkspaceSettings
from engine.model import Assignment, Refusal, RunnerInfo
from tests.execution.admissions import PROSE, Answer, make_admission
from tests.support.helpers import refused

FLOW = replace(PROSE, flow="run_tests")


MODEL = RunnerInfo(available=True, executor="openai:gpt", hosts=("api.openai.com",))
CLAUDE = RunnerInfo(available=True, executor="Claude Code", hosts=("api.anthropic.com",))
FREE = RunnerInfo(available=True, is_free=True)
INSTALLS = RunnerInfo(available=True, hosts=("registry.npmjs.org",), is_free=True)
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


def test_auto_has_the_fallback_of_its_channel():
    admission = make_admission({"model": NO_KEY, "acp:claude": CLAUDE}, fallback=("acp:claude",))
    chosen, note = admission.choose(PROSE)
    assert (chosen.runner, note) == ("acp:claude", "served by Claude Code: model cannot (no provider has a key)")
    assert admission.check(PROSE).consent_text == "Claude Code; network: api.anthropic.com for it alone"


def test_the_sandbox_names_the_hosts_of_the_workspace_and_of_the_runner():
    admission = make_admission({"model": MODEL}, workspace=WorkspaceSettings(hosts=("localhost:5432",)))
    assert admission.check(replace(PROSE, runner="model")).sandbox == "to localhost:5432, api.openai.com"


def test_a_channel_that_nothing_serves_names_one_that_can_take_the_prompt():
    answers = {"model": NO_KEY, "acp:claude": CLAUDE}
    admission = make_admission(answers, others={"code": ChannelSettings(agent="builder", runner="acp:claude")})
    expected = "no provider has a key; Claude Code serves code: `clawpy propose --channel code TEXT`"
    assert admission.check(PROSE).reason == expected
    assert make_admission(answers).check(PROSE).reason == "no provider has a key"


def test_a_flow_has_no_fallback():
    answers = {"flow": RunnerInfo(available=False, reason="`paths` must be a list"), "model": MODEL}
    admission = make_admission(answers, fallback=("model",))
    assert admission.choose(FLOW) == (FLOW, "")
    assert admission.check(FLOW).reason == "`paths` must be a list"


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


def test_a_flow_that_needs_hosts_says_that_the_sandbox_cannot_filter_them():
    info = make_admission({"flow": INSTALLS, "model": MODEL}).check(FLOW)
    assert (info.available, info.reason) == (
        False,
        "it cannot filter hosts (use another, or run the command in a terminal)",
    )
    assert make_admission({"model": MODEL}).check(PROSE).available, "a model has a process of its own"


@pytest.mark.parametrize("confines", [True, False], ids=["sandbox", "no sandbox"])
def test_a_card_warns_when_no_sandbox_confines_its_commands(confines: bool):
    note = make_admission({"model": MODEL}, confines=confines).check(PROSE).undo_note
    assert ("cannot be undone" in note) is not confines
