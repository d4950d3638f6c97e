"""Verbs as a person types them: text, JSON, exit codes (SPEC 9.8)."""

import io
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from clawpy_console.cli.main import choose_approve_exit_code, main
from clawpy_console.cli.verbs import VERBS
from engine.clock import FakeClock
from engine.home import Home
from engine.safety.stop_file import get_stop_file, is_requested
from tests.api.stand_in import StandIn, request_permission
from tests.cli.conftest import Clawpy
from tests.conftest import Repository
from tests.support.helpers import assert_contains

VERB_OUTPUTS = {
    "cards": ("pred_abc1  72% check  shop → koji-core  SUGGESTED\n    Run the tests\n    3 modules changed\n",),
    "approve abc": ("pred_abc1  approved  shop → koji-core", "sess_aaa  finished", "  │ line 3", "waiting  1 file"),
    "land chg_x1": ("chg_x1  landed",),
    "dismiss abc": ("dismissed",),
    "snooze abc --for 30m": ("pred_abc1",),
    "work chg_x1 --diff": ("modified a.py\n@@ -1 +1 @@  hunk 1\n+x\n@@ -9 +9 @@  hunk 3\n+y",),
    "status": ("● WATCHING since", "hour $0.15/2  day $1.20/20  month $9.00/200"),
    "status --format short": ("🔮 2\n",),
    "agents list": ("\n4        backend_builder", "← koji-core", "\ncoding agents\nNone is installed here."),
    "agents show cto": ("# Chief technology officer",),
}
"""Command lines, each with what it prints."""


@pytest.mark.parametrize("words", VERB_OUTPUTS)
def test_a_verb_prints_what_it_did(clawpy: Clawpy, engines: list[StandIn], monkeypatch: pytest.MonkeyPatch, words: str):
    result = clawpy(*words.split())
    assert_contains(result.out, *VERB_OUTPUTS[words])
    assert result.code == 0
    assert "\x1b" not in result.out, "no colour into a pipe"
    assert engines[0].closed


def test_the_current_repository_is_the_workspace(
    clawpy: Clawpy, engines: list[StandIn], shop: Repository, monkeypatch: pytest.MonkeyPatch
):
    (shop.path / "deep").mkdir()
    monkeypatch.chdir(shop.path / "deep")
    clawpy("predict")
    assert engines[0].workspaces == [str(shop.path)]


@pytest.mark.parametrize(
    "words, argument",
    [
        (["approve", ""], "id"),
        (["work", ""], "id"),  # it must not list everything
        (["config", "set", "", ""], "key"),
    ],
)
def test_an_empty_name_is_refused(clawpy: Clawpy, engines: list[StandIn], words: list[str], argument: str):
    result = clawpy(*words)
    assert (result.code, f"the argument {argument}: it is missing or empty" in result.err) == (2, True)


def test_sessions_of_other_repositories_are_counted_and_named(
    clawpy: Clawpy, engines: list[StandIn], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shop: Repository
):
    monkeypatch.chdir(Repository(tmp_path / "other").path)
    result = clawpy("work")
    assert (
        result.out
        == f"Nothing has run here; 1 session in {shop.path}.\n  `clawpy --workspace {shop.path} work` shows them\n"
    )
    assert clawpy("work", "--json").document["elsewhere"] == {str(shop.path): 1}
    assert f"landed  1 file  in {shop.path}\n" in clawpy("land", "chg_x1").out
    branched = clawpy("branch", "chg_x1").out
    assert "The commit is not signed, and no hooks ran." in branched
    assert "Nothing changed yet. Add `--yes`" in clawpy("discard", "chg_x1").out
    assert f"discarded  1 file  in {shop.path}\n" in clawpy("discard", "chg_x1", "--yes").out


def test_stop_works_with_no_engine_and_anywhere(
    clawpy: Clawpy, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    result = clawpy("stop", "looking", "into", "it")
    assert result.code == 0
    assert "clawpy resume" in result.out
    assert is_requested(get_stop_file(home.data))
    assert json.loads(get_stop_file(home.data).read_text())["reason"] == "looking into it"


@pytest.mark.usefixtures("engines")
def test_an_agent_is_added_retired_and_restored(clawpy: Clawpy):
    assert "cto (2) → ceo (1) → owner" in clawpy("agents", "add", "tester", "--to", "cto", "--domain", "tests").out
    assert clawpy("agents", "retire", "researcher").code == 1
    assert "Retired: it runs nothing. Its folder is kept." in clawpy("agents", "retire", "tester").out
    assert "retired: tester; `clawpy agents restore` restores one" in clawpy("agents", "list").out
    assert "cto (2) → ceo (1) → owner" in clawpy("agents", "restore", "tester").out
    assert "retired" not in clawpy("agents", "list").out


def test_a_permission_is_listed_with_its_detail_and_answered_once(
    clawpy: Clawpy, engines: list[StandIn], home: Home, clock: FakeClock
):
    assert clawpy("permissions").out == "No permission requests.\n"
    engine = StandIn(home, clock)
    request_permission(engine, "perm_a1")
    engine.close()
    result = clawpy("permissions", "list").out
    assert result.startswith("perm_a1  waits 1m  builder  push\n")
    assert "    │ git push\n" in result
    assert "deny-session" in clawpy("permissions", "deny", "a1", "--session").out
    assert clawpy("permissions", "allow", "a1").code == 1
    assert clawpy("permissions", "list", "--all", "--json").document["permissions"][0]["answer"] == "deny-session"


def test_a_task_is_added_listed_and_done(clawpy: Clawpy, engines: list[StandIn], shop: Repository):
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
    assert is_requested(get_stop_file(Home.locate(tmp_path / "elsewhere").data))


@pytest.mark.parametrize(
    "document, code",
    [
        ({"session": {"result": "succeeded"}}, 0),
        ({"session": {"result": "failed"}}, 1),
        ({"session": {"result": "cannot_run"}}, 3),
        ({"session": None, "prediction": {"status": "pending", "note": "not done"}}, 1),
    ],
)
def test_the_exit_code_of_approve_is_that_of_its_session(document: dict[str, Any], code: int):
    assert choose_approve_exit_code(document) == code


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


@pytest.mark.long
def test_do_not_disturb_lasts_for_its_span(clawpy: Clawpy, project: Path):
    until = clawpy("dnd", "--for", "90m", "--json").document["dndUntil"]
    remaining = datetime.fromisoformat(until) - datetime.now(UTC)
    assert timedelta(minutes=89) < remaining <= timedelta(minutes=90)
    status = clawpy("status", "--json").document
    assert (status["dndUntil"], status["quiet"]) == (until, True)
    assert "do not disturb until" in clawpy("dnd").out
    assert "do not disturb until" in clawpy("status").out
    assert clawpy("dnd", "off", "--json").document["dndUntil"] is None


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
