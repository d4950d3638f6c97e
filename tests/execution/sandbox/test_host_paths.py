"""The installations that commands may read, the variables that they inherit, and the places of secrets (SPEC 3.8)."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from engine.execution.sandbox import SESSION_MARK, Confinement
from engine.execution.sandbox.host_paths import (
    find_readable_places,
    find_secret_places,
    link_tools,
    make_session_environment,
)
from engine.execution.sandbox.ladder import NoSandbox
from engine.execution.sandbox.programs import Bubblewrap
from engine.home import Home
from tests.support import read_table
from tests.support.programs import make_program

TABLE = read_table(__file__)


def make_confinement(root: Path, *, readable: tuple[Path, ...] = ()) -> Confinement:
    confinement = Confinement(root / "folder", root / "scratch", root / "caches", readable=readable)
    confinement.folder.mkdir(parents=True, exist_ok=True)
    confinement.make()
    return confinement


@pytest.mark.parametrize("program, path, readable", TABLE["readable"])
def test_the_installations_of_the_path_and_of_the_program_are_readable(
    tmp_path: Path, program: str, path: str, readable: list[str]
):
    """Of a folder of programs in a project only that: beside it lie the project's secrets."""
    for name in ("env/bin/python", "tool", "project/bin/run"):
        make_program(tmp_path / name)
    (tmp_path / "env" / "pyvenv.cfg").touch()
    (tmp_path / "link").symlink_to(tmp_path / "env")

    def place_below_tmp(text: str) -> str:
        return text.replace("/place", str(tmp_path))

    environment = {"HOME": "/nowhere", "PATH": place_below_tmp(path)}
    places = find_readable_places(make_confinement(tmp_path / "session"), place_below_tmp(program), environment)
    below = [place for place in places if place.is_relative_to(tmp_path) and place.suffix == ""]
    topmost = [place for place in below if not set(place.parents) & set(below)]
    assert topmost == [Path(place_below_tmp(name)) for name in readable]


@pytest.mark.parametrize("rung", [NoSandbox, Bubblewrap])
def test_commands_inherit_only_known_variables(tmp_path: Path, rung: Callable[[], NoSandbox | Bubblewrap]):
    names = ("PATH", "HOME", "LC_ALL", "TOKEN", "FORCE_COLOR", "CFLAGS")
    inherited = dict.fromkeys(names, "/usr/bin")
    environment = make_session_environment(make_confinement(tmp_path), rung(), "sess_1", inherited)
    assert {name for name in inherited if name in environment} == {"PATH", "HOME", "LC_ALL"}
    assert environment["HOME"] == str(tmp_path / "scratch" / "home")
    assert environment[SESSION_MARK] == "sess_1"
    assert environment["PYTHONDONTWRITEBYTECODE"] == "1"
    assert environment["TMPDIR"] == ("/tmp" if rung is Bubblewrap else str(tmp_path / "scratch" / "tmp"))


def test_commands_inherit_the_variables_that_the_operator_names(tmp_path: Path):
    confinement = replace(make_confinement(tmp_path), variables=("CFLAGS", "URL"))
    inherited = {"CFLAGS": "-O2", "MAKEFLAGS": "-j4", "URL": "https://a:b@c.org/"}
    environment = make_session_environment(confinement, NoSandbox(), "sess_1", inherited)
    assert environment["CFLAGS"] == "-O2"
    assert "MAKEFLAGS" not in environment, "it is not named"
    assert "URL" not in environment, "it has a password"


ENVIRONMENTS = {
    "the engine's is not inherited": ("clawpy", "clawpy", False, ""),
    "another one is": ("clawpy", "other", False, "other"),
    "that of the workspace comes first": ("clawpy", "clawpy", True, "folder/.venv"),
    "also if the engine runs in it": ("folder/.venv", "folder/.venv", True, "folder/.venv"),
}
"""The environment of the engine, the active one, whether the workspace has its own, and the one that commands get."""


@pytest.mark.parametrize("engine, active, has_own, expected", ENVIRONMENTS.values(), ids=ENVIRONMENTS)
def test_commands_get_the_virtual_environment_of_the_workspace_and_not_that_of_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str, active: str, has_own: bool, expected: str
):
    for name in ("clawpy", "other", *(["folder/.venv"] if has_own else [])):
        (tmp_path / name / "bin").mkdir(parents=True)
        (tmp_path / name / "bin/python").touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path / engine))
    monkeypatch.setattr(sys, "base_prefix", "/usr")
    inherited = {"PATH": f"{tmp_path / active}/bin:/usr/bin", "VIRTUAL_ENV": str(tmp_path / active)}
    environment = make_session_environment(make_confinement(tmp_path), NoSandbox(), "sess_1", inherited)
    path, variable = (
        (f"{tmp_path / expected}/bin:/usr/bin", str(tmp_path / expected)) if expected else ("/usr/bin", None)
    )
    assert (environment["PATH"], environment.get("VIRTUAL_ENV")) == (path, variable)


def test_secret_places_follow_pointers_and_links(tmp_path: Path):
    home = Home.locate(tmp_path / "clawpy")
    home.data.mkdir(parents=True)
    user = tmp_path / "ann"
    (user / ".aws").mkdir(parents=True)
    elsewhere = tmp_path / "kube.yml"
    elsewhere.touch()
    (user / ".ssh").symlink_to(tmp_path / "keys")
    (tmp_path / "keys").mkdir()
    kube_configs = f"{elsewhere}:{tmp_path / 'gone'}:~unknown-user/config"
    places = find_secret_places(home, {"HOME": str(user), "KUBECONFIG": kube_configs})
    below = [place for place in places if place.is_relative_to(tmp_path)]
    assert below == sorted([user / ".aws", tmp_path / "keys", elsewhere, home.data])
    (user / ".gnupg").symlink_to(user)
    assert user not in find_secret_places(home, {"HOME": str(user)})


@pytest.mark.parametrize("root, is_shown", TABLE["tool_roots"])
def test_neither_a_tool_nor_a_setting_makes_the_home_readable(tmp_path: Path, root: str, is_shown: bool):
    tool = tmp_path / root
    for folder in ("home/pyenv", "session_home"):
        (tmp_path / folder).mkdir(parents=True)
    environment = {"HOME": str(tmp_path / "home"), "PATH": "", "PYENV_ROOT": str(tool)}
    confinement = make_confinement(tmp_path / "session", readable=(tool,))
    assert (tool in find_readable_places(confinement, "ls", environment)) is is_shown
    link_tools(tmp_path / "session_home", environment)
    assert (tmp_path / "session_home" / ".pyenv").is_symlink() is is_shown


def test_the_configuration_of_git_is_copied_without_its_credential_helper(tmp_path: Path):
    home, session_home = tmp_path / "home", tmp_path / "session_home"
    (home / ".config" / "git").mkdir(parents=True)
    session_home.mkdir()
    user, credential = "[user]\n\tname = {}\n", "[credential]\n\thelper = store\n"
    for file, name in ((".config/git/config", "Ann"), (".gitconfig", "Bob")):  # git takes the second last
        (home / file).write_text(user.format(name) + credential)
        link_tools(session_home, {"HOME": str(home), "PATH": ""})
        assert (session_home / ".gitconfig").read_text().endswith(user.format(name))
        assert "credential" not in (session_home / ".gitconfig").read_text()
