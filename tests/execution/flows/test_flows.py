"""What holds for every flow: its parameters are described, checked and no commands, its texts sanitised (SPEC 3.5,
11.2)."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from engine.execution.runners import Place, WorkFailed
from engine.execution.runners.flow import Flow, FlowResult, Job
from engine.execution.runners.flows import FLOWS
from engine.git import Git
from tests.execution.flows.flow_run import ProcessSession
from tests.support import read_table

SHA = "0123456789abcdef0123456789abcdef01234567"

EXAMPLES = read_table(__file__)


def test_every_flow_is_described():
    assert FLOWS.keys() == EXAMPLES.keys()


@pytest.mark.parametrize("name", list(EXAMPLES))
def test_a_flow_describes_its_parameters(name: str):
    flow, example = FLOWS[name], EXAMPLES[name]
    request = flow(**example["parameters"])
    assert request.describe() == example["words"]
    assert flow(**request.model_dump(mode="json")) == request
    assert all(field.description for field in flow.model_fields.values())


@pytest.mark.parametrize("flow", [flow for flow in FLOWS.values() if flow.place is Place.ENGINE], ids=lambda f: f.name)
def test_a_flow_that_changes_files_of_the_engine_says_what_it_changes_and_what_undoes_it(flow: type[Flow]):
    assert flow.changes
    assert flow.undo_note


def test_names_are_data_and_what_may_run_is_not():
    """The content filter judges the parameters that are not data."""
    texts = {
        (name, field)
        for name, flow in FLOWS.items()
        for field, value in flow(**EXAMPLES[name]["parameters"]).model_dump(mode="json").items()
        if field not in flow.find_data_parameters() and isinstance(value, str | list)
    }
    assert texts == {
        ("apply_fix", "patch"),
        ("look_for_leftovers", "today"),
        ("prepare_environment", "command"),
        ("quarantine", "why"),  # it is written into the file
        ("summarise_day", "since"),
        ("unfinished_operation", "operation"),
        ("update_lock", "command"),
        ("write_agents_md", "lessons"),
    }


@pytest.mark.parametrize("word", ["--output=x", "-x", "", " ", "a\nb", "a\x00b", " a"])
def test_a_revision_cannot_be_an_option(word: str):
    for name, parameters in (
        ("rehearse_merge", {"source": word, "target": "main"}),
        ("review_unpushed", {"upstream": word}),
        ("bisect", {"test": word, "good": SHA}),
        ("hunt_flakes", {"tests": [word]}),
    ):
        with pytest.raises(ValidationError):
            FLOWS[name](**parameters)


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../../x", "", "a\nb"])
def test_a_path_cannot_leave_the_repository(path: str):
    for name in ("run_tests", "lint", "fix_lint"):
        with pytest.raises(ValidationError):
            FLOWS[name].model_validate({"paths": [path]})


def test_text_of_a_repository_is_sanitised_where_it_leaves_a_flow(tmp_path: Path):
    result = FlowResult("Reverts \x1b[31mevil\nname", facts={"files": ["a\x07.py"], "caf\udce9.py": ("\u202eb", 1)})
    assert result.summary == "Reverts evil name"
    assert result.facts == {"files": ["a.py"], "caf\ufffd.py": ["b", 1]}
    assert WorkFailed("no \x1b[31mfile\nhere", "look").message == "no file here"
    session = ProcessSession(tmp_path)
    Job(workspace=tmp_path, folder=tmp_path, git=Git(tmp_path), session=session).say("  a  evil\nname\x07")
    assert session.lines == ["  a  evil name"]
