"""What a person types, and what comes back: text, JSON, exit codes."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from clawpy_console.cli import main as cli
from clawpy_console.cli.main import approval_status, main
from clawpy_console.cli.printing import render_document
from clawpy_console.cli.verbs import VERBS, span
from engine.api.documents import document as as_json
from engine.clock import FakeClock
from engine.home import Home
from engine.keys import Keys
from engine.model import RailVerdict, Verdict
from engine.safety.stop_file import is_requested, stop_file
from tests.api.stand_in import StandIn, card, request_permission
from tests.cli.conftest import Clawpy
from tests.conftest import Repository


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_and_action_has_help_with_an_example(clawpy: Clawpy, verb: str) -> None:
    for words in ([verb], *([verb, action] for action in VERBS[verb].actions)):
        result = clawpy(*words, "--help")
        assert result.code == 0
        example = result.out.partition("\nexample:\n")[2]
        assert "clawpy " + " ".join(words) in example or words[0] in ("token", "mcp")


def test_help_lists_every_verb(clawpy: Clawpy) -> None:
    result = clawpy("--help")
    assert result.code == 0
    assert all(re.search(rf"^  {verb}( |$)", result.out, re.MULTILINE) for verb in VERBS)


def test_version(clawpy: Clawpy) -> None:
    assert clawpy("--version").out == "clawpy 0.1.0\n"


@pytest.mark.parametrize(
    "argv",
    [
        ("fly",), ("approve",), ("approve", "x", "--soon"), ("snooze", "x", "--for", "soon"), ("resume", "everything"),
        ("agents", "add", "x"), ("config", "set", "x"), ("check",), ("check", "ls", "--home"),
        ("check", "--prompt", "x", "--batch", "y"), ("--json",), ("tasks", "list", "--state", "odd"),
    ],
)  # fmt: skip
def test_wrong_use_is_two_and_said_on_standard_error(clawpy: Clawpy, argv: tuple[str, ...]) -> None:
    result = clawpy(*argv)
    assert result.code == 2
    assert result.out == ""
    assert result.err.startswith("clawpy")


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("/srv/shop", "clawpy --workspace /srv/shop"),
        ("pedict", "unknown verb pedict; did you mean predict?"),
        ("xyzzy", "unknown verb xyzzy\n"),
    ],
)
def test_a_word_that_is_no_verb_is_told_what_was_meant(clawpy: Clawpy, word: str, says: str) -> None:
    result = clawpy(word)
    assert result.code == 2
    assert says in result.err
    assert "choose from" not in result.err


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("30m", 1800), ("2h", 7200), ("1h30m", 5400), ("30d", 2592000)]
)
def test_spans(text: str, seconds: int) -> None:
    assert span(text) == seconds


@pytest.mark.parametrize("text", ["", "0m", "2", "h", "-1h", "31d", "1m2h", "2 h"])
def test_what_is_no_span(text: str) -> None:
    with pytest.raises(Exception, match="is not a time span"):
        span(text)


def test_cards_for_a_person(clawpy: Clawpy, engines: list[StandIn]) -> None:
    result = clawpy("cards")
    assert result.code == 0
    assert result.out.startswith(
        "pred_abc1  72% quick check  shop → koji-core  SUGGESTED\n    Run the tests\n    3 modules changed\n"
    )
    assert "\x1b" not in result.out  # no colour into a pipe
    assert engines[0].cards.shown == ["pred_abc1", "pred_abd2"]
    assert engines[0].closed


def test_the_current_repository_is_the_workspace(
    clawpy: Clawpy, engines: list[StandIn], shop: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    (shop.path / "deep").mkdir()
    monkeypatch.chdir(shop.path / "deep")
    clawpy("predict")
    assert engines[0].workspaces == [str(shop.path)]


def test_workspaces_of_the_settings_are_served_too(
    clawpy: Clawpy, engines: list[StandIn], shop: Repository, home: Home, tmp_path: Path
) -> None:
    for name in ("other", "silent"):
        (tmp_path / name).mkdir()
    home.config.mkdir(parents=True)
    home.config_file.write_text(
        f'[workspaces."{tmp_path}/other"]\n[workspaces."{tmp_path}/silent"]\nautonomy = "off"\n[workspaces."/gone"]\n'
    )
    clawpy("predict")
    assert engines[0].workspaces == [str(shop.path), str(tmp_path / "other")]


def test_the_lap_in_words(clawpy: Clawpy, engines: list[StandIn]) -> None:
    result = clawpy("approve", "abc")
    assert result.code == 0
    assert "pred_abc1  approved  shop → koji-core" in result.out
    assert "sess_aaa  finished" in result.out
    assert "  │ line 3" in result.out
    assert "chg_x1  waiting  1 file" in result.out
    assert engines[0].sessions.waited == ["sess_aaa"]
    assert "chg_x1  landed" in clawpy("land", "chg_x1").out
    assert "dismissed" in clawpy("dismiss", "abc").out
    assert "snoozed until" in clawpy("snooze", "abc", "--for", "30m").out
    diff = "modified a.py\n@@ -1 +1 @@  hunk 1\n+x\n@@ -9 +9 @@  hunk 3\n+y"
    assert diff in clawpy("work", "chg_x1", "--diff").out, "hunk 2 is landed already"
    assert "changes to land" in clawpy("work").out


def test_what_ran_in_another_repository_is_named(
    clawpy: Clawpy, engines: list[StandIn], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shop: Repository
) -> None:
    other = Repository(tmp_path / "other")
    monkeypatch.chdir(other.path)
    result = clawpy("work")
    assert (
        result.out
        == f"Nothing has run here; 1 session in {shop.path}.\n  `clawpy --workspace {shop.path} work` shows them\n"
    )
    assert clawpy("work", "--json").document["elsewhere"] == {str(shop.path): 1}
    assert f"landed  1 file  in {shop.path}\n" in clawpy("land", "chg_x1").out
    assert f"discarded  1 file  in {shop.path}\n" in clawpy("discard", "chg_x1").out


def test_a_card_shows_which_rail_blocks_or_asks(clawpy: Clawpy, engines: list[StandIn], home: Home) -> None:
    document = {"predictions": [as_json(card("pred_x", datetime(2026, 1, 5, tzinfo=UTC), verdicts=VERDICTS))]}
    told = render_document("propose", document)
    assert told.endswith("\n    block content: force push\n    ask cost: dear")


VERDICTS = (
    RailVerdict("rate", Verdict.ALLOW, "fine"),
    RailVerdict("content", Verdict.BLOCK, "force push", "git-publish-force"),
    RailVerdict("cost", Verdict.ASK, "dear"),
    RailVerdict("gate", Verdict.ASK, "a person decides"),
)


def test_status_and_status_bars(clawpy: Clawpy, engines: list[StandIn]) -> None:
    result = clawpy("status")
    assert "● WATCHING since" in result.out
    assert "hour $0.15/2  day $1.20/20  month $9.00/200" in result.out
    assert clawpy("status", "--format", "short").out == "🔮 2\n"
    assert clawpy("status", "--format", "long").out.startswith("🔮 Run the tests · koji-core · 72% · ")
    assert clawpy("status", "--json").document["crossPollStatus"]["totalTriggers"] == 47


def test_stop_works_with_no_engine_and_anywhere(
    clawpy: Clawpy, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = clawpy("stop", "looking", "into", "it")
    assert result.code == 0
    assert "clawpy resume" in result.out
    assert is_requested(stop_file(home.data))
    assert json.loads(stop_file(home.data).read_text())["reason"] == "looking into it"


def test_agents(clawpy: Clawpy, engines: list[StandIn]) -> None:
    tree = clawpy("agents", "list").out
    assert "\n4        backend_builder" in tree
    assert "← koji-core" in tree
    assert "\ncoding agents\nNone is installed here. Supported: Claude Code, Codex, " in tree
    assert "cto (2) → ceo (1) → owner" in clawpy("agents", "add", "tester", "--to", "cto", "--domain", "tests").out
    result = clawpy("agents", "show", "cto")
    assert "# Chief technology officer" in result.out
    assert clawpy("agents", "retire", "researcher").code == 1
    assert "Retired: it runs nothing. Its folder is kept." in clawpy("agents", "retire", "tester").out
    assert "retired: tester; `clawpy agents restore` restores one" in clawpy("agents", "list").out
    assert "cto (2) → ceo (1) → owner" in clawpy("agents", "restore", "tester").out
    assert "retired" not in clawpy("agents", "list").out


def test_permissions(clawpy: Clawpy, engines: list[StandIn], home: Home, clock: FakeClock) -> None:
    assert clawpy("permissions").out == "No permission requests.\n"
    engine = StandIn(home, clock)
    request_permission(engine, "perm_a1", "push")
    engine.close()
    result = clawpy("permissions", "list").out
    assert result.startswith("perm_a1  waits 1m  builder  push\n")
    assert "    │ git push\n" in result
    assert "deny-session" in clawpy("permissions", "deny", "a1", "--session").out
    assert clawpy("permissions", "allow", "a1").code == 1
    assert clawpy("permissions", "list", "--all", "--json").document["permissions"][0]["answer"] == "deny-session"


def test_tasks(clawpy: Clawpy, engines: list[StandIn], shop: Repository) -> None:
    task = clawpy("tasks", "add", "cart", "rounding", "--json").document["task"]
    assert (task["title"], task["workspace"]) == ("cart rounding", str(shop.path))
    assert clawpy("tasks", "list").out == f"○ open     {task['id']}  cart rounding\n"
    assert "✓ done" in clawpy("tasks", "done", task["id"]).out
    assert clawpy("tasks", "list", "--state", "open").out == "No tasks.\n"


def test_config(clawpy: Clawpy, engines: list[StandIn], home: Home) -> None:
    assert clawpy("config", "set", "quietHoursStart", "22").out.startswith("quietHoursStart = 22\n")
    assert home.config_file.read_text() == "quietHoursStart = 22\n"
    assert clawpy("config", "get", "quietHoursStart", "--json").document["origin"] == str(home.config_file)
    everything = clawpy("config", "get").out
    assert "crossPollEnabled = true\n" in everything
    assert 'channels.koji-core.agent = "backend_builder"\n' in everything
    assert clawpy("config").out == everything
    assert clawpy("config", "--json").document["settings"]["quietHoursStart"] == 22
    result = clawpy("config", "set", "quietHoursStart", "25")
    assert (result.code, "expected a whole number from 0 to 23" in result.err) == (1, True)


def test_ctrl_c_is_no_traceback(clawpy: Clawpy, shop: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "open_engine", interrupted)
    assert clawpy("cards").code == 130


def test_a_home_in_the_environment(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CLAWPY_HOME", str(tmp_path / "elsewhere"))
    assert main(["stop"]) == 0
    assert is_requested(stop_file(Home.locate(tmp_path / "elsewhere").data))


def test_a_session_that_ended_badly_is_a_failure() -> None:
    for result, status in (("succeeded", 0), ("failed", 1), ("cancelled", 1), ("cannot_run", 3)):
        assert approval_status({"session": {"result": result}}) == status
    assert approval_status({"session": None}) == 0
    assert approval_status({"session": None, "prediction": {"status": "pending", "note": "not done"}}) == 1
    assert approval_status({"session": None, "prediction": {"status": "confirmed"}}) == 0


# Dismissals with their reasons, what stays away, and what was thrown away, as a script sees them (SPEC 2.9, 2.12).


@pytest.fixture
def project(demo_project: Callable[[Path], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The demo's repository, and the current folder."""
    folder = demo_project(tmp_path / "shop")
    monkeypatch.chdir(folder)
    return folder


