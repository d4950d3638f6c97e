"""Folders that cannot be a workspace, and valid workspaces with unusual names or contents."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from clawpy_console.app import ConsoleApp
from engine import Engine, open_engine
from engine.home import Home
from engine.model import Refusal, SessionState
from tests.bad_input.conftest import Clawpy, assert_ok, assert_refused, file_contents, predicted
from tests.cli.conftest import A_FORMER_DAY, collide
from tests.conftest import Repository
from tests.console.conftest import screen_text, until_loaded


@pytest.fixture
def plain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder outside of any repository, which is the current folder."""
    folder = tmp_path / "plain"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    return folder


@pytest.mark.long
def test_a_folder_outside_a_repository_is_refused(clawpy: Clawpy, home: Home, plain: Path) -> None:
    assert_refused(clawpy("predict", "--json"), "no_repository", str(plain), "git init")
    assert_refused(clawpy("--workspace", ".", "cards", "--json"), "no_repository", str(plain))
    assert assert_ok(clawpy("status", "--json"))["workspaces"] == []  # needs none
    result = clawpy("doctor", "--workspace", str(plain), "--json")
    assert result.code == 1
    assert any(check["name"] == "workspace" and check["state"] == "fail" for check in result.document["checks"])
    assert list(plain.iterdir()) == []


def test_the_console_does_not_start_outside_a_repository(clawpy: Clawpy, home: Home, plain: Path) -> None:
    result = clawpy()
    assert result.code == 1
    assert f"{plain} is not in a git repository" in result.err
    assert "git init" in result.err
    assert not home.data.exists()


def test_a_bare_repository_is_refused_and_unchanged(clawpy: Clawpy, repository: Repository, tmp_path: Path) -> None:
    repository.commit("one", {"a.txt": "1\n"}, at=A_FORMER_DAY)
    repository.git("clone", "-q", "--bare", ".", str(tmp_path / "bare.git"))
    before = file_contents(tmp_path / "bare.git")
    assert_refused(
        clawpy("--workspace", str(tmp_path / "bare.git"), "predict", "--json"), "bare_repository", "clone it first"
    )
    assert file_contents(tmp_path / "bare.git") == before


@pytest.mark.long
def test_a_repository_without_commits_says_so_and_takes_prompts(clawpy: Clawpy, repository: Repository) -> None:
    repository.write("cart.py", "total = 0\n")
    workspace = ("--workspace", str(repository.path))
    result = assert_ok(clawpy(*workspace, "predict", "--json"))
    assert result["predictions"] == []
    assert "no commit yet" in result["errors"][0]
    assert "no commit yet" in clawpy(*workspace, "predict").out
    [card] = predicted(clawpy, *workspace, "propose", "tidy up")
    assert card["status"] == "pending"
    assert clawpy(*workspace, "doctor", "--json").document["ok"]


@pytest.mark.long
def test_submodules_are_left_alone_and_may_be_workspaces(clawpy: Clawpy, shop: Repository, tmp_path: Path) -> None:
    library = Repository(tmp_path / "library")
    library.commit("one", {"cart.py": "total = 0\n"}, at=A_FORMER_DAY)
    shop.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(library.path), "vendor/lib")
    shop.commit("a library", at=A_FORMER_DAY)
    shop.write("vendor/lib/cart.py", "breakpoint()\n")
    shop.write("cart.py", "total = 1\n")
    status = shop.git("status", "--porcelain")
    result = assert_ok(clawpy("predict", "--json"))
    assert result["errors"] == []
    inside = assert_ok(clawpy("--workspace", str(shop.path / "vendor" / "lib"), "predict", "--json"))
    assert {prediction["workspace"] for prediction in inside["predictions"]} == {str(shop.path / "vendor" / "lib")}
    assert shop.git("status", "--porcelain") == status


