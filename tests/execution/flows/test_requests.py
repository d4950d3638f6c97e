"""How a prompt names a flow, and how its parameters are written (SPEC 9.2)."""

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from engine.execution.runners.flow import RepoPath
from engine.execution.runners.flows import FLOWS, edit_parameters, find_named_flow, find_similar_flow
from engine.model import Refusal
from tests.execution.session_world import RerunTests
from tests.support import read_table
from tests.support.checks import refused

TABLE = read_table(__file__)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A workspace with some files."""
    for name in ("shop/tax.py", "shop/a b.py", "tests/test_tax.py", "a-b_c.py", "-odd.py", "Makefile"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


@pytest.mark.parametrize("prompt, flow", TABLE["similar"])
def test_a_prompt_that_is_nearly_the_name_of_a_flow_is_similar_to_it(prompt: str, flow: str):
    assert find_similar_flow(prompt, FLOWS) == flow


@pytest.mark.parametrize("prompt, flow, values", TABLE["named"])
def test_a_request_may_name_its_files(workspace: Path, prompt: str, flow: str, values: dict[str, list[str]]):
    result = find_named_flow(prompt, FLOWS, str(workspace))
    assert (result[0], json.loads(result[1])) == (flow, values)


@pytest.mark.parametrize("prompt", TABLE["not_named"])
def test_a_request_about_what_is_no_file_and_no_test_names_no_flow(workspace: Path, prompt: str):
    assert find_named_flow(prompt, FLOWS, str(workspace)) is None


CURRENT = {"tests": ["a"], "times": 20}
"""The parameters before an edit."""


@pytest.mark.parametrize("edit, expected", TABLE["edits"])
def test_an_edit_changes_the_named_parameters(edit: str, expected: dict[str, Any]):
    assert edit_parameters(RerunTests, CURRENT, edit).model_dump() == {**CURRENT, "note": "", **expected}


@pytest.mark.parametrize("edit", TABLE["refused_edits"])
def test_a_refused_edit_names_what_is_accepted(edit: str):
    refusal = refused("bad_parameters", lambda: edit_parameters(RerunTests, CURRENT, edit))
    for name in ("tests: list (test ids)", "times: int = 20", "note: text"):
        assert name in refusal.fix


@given(st.text(max_size=60))
def test_any_edit_is_accepted_or_refused(edit: str):
    with contextlib.suppress(Refusal):
        assert edit_parameters(RerunTests, CURRENT, edit)


@pytest.mark.parametrize("path, taken_as", TABLE["awkward_paths"])
def test_a_path_in_the_repository_cannot_become_absolute_or_an_option(path: str, taken_as: str):
    assert TypeAdapter(RepoPath).validate_python(path) == taken_as