def kinds(clawpy: Clawpy, verb: str) -> dict[str, str]:
    return {prediction["flow"]: prediction["id"] for prediction in clawpy(verb, "--json").document["predictions"]}


@pytest.mark.long
def test_a_dismissal_with_a_reason_is_listed_and_lifted(clawpy: Clawpy, project: Path) -> None:
    assert clawpy("muted").out == "Nothing is muted.\n"
    card = kinds(clawpy, "predict")["forecast_conflicts"]
    assert clawpy("dismiss", card, "--reason", "wrong").code == 0
    assert "forecast_conflicts" not in kinds(clawpy, "predict")
    [mute] = clawpy("muted", "--json").document["muted"]
    assert (mute["kind"], mute["reason"], mute["prediction"], mute["workspace"]) == (
        "forecast_conflicts", "wrong", card, str(project),
    )  # fmt: skip
    assert mute["until"] > mute["since"]
    told = clawpy("muted").out
    assert "dismissed once, most recently as “wrong”" in told
    assert "`clawpy muted unmute ID` lets its cards appear again" in told
    lifted = clawpy("muted", "unmute", mute["id"].removeprefix("mute_")[:6])
    assert (lifted.code, "unmuted" in lifted.out) == (0, True)
    assert clawpy("muted", "--json").document == {"muted": []}
    assert "forecast_conflicts" in kinds(clawpy, "predict")