@pytest.mark.long
@pytest.mark.parametrize("name", ["my shop", "Läden 店 😀", "'quoted' \"name\" $(touch x)", "-x", "a\nline", "[b]up[b"])
def test_a_path_may_have_spaces_signs_and_unicode(
    clawpy: Clawpy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    shop = Repository(tmp_path / name)
    shop.commit("begin", {"cart.py": "total = 0\n"}, at=A_FORMER_DAY)
    collide(shop)
    monkeypatch.chdir(shop.path)
    document = assert_ok(clawpy("predict", "--json"))
    assert document["errors"] == []
    card = next(prediction for prediction in document["predictions"] if prediction["flow"] == "forecast_conflicts")
    assert card["workspace"] == str(shop.path)
    approved = clawpy("approve", card["id"], "--json")
    assert approved.code == 1, "the branches collide: the check found a problem"
    assert approved.document["session"]["state"] == "succeeded"
    assert {file.name for file in tmp_path.iterdir()} == {name, "home"}


def test_a_path_that_is_not_utf_8_is_refused(clawpy: Clawpy, tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"latin-\xe9")
    try:
        shop = Repository(folder)
    except OSError:
        pytest.skip("this file system takes only UTF-8")
    shop.commit("begin", at=A_FORMER_DAY)
    assert_refused(clawpy("--workspace", str(folder), "predict", "--json"), "unfit_path", "not UTF-8", "rename")


def test_a_deleted_current_folder_is_named(clawpy: Clawpy, plain: Path) -> None:
    plain.rmdir()
    assert_refused(clawpy("predict", "--json"), "no_folder", "does not exist")


# -- names of files and branches that try to be options, commands, escape sequences or markup

FILES = (
    "-x.py", "--help", "new\nline.py", "esc\x1b[31mred.py", "tab\t.py", "[b]bold.py", 'quo"te.py', "ü 😀.py",
    "$(touch pwned).py", ";touch pwned;.py", "[", "[ [b]up[",
    ":(glob)x.py", "bell\x07.py", "rtl\u202egnp.py", "{a,b}.py", "%s%n.py",
)  # fmt: skip
BRANCHES = ("x--help", "b]up", "ü/😀", "a;touch-pwned", "$(touch_pwned)", "refs", "HEAD/x", "`id`")
OPTIONS = ("-x", "--upload-pack=touch pwned", "--exec=touch pwned")


@pytest.fixture
def hostile(repository: Repository) -> Repository:
    """A repository full of such names, with work in progress on a branch."""
    files = dict.fromkeys(FILES, "x = 1\n") | {"CHANGELOG.md": "# Changelog\n"}
    repository.commit("first \x1b]0;title\x07 [b]bold $(touch pwned)", files)
    repository.git("tag", "v1.0")
    for branch in BRANCHES:
        repository.git("branch", branch)
    head = repository.git("rev-parse", "HEAD")
    for option in ("-x", "--force"):
        repository.git("update-ref", f"refs/heads/{option}", head)
    repository.commit("Release 1.1 \x1b]0;title\x07", {"version": "1.1\n"})  # so that its change log is due
    repository.commit("-x --amend", dict.fromkeys(FILES, "x = 2\nprint(1)\n"))
    repository.git("switch", "-q", "-c", "work")
    (repository.path / os.fsdecode(b"latin-\xe9.py")).write_text("x = 1\n")
    for name in FILES:
        repository.write(name, "x = 3\n")
    return repository


@pytest.fixture
def engine(home: Home, hostile: Repository) -> Iterator[Engine]:
    engine = open_engine(home, workspaces=[str(hostile.path)], start_schedule=False)
    yield engine
    engine.close()


def is_printable(text: str) -> bool:
    return not any((ord(sign) < 32 and sign != "\n") or sign in "\x7f\u202e" for sign in text)


@pytest.mark.long
def test_every_card_of_a_hostile_repository_is_printable_and_runs(engine: Engine, hostile: Repository) -> None:
    report = engine.card_cycle.run_cycle(requested=True)
    assert report.errors == ()
    assert report.created
    before = {file.name for file in hostile.path.iterdir()}
    for card in engine.cards.pending():
        assert is_printable(card.assignment.prompt + card.reasoning)
        session = engine.sessions.wait(engine.cards.approve(card.id).session_id or "", 30)
        assert session.state is SessionState.SUCCEEDED, (card.assignment.flow, session.summary)
        lines = engine.sessions.transcript(session.id)
        assert all(is_printable(line.text) for line in lines)
    assert {file.name for file in hostile.path.iterdir()} == before, "no name was run as a command"


@pytest.mark.parametrize("option", OPTIONS)
def test_a_parameter_that_would_be_an_option_is_refused(engine: Engine, hostile: Repository, option: str) -> None:
    engine.card_cycle.run_cycle(requested=True)
    card = next(card for card in engine.cards.pending() if card.assignment.flow == "draft_changelog")
    with pytest.raises(Refusal, match="dash") as caught:
        engine.cards.approve(card.id, edit=json.dumps({"since": option}))
    assert caught.value.code == "bad_parameters"
    assert engine.cards.get(card.id).status.value == "pending"


@pytest.mark.long
def test_verbs_print_no_escape_sequences(clawpy: Clawpy, hostile: Repository) -> None:
    workspace = ("--workspace", str(hostile.path))
    result = clawpy(*workspace, "predict")
    assert result.code == 0
    assert is_printable(result.out + result.err)
    [card] = predicted(clawpy, *workspace, "propose", "tidy \x1b]0;owned\x07 [b]up[/b] \x1b[2J")
    assert card["prompt"] == "tidy  [b]up[/b]"
    for verb in (["cards"], ["status"], ["work"], ["tasks", "list"], ["approve", "\x1b[31mpred"], ["\x1b[31mverb"]):
        result = clawpy(*workspace, *verb)
        assert is_printable(result.out + result.err), verb


@pytest.mark.long
async def test_the_console_shows_markup_literally(engine: Engine, home: Home, hostile: Repository) -> None:
    engine.cards.propose("tidy [b]up[/b] [/oops] \x1b[31m$(x)", workspace=str(hostile.path))
    engine.card_cycle.run_cycle(requested=True)
    app = ConsoleApp(lambda: engine, home, [str(hostile.path)])
    app.animation_level = "none"
    async with app.run_test(size=(120, 40)) as pilot:
        await until_loaded(pilot)
        screens = ""
        for _ in range(len(engine.cards.pending())):
            screens += screen_text(app)
            await pilot.press("enter")
            screens += screen_text(app)
            await pilot.press("escape", "left")
            deadline = time.monotonic() + 5
            while app._is_reading and time.monotonic() < deadline:
                await pilot.pause(0.01)
        assert "[b]up[/b] [/oops]" in screens
        assert is_printable(screens)
