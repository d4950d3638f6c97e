"""Verbs as a person types them: text, JSON, exit codes (SPEC 9.8)."""

import io
import itertools
import json
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from clawpy_console.cli import main as cli
from clawpy_console.cli.main import choose_approve_exit_code, main
from clawpy_console.cli.verbs import VERBS
from engine.api.operations import dispatch
from engine.clock import FakeClock
from engine.home import Home
from engine.safety.stop_file import get_stop_file, is_requested
from tests.api.stand_in import StandIn, request_permission
from tests.cli.conftest import Clawpy
from tests.conftest import Repository
from tests.support.helpers import write_settings


def test_cards_are_printed_and_count_as_shown(clawpy: Clawpy, engines: list[StandIn]):
    result = clawpy("cards")
    assert result.code == 0
    assert result.out.startswith(
        "pred_abc1  72% check  shop → koji-core  SUGGESTED\n    Run the tests\n    3 modules changed\n"
    )
    assert "\x1b" not in result.out  # no colour into a pipe
    assert engines[0].cards.shown == ["pred_abc1", "pred_abd2"]
    assert engines[0].closed


def test_the_current_repository_is_the_workspace(
    clawpy: Clawpy, engines: list[StandIn], shop: Repository, monkeypatch: pytest.MonkeyPatch
):
    (shop.path / "deep").mkdir()
    monkeypatch.chdir(shop.path / "deep")
    clawpy("predict")
    assert engines[0].workspaces == [str(shop.path)]


def test_workspaces_of_the_settings_are_added(
    clawpy: Clawpy, engines: list[StandIn], shop: Repository, home: Home, tmp_path: Path
):
    for name in ("other", "silent"):
        (tmp_path / name).mkdir()
    write_settings(
        home,
        f'[workspaces."{tmp_path}/other"]\n[workspaces."{tmp_path}/silent"]\nautonomy = "off"\n[workspaces."/gone"]\n',
    )
    clawpy("predict")
    assert engines[0].workspaces == [str(shop.path), str(tmp_path / "other")]


def test_an_approval_waits_and_prints_card_session_output_and_changes(clawpy: Clawpy, engines: list[StandIn]):
    result = clawpy("approve", "abc")
    assert result.code == 0
    assert "pred_abc1  approved  shop → koji-core" in result.out
    assert "sess_aaa  finished" in result.out
    assert "  │ line 3" in result.out
    assert "chg_x1  waiting  1 file" in result.out
    assert engines[0].sessions.waited == ["sess_aaa"]


@pytest.mark.usefixtures("engines")
def test_a_landing_prints_the_changes_without_the_card(clawpy: Clawpy):
    assert clawpy("land", "chg_x1", "--without", "a.py").code != 0, "no other file is left"
    landed = clawpy("land", "chg_x1").out
    assert "chg_x1  landed" in landed
    assert "pred_abc1" not in landed


@pytest.mark.usefixtures("engines")
def test_a_dismissal_is_printed(clawpy: Clawpy):
    assert "dismissed" in clawpy("dismiss", "abc").out


@pytest.mark.usefixtures("engines")
@pytest.mark.parametrize("is_over", [True, False])
def test_the_end_of_a_snooze_is_printed_until_it_is_over(
    clawpy: Clawpy, monkeypatch: pytest.MonkeyPatch, is_over: bool
):
    monkeypatch.setattr("clawpy_console.cli.printing.work.is_future", lambda time: not is_over)
    assert ("snoozed until" in clawpy("snooze", "abc", "--for", "30m").out) is not is_over


@pytest.mark.usefixtures("engines")
def test_the_diff_of_changes_has_the_hunks_that_are_not_landed(clawpy: Clawpy):
    diff = "modified a.py\n@@ -1 +1 @@  hunk 1\n+x\n@@ -9 +9 @@  hunk 3\n+y"
    assert diff in clawpy("work", "chg_x1", "--diff").out
    assert "changes to land" in clawpy("work").out


