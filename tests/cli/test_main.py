"""Verbs as a person types them: text, JSON, exit codes (SPEC 9.8)."""

import io
import json
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from clawpy_console.cli.main import choose_approve_exit_code, main
from clawpy_console.cli.verbs import VERBS
from engine.execution.permissions import PermissionRow
from engine.home import Home
from engine.safety import get_stop_file, is_stop_requested
from tests.cli.calls import Clawpy
from tests.support import read_table
from tests.support.checks import assert_contains
from tests.support.engines import open_idle_engine
from tests.support.repository import Repository

TABLE = read_table(__file__)


def test_the_current_repository_is_the_workspace(clawpy: Clawpy, shop: Repository, monkeypatch: pytest.MonkeyPatch):
    (shop.path / "deep").mkdir()
    monkeypatch.chdir(shop.path / "deep")
    assert clawpy("predict", "--json").document["predictions"][0]["workspace"] == str(shop.path)


def test_without_cards_what_is_known_of_the_workspace_is_named(clawpy: Clawpy, repository: Repository):
    for verb, place in [("predict", f"! {repository.path}"), ("cards", f"  problem  {repository.path.name}")]:
        assert f"{place}: no commit yet;" in clawpy(verb, f"--workspace={repository.path}").out


@pytest.mark.parametrize("words, argument", TABLE["empty_names"])
def test_an_empty_name_is_refused(clawpy: Clawpy, shop: Repository, words: list[str], argument: str):
    result = clawpy(*words)
    assert (result.code, f"the argument {argument}: it is missing or empty" in result.err) == (2, True)


