"""Folders that cannot be a workspace, and valid workspaces with unusual names or contents (SPEC 11.2)."""

import os
from pathlib import Path

import pytest

from engine.home import Home
from tests.bad_input.results import assert_refused, list_cards
from tests.cli.calls import Clawpy, get_document
from tests.support.repository import A_FORMER_DAY, Repository, add_conflicting_branches


@pytest.fixture
def plain_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder outside of any repository, which is the current folder."""
    folder = tmp_path / "plain"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    return folder


@pytest.mark.long
def test_a_folder_outside_a_repository_is_refused(clawpy: Clawpy, plain_folder: Path):
    assert_refused(clawpy("predict", "--json"), "no_repository", str(plain_folder), "git init")
    assert_refused(clawpy("--workspace", ".", "cards", "--json"), "no_repository", str(plain_folder))
    assert get_document(clawpy("status", "--json"))["workspaces"] == []  # needs none
    result = clawpy("doctor", "--workspace", str(plain_folder), "--json")
    assert result.code == 1
    assert any(check["name"] == "workspace" and check["state"] == "fail" for check in result.document["checks"])
    assert list(plain_folder.iterdir()) == []


def test_the_console_does_not_start_outside_a_repository(clawpy: Clawpy, home: Home, plain_folder: Path):
    result = clawpy()
    assert result.code == 1
    assert f"{plain_folder} is not in a git repository" in result.err
    assert "git init" in result.err
    assert not home.data.exists()


@pytest.mark.long
def test_a_repository_without_commits_says_so_and_takes_prompts(clawpy: Clawpy, repository: Repository):
    repository.write("cart.py", "total = 0\n")
    workspace = ("--workspace", str(repository.path))
    result = get_document(clawpy(*workspace, "predict", "--json"))
    assert result["predictions"] == []
    assert "no commit yet" in result["errors"][0]
    assert "no commit yet" in clawpy(*workspace, "predict").out
    [card] = list_cards(clawpy, *workspace, "propose", "sum up today")
    assert card["status"] == "pending"
    assert clawpy(*workspace, "doctor", "--json").document["ok"]


@pytest.mark.long
@pytest.mark.parametrize("name", ["my shop", "Läden 店 😀", "'quoted' \"name\" $(touch x)", "-x", "a\nline", "[b]up[b"])
def test_a_path_may_have_spaces_signs_and_unicode(
    clawpy: Clawpy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
):
    shop = Repository(tmp_path / name)
    shop.commit("begin", {"cart.py": "total = 0\n"}, at=A_FORMER_DAY)
    add_conflicting_branches(shop)
    monkeypatch.chdir(shop.path)
    answer = get_document(clawpy("predict", "--json"))
    assert answer["errors"] == []
    card = next(prediction for prediction in answer["predictions"] if prediction["flow"] == "forecast_conflicts")
    assert card["workspace"] == str(shop.path)
    approved = clawpy("approve", card["id"], "--json")
    assert approved.code == 1, "the branches collide: the check found a problem"
    assert approved.document["session"]["state"] == "succeeded"
    assert {file.name for file in tmp_path.iterdir()} == {name, "home"}


def test_a_path_that_is_not_utf_8_is_refused(clawpy: Clawpy, tmp_path: Path):
    folder = tmp_path / os.fsdecode(b"latin-\xe9")
    try:
        shop = Repository(folder)
    except OSError:
        pytest.skip("this file system takes only UTF-8")
    shop.commit("begin", at=A_FORMER_DAY)
    assert_refused(clawpy("--workspace", str(folder), "predict", "--json"), "unfit_path", "not UTF-8", "rename")


def test_a_deleted_current_folder_is_named(clawpy: Clawpy, plain_folder: Path):
    plain_folder.rmdir()
    assert_refused(clawpy("predict", "--json"), "no_folder", "does not exist")