@pytest.mark.long
def test_what_was_thrown_away_is_discarded_in_every_list(clawpy: Clawpy, project: Path) -> None:
    card = clawpy("propose", "draft_changelog", "--json").document["predictions"][0]["id"]
    assert clawpy("approve", card, "--wait").code == 0
    thrown = clawpy("discard", card, "--json").document
    assert thrown["prediction"]["outcome"] == "discarded"
    assert (thrown["session"]["state"], thrown["changeSet"]["state"]) == ("discarded", "discarded")
    for verb in ("work", "status"):
        told = clawpy(verb).out
        assert ("discarded" in told, "succeeded" in told) == (True, False)
    assert "  discarded  shop" in clawpy("work", card).out
    assert clawpy("metrics", "--json").document["ownPrompts"] == 1


# `clawpy notify` on the command line.


def test_an_address_is_read_unseen_and_kept_where_it_belongs(
    clawpy: Clawpy, engines: list[StandIn], home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("discord://4242424242/hunter2hunter2\n"))
    result = clawpy("notify", "set", "discord", "--store", "file", "--json")
    assert result.code == 0, result.err
    assert result.document["source"] == "file"
    assert "hunter2" not in result.out
    assert engines[-1].settings.current.notify.discord.url == "key"
    assert Keys(home).get("notify-discord") is not None
    assert "hunter2" not in home.config_file.read_text()


def test_an_address_as_an_argument_is_refused_and_not_repeated(clawpy: Clawpy, home: Home) -> None:
    for options in ((), ("--store", "file")):
        result = clawpy("notify", "set", "phone", *options, "ntfys://hunter2@ntfy.sh/topic")
        assert result.code == 2
        assert "Run `clawpy notify set phone`" in result.err
        assert "hunter2" not in result.out + result.err
    assert not home.config_file.exists()


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("\n", "no address was given, so the one for phone was not changed"),
        ("hunter2\n", "that is not an address"),
        ("nope://hunter2\n", "not the address of a known service"),
    ],
)
def test_what_was_typed_that_is_no_address_is_told_apart(
    clawpy: Clawpy, engines: list[StandIn], home: Home, monkeypatch: pytest.MonkeyPatch, typed: str, told: str
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(typed))
    result = clawpy("notify", "set", "phone", "--store", "file")
    assert result.code == 1
    assert told in result.err
    assert "appriseit.com/services" in result.err
    assert "hunter2" not in result.err
    assert not home.config_file.exists()
