"""Folders that are no proper workspace, and proper ones with awkward names or insides."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine.home import Home
from tests.bad_input.conftest import Clawpy, assert_ok, assert_refused, file_contents, predicted
from tests.cli.conftest import A_FORMER_DAY, collide
from tests.conftest import Repository


@pytest.fixture
def plain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder outside any repository, and the current one."""
    folder = tmp_path / "plain"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    return folder


@pytest.mark.long
def test_a_folder_that_is_no_repository(clawpy: Clawpy, home: Home, plain: Path) -> None:
    assert_refused(clawpy("predict", "--json"), "no_repository", str(plain), "git init")
    assert_refused(clawpy("--workspace", ".", "cards", "--json"), "no_repository", str(plain))
    assert assert_ok(clawpy("status", "--json"))["workspaces"] == []  # needs none
    found = clawpy("doctor", "--workspace", str(plain), "--json")
    assert found.code == 1
    assert any(check["name"] == "workspace" and check["state"] == "fail" for check in found.document["checks"])
    assert list(plain.iterdir()) == []


def test_the_console_in_such_a_folder_says_so_before_it_takes_the_screen(
    clawpy: Clawpy, home: Home, plain: Path
) -> None:
    said = clawpy()
    assert said.code == 1
    assert f"{plain} is not in a git repository" in said.err
    assert "git init" in said.err
    assert not home.data.exists()


def test_a_bare_repository(clawpy: Clawpy, repository: Repository, tmp_path: Path) -> None:
    repository.commit("one", {"a.txt": "1\n"}, at=A_FORMER_DAY)
    repository.git("clone", "-q", "--bare", ".", str(tmp_path / "bare.git"))
    before = file_contents(tmp_path / "bare.git")
    assert_refused(
        clawpy("--workspace", str(tmp_path / "bare.git"), "predict", "--json"), "bare_repository", "clone it first"
    )
    assert file_contents(tmp_path / "bare.git") == before


@pytest.mark.long
def test_a_repository_without_commits(clawpy: Clawpy, repository: Repository) -> None:
    repository.write("cart.py", "total = 0\n")
    at = ("--workspace", str(repository.path))
    said = assert_ok(clawpy(*at, "predict", "--json"))
    assert said["predictions"] == []
    assert "no commit yet" in said["errors"][0]
    assert "no commit yet" in clawpy(*at, "predict").out
    [card] = predicted(clawpy, *at, "propose", "tidy up")
    assert card["status"] == "pending"
    assert clawpy(*at, "doctor", "--json").document["ok"]


@pytest.mark.long
def test_submodules(clawpy: Clawpy, shop: Repository, tmp_path: Path) -> None:
    library = Repository(tmp_path / "library")
    library.commit("one", {"cart.py": "total = 0\n"}, at=A_FORMER_DAY)
    shop.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(library.path), "vendor/lib")
    shop.commit("a library", at=A_FORMER_DAY)
    shop.write("vendor/lib/cart.py", "breakpoint()\n")
    shop.write("cart.py", "total = 1\n")
    status = shop.git("status", "--porcelain")
    said = assert_ok(clawpy("predict", "--json"))
    assert said["errors"] == []
    inside = assert_ok(clawpy("--workspace", str(shop.path / "vendor" / "lib"), "predict", "--json"))
    assert {prediction["workspace"] for prediction in inside["predictions"]} == {str(shop.path / "vendor" / "lib")}
    assert shop.git("status", "--porcelain") == status


@pytest.mark.long
@pytest.mark.parametrize("name", ["my shop", "Läden 店 😀", "'quoted' \"name\" $(touch x)", "-x", "a\nline", "[b]up[b"])
def test_a_path_with_spaces_signs_and_unicode(
    clawpy: Clawpy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    shop = Repository(tmp_path / name)
    shop.commit("begin", {"cart.py": "total = 0\n"}, at=A_FORMER_DAY)
    collide(shop)
    monkeypatch.chdir(shop.path)
    predicted = assert_ok(clawpy("predict", "--json"))
    assert predicted["errors"] == []
    card = next(prediction for prediction in predicted["predictions"] if prediction["flow"] == "forecast_conflicts")
    assert card["workspace"] == str(shop.path)
    approved = clawpy("approve", card["id"], "--json")
    assert approved.code == 1, "the branches collide: the check found a problem"
    assert approved.document["session"]["state"] == "succeeded"
    assert {file.name for file in tmp_path.iterdir()} == {name, "home"}


def test_a_path_that_is_no_text(clawpy: Clawpy, tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"latin-\xe9")
    try:
        shop = Repository(folder)
    except OSError:
        pytest.skip("this file system takes only UTF-8")
    shop.commit("begin", at=A_FORMER_DAY)
    assert_refused(clawpy("--workspace", str(folder), "predict", "--json"), "unfit_path", "not UTF-8", "rename")


def test_the_current_folder_is_gone(clawpy: Clawpy, plain: Path) -> None:
    plain.rmdir()
    assert_refused(clawpy("predict", "--json"), "no_folder", "does not exist")