def test_stop_works_with_no_engine_and_anywhere(
    clawpy: Clawpy, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    result = clawpy("stop", "looking", "into", "it")
    assert result.code == 0
    assert "clawpy resume" in result.out
    assert is_stop_requested(get_stop_file(home.data))
    assert json.loads(get_stop_file(home.data).read_text())["reason"] == "looking into it"


@pytest.mark.usefixtures("shop")
def test_an_agent_is_added_retired_and_restored(clawpy: Clawpy):
    assert "cto (2) → ceo (1) → owner" in clawpy("agents", "add", "tester", "--to", "cto", "--domain", "tests").out
    assert clawpy("agents", "retire", "researcher").code == 1
    assert "Retired: it runs nothing. Its folder is kept." in clawpy("agents", "retire", "tester").out
    assert "retired: tester; `clawpy agents restore` restores one" in clawpy("agents", "list").out
    assert "cto (2) → ceo (1) → owner" in clawpy("agents", "restore", "tester").out
    listed = clawpy("agents", "list").out
    assert "retired" not in listed
    assert_contains(listed, "\n4        backend_builder", "← koji-core", "\ncoding agents\n")
    assert "# Chief technology officer" in clawpy("agents", "show", "cto").out


def test_a_permission_is_listed_with_its_detail_and_answered_once(clawpy: Clawpy, home: Home, shop: Repository):
    assert clawpy("permissions").out == "No permission requests.\n"
    with closing(open_idle_engine(home, shop.path)) as engine:
        row = PermissionRow(
            id="perm_a1", session_id="sess_aaa", agent="builder", workspace="/srv/shop", tool="exec", title="push",
            detail="git push", reason="sends to the outside", key="exec:git push", state="waiting",
            asked_at=engine.clock.now() - timedelta(minutes=1),
        )  # fmt: skip
        engine.database.write(lambda tx: tx.session.add(row))
        result = clawpy("permissions", "list").out
        assert result.startswith("perm_a1  waits 1m  builder  push\n")
        assert "    │ git push\n" in result
        assert "deny-session" in clawpy("permissions", "deny", "a1", "--session").out
        assert clawpy("permissions", "allow", "a1").code == 1
    assert clawpy("permissions", "list", "--all", "--json").document["permissions"][0]["answer"] == "deny-session"


def test_a_task_is_added_listed_and_done(clawpy: Clawpy, shop: Repository):
    task = clawpy("tasks", "add", "cart", "rounding", "--json").document["task"]
    assert (task["title"], task["workspace"]) == ("cart rounding", str(shop.path))
    assert clawpy("tasks", "list").out == f"○ open     {task['id']}  cart rounding\n"
    assert "✓ done" in clawpy("tasks", "done", task["id"]).out
    assert clawpy("tasks", "list", "--state", "open").out == "No tasks.\n"


def test_a_setting_is_set_and_read(clawpy: Clawpy, home: Home):
    assert clawpy("config", "set", "quietHoursStart", "22").out.startswith("quietHoursStart = 22\n")
    assert home.config_file.read_text() == "quietHoursStart = 22\n"
    assert clawpy("config", "get", "quietHoursStart", "--json").document["origin"] == str(home.config_file)
    everything = clawpy("config", "get").out
    assert "crossPollEnabled = true\n" in everything
    assert 'channels.koji-core.agent = "backend_builder"\n' in everything
    assert clawpy("config").out == everything
    assert clawpy("config", "--json").document["settings"]["quietHoursStart"] == 22
    assert clawpy("config", "set", "memory.embedder", "").code == 0, "this text may be empty"


@pytest.mark.parametrize(
    "value, words",
    [("25", "expected a whole number from 0 to 23"), ("", 'quietHoursStart: "" is not accepted')],
    ids=["too late", "empty"],
)
def test_a_value_that_a_setting_does_not_take_is_refused_with_what_is_expected(clawpy: Clawpy, value: str, words: str):
    result = clawpy("config", "set", "quietHoursStart", value)
    assert result.code == 1
    assert words in result.err


def test_clawpy_home_names_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CLAWPY_HOME", str(tmp_path / "elsewhere"))
    assert main(["stop"]) == 0
    assert is_stop_requested(get_stop_file(Home.locate(tmp_path / "elsewhere").data))


@pytest.mark.parametrize("document, code", TABLE["approved"])
def test_the_exit_code_of_approve_is_that_of_its_session(document: dict[str, Any], code: int):
    assert choose_approve_exit_code({"session": None} | document) == code


# With a real engine


def read_ids_by_flow(clawpy: Clawpy) -> dict[str, str]:
    """The ids of the cards that are predicted, by their flows."""
    return {prediction["flow"]: prediction["id"] for prediction in clawpy("predict", "--json").document["predictions"]}


@pytest.mark.long
def test_a_mute_is_listed_with_its_reason_and_removed(clawpy: Clawpy, project: Path):
    assert clawpy("muted").out == "Nothing is muted.\n"
    card = read_ids_by_flow(clawpy)["forecast_conflicts"]
    assert clawpy("dismiss", card, "--reason", "wrong").code == 0
    assert "forecast_conflicts" not in read_ids_by_flow(clawpy)
    [mute] = clawpy("muted", "--json").document["muted"]
    assert (mute["kind"], mute["reason"], mute["prediction"]) == ("forecast_conflicts", "wrong", card)
    assert "dismissed once, most recently as “wrong”" in clawpy("muted").out
    assert "unmuted" in clawpy("muted", "unmute", mute["id"].removeprefix("mute_")[:6]).out
    assert "forecast_conflicts" in read_ids_by_flow(clawpy)


WRONG_COMMAND_LINES = [
    [name, *words, "--bogus"] for name, verb in VERBS.items() for words in ([], *([action] for action in verb.actions))
]
WRONG_COMMAND_LINES += [
    line.split()
    for line in (
        "", "no-such-verb", "approve", "--home", "dnd --off --for 2h", "snooze x --for soon", "agents add x",
        "comment x nowhere", "check --prompt x --batch y",
    )
]  # fmt: skip


@pytest.mark.parametrize("words", WRONG_COMMAND_LINES, ids=" ".join)
def test_a_wrong_command_line_is_a_json_error_where_json_is_asked_for_and_else_text(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert main(["--json", *words]) == 2
    out, err = capsys.readouterr()
    assert json.loads(out)["error"]["code"] == "bad_arguments"
    assert err == ""
    assert "NEVER" not in out, "that is no argument for anyone"
    assert main(words) == (2 if words else 1), "without words it would be the console"
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("clawpy")