@pytest.mark.parametrize(
    "words, argument",
    [
        (["approve", ""], "id"),
        (["work", ""], "id"),  # it must not list everything
        (["config", "get", " "], "key"),
        (["config", "set", "", ""], "key"),
        (["config", "unset", ""], "key"),
        (["key", "set", ""], "name"),
        (["help", ""], "topic"),
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
    assert f"discarded  1 file  in {shop.path}\n" in clawpy("discard", "chg_x1", "--yes").out


def test_the_status_has_a_long_a_short_and_a_json_form(clawpy: Clawpy, engines: list[StandIn]):
    result = clawpy("status")
    assert "● WATCHING since" in result.out
    assert "hour $0.15/2  day $1.20/20  month $9.00/200" in result.out
    assert clawpy("status", "--format", "short").out == "🔮 2\n"
    assert clawpy("status", "--format", "long").out.startswith("🔮 Run the tests · koji-core · 72% · ")
    assert clawpy("status", "--json").document["crossPollStatus"]["totalTriggers"] == 47


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
def test_agents_are_listed_with_their_channels_and_below_them_the_coding_agents(clawpy: Clawpy):
    tree = clawpy("agents", "list").out
    assert "\n4        backend_builder" in tree
    assert "← koji-core" in tree
    assert "\ncoding agents\nNone is installed here. Supported: Claude Code, Codex, " in tree


@pytest.mark.usefixtures("engines")
def test_an_agent_is_shown_with_its_soul(clawpy: Clawpy):
    assert "# Chief technology officer" in clawpy("agents", "show", "cto").out


@pytest.mark.usefixtures("engines")
def test_an_agent_is_added_retired_and_restored(clawpy: Clawpy):
    assert "cto (2) → ceo (1) → owner" in clawpy("agents", "add", "tester", "--to", "cto", "--domain", "tests").out
    assert clawpy("agents", "retire", "researcher").code == 1
    assert "Retired: it runs nothing. Its folder is kept." in clawpy("agents", "retire", "tester").out
    assert "retired: tester; `clawpy agents restore` restores one" in clawpy("agents", "list").out
    assert "cto (2) → ceo (1) → owner" in clawpy("agents", "restore", "tester").out
    assert "retired" not in clawpy("agents", "list").out


def test_an_agent_with_the_id_of_a_retired_one_is_shown_itself(clawpy: Clawpy):
    clawpy("agents", "add", "tester", "--to", "cto")
    clawpy("agents", "retire", "tester")
    assert "coo (2) → ceo (1) → owner" in clawpy("agents", "add", "tester", "--to", "coo").out
    assert "Retired" not in clawpy("agents", "show", "tester").out


def test_agents_below_a_broken_leader_keep_their_place_in_the_tree(clawpy: Clawpy, home: Home):
    clawpy("agents")
    (home.agents / "cto" / "tools.json").write_text('{"x')
    tree = clawpy("agents").out
    assert "\n3      backend_lead " in tree
    assert "\n4        backend_builder " in tree


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


def test_who_waits_for_a_session_is_told_what_it_asks_and_how_to_answer(
    home: Home, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    engine, ended, number_asked = StandIn(home, clock), threading.Event(), itertools.count(1)

    def answer(home: Home, verb: str, **arguments: str) -> dict[str, Any]:
        if verb == "work":
            return {"session": {"id": "sess_aaa"}}
        if next(number_asked) == 3:
            ended.set()
        return dispatch(engine, verb, arguments)

    request_permission(engine, "perm_a1")
    monkeypatch.setattr("engine.ask_running", answer, raising=False)
    monkeypatch.setattr(cli, "PERMISSIONS_INTERVAL_S", 0)
    cli._announce_permissions(home, "pred_a1", ended)
    expected = "builder asks: push: sends to the outside\n  clawpy permissions allow perm_a1  (or: deny)\n"
    assert capsys.readouterr().err == expected


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
        ({"session": {"result": "cancelled"}}, 1),
        ({"session": {"result": "cannot_run"}}, 3),
        ({"session": None}, 0),
        ({"session": None, "prediction": {"status": "pending", "note": "not done"}}, 1),
        ({"session": None, "prediction": {"status": "confirmed"}}, 0),
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
    assert (mute["kind"], mute["reason"], mute["prediction"], mute["workspace"]) == (
        "forecast_conflicts", "wrong", card, str(project),
    )  # fmt: skip
    assert mute["until"] > mute["since"]
    printed = clawpy("muted").out
    assert "dismissed once, most recently as “wrong”" in printed
    assert "`clawpy muted unmute ID` lets its cards appear again" in printed
    unmuted = clawpy("muted", "unmute", mute["id"].removeprefix("mute_")[:6])
    assert unmuted.code == 0
    assert "unmuted" in unmuted.out
    assert clawpy("muted", "--json").document == {"muted": []}
    assert "forecast_conflicts" in read_ids_by_flow(clawpy)


@pytest.mark.long
def test_discarded_work_is_discarded_in_every_list(clawpy: Clawpy, project: Path):
    card = clawpy("propose", "draft_changelog", "--json").document["predictions"][0]["id"]
    assert clawpy("approve", card, "--wait").code == 0
    preview = clawpy("discard", card, "--json")
    assert (preview.code, preview.document["discarded"], preview.document["changeSet"]["state"]) == (
        1,
        False,
        "waiting",
    )
    assert clawpy("discard", card).out.endswith("Nothing changed yet. Add `--yes` to delete the changes.\n")
    discarded = clawpy("discard", card, "--yes", "--json").document
    assert discarded["prediction"]["outcome"] == "discarded"
    assert "is discarded already" in clawpy("discard", card).err
    assert (discarded["session"]["state"], discarded["changeSet"]["state"]) == ("discarded", "discarded")
    for verb in ("work", "status"):
        printed = clawpy(verb).out
        assert "discarded" in printed
        assert "succeeded" not in printed
    assert "  discarded  my shop ü" in clawpy("work", card).out
    assert clawpy("metrics", "--json").document["ownPrompts"] == 1


@pytest.mark.long
def test_do_not_disturb_lasts_for_its_span(clawpy: Clawpy, project: Path):
    until = clawpy("dnd", "--for", "90m", "--json").document["dndUntil"]
    remaining = datetime.fromisoformat(until) - datetime.now(UTC)
    assert timedelta(minutes=89) < remaining <= timedelta(minutes=90)
    status = clawpy("status", "--json").document
    assert (status["dndUntil"], status["quiet"]) == (until, True)
    assert "do not disturb until" in clawpy("dnd").out
    assert "do not disturb until" in clawpy("status").out


@pytest.mark.long
@pytest.mark.parametrize("off", ["off", "--off"])
def test_do_not_disturb_is_switched_on_and_off(clawpy: Clawpy, project: Path, off: str):
    assert clawpy("dnd", "on", "--json").document["dndUntil"] is not None
    assert clawpy("dnd", off, "--json").document["dndUntil"] is None
    assert clawpy("status", "--json").document["dndUntil"] is None


@pytest.mark.long
@pytest.mark.parametrize("arguments", ["maybe", "--for 1h off", "--for 1h --off", "--for never"])
def test_do_not_disturb_takes_either_a_word_or_a_span(clawpy: Clawpy, project: Path, arguments: str):
    refused = clawpy("dnd", *arguments.split())
    assert refused.code == 2
    assert arguments != "maybe" or "'maybe' is neither on nor off; for a time write --for 2h" in refused.err


WRONG_COMMAND_LINES = [
    [name, *words, "--bogus"] for name, verb in VERBS.items() for words in ([], *([action] for action in verb.actions))
]
WRONG_COMMAND_LINES += [
    ["no-such-verb"], ["approve"], ["dnd", "--off", "--for", "2h"], ["check"], ["recall"], ["key", "set"], ["--home"],
    ["notify", "set", "phone", "https://example.org/secret"], ["comment", "x", "nowhere"], ["approve", "x", "--soon"],
    ["snooze", "x", "--for", "soon"], ["resume", "everything"], ["agents", "add", "x"], ["config", "set", "x"],
    ["check", "ls", "--home"], ["check", "--prompt", "x", "--batch", "y"], ["tasks", "list", "--state", "odd"], [],
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
