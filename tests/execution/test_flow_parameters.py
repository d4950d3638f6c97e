"""Parameters of flows as text: edits are accepted, or refused with what is accepted (SPEC 9.2)."""

import contextlib
import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.execution.runners.flow_runner import (
    PROSE,
    edit_parameters,
    find_named_flow,
    find_similar_flow,
    validate_parameters,
)
from engine.execution.runners.flows import FLOWS
from engine.execution.runners.flows.tooling import PrepareEnvironment
from engine.model import Refusal
from tests.execution.session_world import RerunTests
from tests.support.helpers import read_table, refused

TABLE = read_table(__file__)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A workspace with some files."""
    for name in ("shop/tax.py", "shop/a b.py", "tests/test_tax.py", "a-b_c.py", "-odd.py", "Makefile"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


def test_missing_parameters_are_named_with_their_meaning():
    refusal = refused("bad_parameters", lambda: validate_parameters(FLOWS["bisect"], {}))
    assert refusal.message == "bisect needs test and good"
    assert "test: text (id of the test that fails, as its tool names it); good: text (a commit at" in refusal.fix


@pytest.mark.parametrize(
    "prompt, flow",
    TABLE["similar"],
)  # fmt: skip
def test_a_prompt_that_is_nearly_the_name_of_a_flow_is_similar_to_it(prompt: str, flow: str):
    assert find_similar_flow(prompt, FLOWS) == flow


@pytest.mark.parametrize(
    "prompt, flow, values",
    TABLE["named"],
)
def test_a_request_may_name_its_files(workspace: Path, prompt: str, flow: str, values: dict[str, list[str]]):
    result = find_named_flow(prompt, FLOWS, str(workspace))
    assert (result[0], json.loads(result[1])) == (flow, values)


@pytest.mark.parametrize(
    "prompt",
    TABLE["not_named"],
)  # fmt: skip
def test_a_request_about_what_is_no_file_and_no_test_names_no_flow(workspace: Path, prompt: str):
    assert find_named_flow(prompt, FLOWS, str(workspace)) is None


@pytest.mark.parametrize("name", ["prepare_environment", "review_unpushed", "reclaim_space", "update_lock"])
def test_the_title_of_a_flow_in_the_list_of_the_prompt_box_names_it(workspace: Path, name: str):
    assert find_named_flow(FLOWS[name].label, FLOWS, str(workspace)) == (name, "")


def test_the_title_of_named_tests_does_not_claim_that_they_ran_before(workspace: Path):
    flow, parameters = find_named_flow("run tests/test_tax.py", FLOWS, str(workspace)) or ("", "")
    assert FLOWS[flow](**json.loads(parameters)).describe() == "Run tests/test_tax.py"


@pytest.mark.parametrize(
    "prompt, flow", [("test_shop", "test_shop"), ("Test shop", "test_shop"), ("lint-shop", "lint-shop")]
)
def test_the_name_of_a_flow_precedes_a_request(workspace: Path, prompt: str, flow: str):
    assert find_named_flow(prompt, [*FLOWS, "test_shop", "lint-shop"], str(workspace)) == (flow, "")


@pytest.mark.parametrize("between", [" the" * 4990 + " ", " " * 19_000], ids=["fillers", "spaces"])
def test_a_long_prompt_is_soon_found_to_name_no_flow(workspace: Path, between: str):
    begun = time.process_time()
    assert find_named_flow(f"test{between}x\ny", FLOWS, str(workspace)) is None
    assert time.process_time() - begun < 0.5


CURRENT = {"tests": ["a"], "times": 20}
"""The parameters before an edit."""


@pytest.mark.parametrize(
    "edit, expected",
    TABLE["edits"],
)
def test_an_edit_changes_the_named_parameters(edit: str, expected: dict[str, Any]):
    assert edit_parameters(RerunTests, CURRENT, edit).model_dump() == {**CURRENT, "note": "", **expected}


@pytest.mark.parametrize(
    "edit",
    ["", "   ", "often=3", "often=3 please", "times=3 often=4", "times=0", "times=501", '{"times": }', "[1]",
     '{"often": 1}', "tests", "times=3.5"],
)  # fmt: skip
def test_a_refused_edit_names_what_is_accepted(edit: str):
    refusal = refused("bad_parameters", lambda: edit_parameters(RerunTests, CURRENT, edit))
    for name in ("tests: list (test ids)", "times: int = 20", "note: text"):
        assert name in refusal.fix


@pytest.mark.parametrize("edit", ["run it more often", "only the cart: nothing else", "say why it is red"])
def test_a_sentence_is_no_mistyped_parameter(edit: str):
    refusal = refused(PROSE, lambda: edit_parameters(RerunTests, CURRENT, edit))
    assert "is not a parameter" not in str(refusal)


@given(st.text(max_size=60))
def test_any_edit_is_accepted_or_refused(edit: str):
    with contextlib.suppress(Refusal):
        assert edit_parameters(RerunTests, CURRENT, edit)


@pytest.mark.parametrize(
    "text, tests",
    [
        ('"a b.py"', ["a b.py"]),
        ("'a, b.py', c.py", ["a, b.py", "c.py"]),
        ('"a.py" b"c d".py', ["a.py", 'b"c', 'd".py']),
        ('"a.py, b.py', ['"a.py', "b.py"]),
    ],
)
def test_items_of_a_list_may_stand_in_quotes(text: str, tests: list[str]):
    assert edit_parameters(RerunTests, CURRENT, f"tests={text}").model_dump()["tests"] == tests


@pytest.mark.parametrize(
    "edit, commands",
    [
        ("command=npm install, project=web", ["npm install"]),
        ("command='npm ci' \"npm run x\"", ["npm ci", "npm run x"]),
        ('command=["npm install"]', ["npm install"]),
    ],
)
def test_a_command_without_quotes_is_one_item(edit: str, commands: list[str]):
    flow = edit_parameters(PrepareEnvironment, {}, edit)
    assert isinstance(flow, PrepareEnvironment)
    assert flow.command == commands
