"""What a session's commands may touch, tried for real (SPEC 3.8)."""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.config import Settings, WorkspaceSettings
from engine.execution import session_watch
from engine.execution.live_session import LiveSession
from engine.execution.sandbox import SESSION_MARK, Confinement
from engine.execution.sandbox.bubblewrap import Bubblewrap
from engine.execution.sandbox.host_paths import link_tools, readable_places, secret_places, session_environment
from engine.execution.sandbox.ladder import NoSandbox, best_sandbox
from engine.home import Home
from engine.model import RunnerInfo, SessionState
from tests.execution.session_world import MakeWorld, World, shell, until

needs_bubblewrap = pytest.mark.skipif(not best_sandbox().confines, reason="bubblewrap does not work on this machine")


def confinement(root: Path, **changes: object) -> Confinement:
    folder, scratch, caches = root / "folder", root / "scratch", root / "caches"
    folder.mkdir(parents=True, exist_ok=True)
    created = Confinement(folder, scratch, caches, **changes)  # type: ignore[arg-type]
    created.make()
    return created


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    return make_world(sandbox=best_sandbox())


@needs_bubblewrap
def test_polite_end_reaches_what_is_inside(world: World) -> None:
    script = (
        "import os,signal,sys,time\n"
        "def bye(*_): open(os.environ['COVERAGE_FILE'], 'w').close(); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, bye); print('ready', flush=True); time.sleep(60)"
    )
    tidied: list[bool] = []

    def work(live: LiveSession) -> str:
        try:
            return shell(live, script)
        finally:
            tidied.append((live.scratch / "coverage").exists())

    view = world.start(work)
    until(lambda: world.texts(view))
    world.sessions.stop(view.id, "enough")
    world.sessions.wait(view.id, 5)
    assert tidied == [True]


@needs_bubblewrap
def test_with_network_commands_reach_public_hosts_through_the_gate_and_nothing_of_this_machine(
    make_world: MakeWorld, tmp_path: Path
) -> None:
    allowed = {str(tmp_path / "work space ü"): WorkspaceSettings(network=True)}
    world = make_world(sandbox=best_sandbox(), settings=Settings(workspaces=allowed))
    with socket.socket() as outside:
        outside.bind(("127.0.0.1", 0))
        outside.listen()
        port = outside.getsockname()[1]
        script = f"""
import os, socket, urllib.request
try:
    socket.create_connection(("127.0.0.1", {port}), timeout=2); print("reached")
except OSError: print("not reached")
try:
    socket.create_connection(("127.0.0.1", int(os.environ["HTTP_PROXY"].rpartition(":")[2]))).close(); print("gate")
except OSError: print("no gate")
"""
        view = world.run(lambda live: shell(live, script))
    world.sessions.close()
    assert world.texts(view) == ["not reached", "gate"]
    assert best_sandbox().describe(network=True) == "bubblewrap, with network"


@needs_bubblewrap
def test_an_installation_under_tmp_is_seen_and_cannot_be_written(tmp_path: Path) -> None:
    """A checkout under /tmp has its interpreter there too; the rest of /tmp stays out of sight."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        environment, other = Path(folder, "env"), Path(folder, "other.txt")
        other.write_text("none of its business")
        (environment / "bin").mkdir(parents=True)
        tool = environment / "bin" / "tool"
        tool.write_text(f"#!/bin/sh\ncat {environment}/data; ls {folder}; touch {environment}/data\n")
        tool.chmod(0o755)
        (environment / "data").write_text("its own data\n")
        (environment / "pyvenv.cfg").touch()
        argv = best_sandbox().wrap([str(tool)], confinement(tmp_path), cwd=tmp_path / "folder")
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.stdout == "its own data\nenv\n"
    assert "Read-only" in done.stderr


@pytest.mark.parametrize(
    ("program", "path", "shown"),
    [
        ("/place/env/bin/python", "", ["/place/env"]),
        ("/place/tool", "", ["/place/tool"]),
        ("/place/link/bin/python", "", ["/place/link", "/place/env"]),
        ("/usr/bin/env", "/usr/bin", []),
        ("/usr/bin/env", "/place/env/bin:/usr/bin", ["/place/env"]),
        ("/usr/bin/env", "/place/project/bin", ["/place/project/bin"]),
        ("/usr/bin/env", "/place/gone/bin", []),
    ],
)
def test_which_installations_are_shown(tmp_path: Path, program: str, path: str, shown: list[str]) -> None:
    """Of a folder of programs in a project only that: beside it lie the project's secrets."""
    for name in ("env/bin/python", "tool", "project/bin/run"):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch(mode=0o755)
    (tmp_path / "env" / "pyvenv.cfg").touch()
    (tmp_path / "link").symlink_to(tmp_path / "env")

    def below_tmp(text: str) -> str:
        return text.replace("/place", str(tmp_path))

    environment = {"HOME": "/nowhere", "PATH": below_tmp(path)}
    paths = readable_places(confinement(tmp_path / "session"), below_tmp(program), environment)
    tops = [place for place in paths if place.is_relative_to(tmp_path) and place.suffix == ""]
    assert [place for place in tops if not any(place.is_relative_to(top) and place != top for top in tops)] == [
        Path(below_tmp(name)) for name in shown
    ]


def test_a_relative_program_is_not_looked_for_in_the_folder_of_the_console(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    console = tmp_path / "console"
    pip = console / ".venv/bin/pip"
    pip.parent.mkdir(parents=True)
    pip.write_text("#!/bin/sh\n")
    pip.chmod(0o755)
    monkeypatch.chdir(console)
    paths = readable_places(confinement(tmp_path / "session"), ".venv/bin/pip", {"HOME": "/nowhere", "PATH": ""})
    assert all(place.is_absolute() for place in paths)


@pytest.mark.parametrize("rung", [NoSandbox, Bubblewrap])
def test_environment_has_no_secret(tmp_path: Path, rung: Callable[[], NoSandbox | Bubblewrap]) -> None:
    inherited = {
        "PATH": "/usr/bin",
        "HOME": "/home/ann",
        "LC_ALL": "C.UTF-8",
        "GITHUB_TOKEN": "ghp_1",
        "OPENAI_API_KEY": "sk-1",
        "AWS_SECRET_ACCESS_KEY": "1",
        "AWS_PROFILE": "prod",
        "SSH_AUTH_SOCK": "/tmp/agent",
        "CLAWPY_TOGETHER_API_KEY": "1",
        "DATABASE_URL": "postgres://u:p@h/db",
        "PIP_INDEX_URL": "https://user:pass@index/simple",
        "GOFLAGS": "-x=https://user:pass@proxy/",
        "DBUS_SESSION_BUS_ADDRESS": "unix:path=/run/user/1/bus",
        "PYTEST_CURRENT_TEST": "x",
        "GIT_DIR": "/elsewhere",
        "FORCE_COLOR": "1",
    }
    environment = session_environment(confinement(tmp_path), rung(), "sess_1", inherited)
    assert {name for name in inherited if name in environment} == {"PATH", "HOME", "LC_ALL"}
    assert environment["HOME"] == str(tmp_path / "scratch" / "home")
    assert environment[SESSION_MARK] == "sess_1"
    assert environment["PYTHONDONTWRITEBYTECODE"] == "1"
    assert environment["TMPDIR"] == ("/tmp" if rung is Bubblewrap else str(tmp_path / "scratch" / "tmp"))


def venv(place: Path) -> Path:
    (place / "bin").mkdir(parents=True)
    (place / "bin" / "python").touch()
    return place


def test_the_engine_s_own_virtual_environment_is_not_the_session_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine_env = venv(tmp_path / "clawpy")
    monkeypatch.setattr(sys, "prefix", str(engine_env))
    monkeypatch.setattr(sys, "base_prefix", "/usr")
    inherited = {"PATH": f"{engine_env / 'bin'}:/usr/bin", "VIRTUAL_ENV": str(engine_env)}
    environment = session_environment(confinement(tmp_path), NoSandbox(), "sess_1", inherited)
    assert (environment["PATH"], environment.get("VIRTUAL_ENV")) == ("/usr/bin", None)
    other = {"PATH": "/other/bin:/usr/bin", "VIRTUAL_ENV": "/other"}
    environment = session_environment(confinement(tmp_path), NoSandbox(), "sess_1", other)
    assert (environment["PATH"], environment["VIRTUAL_ENV"]) == ("/other/bin:/usr/bin", "/other")


@pytest.mark.parametrize("same", [False, True])
def test_the_workspace_s_virtual_environment_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, same: bool
) -> None:
    confined = confinement(tmp_path)
    project_env = venv(confined.folder / ".venv")
    engine_env = project_env if same else venv(tmp_path / "clawpy")
    monkeypatch.setattr(sys, "prefix", str(engine_env))
    monkeypatch.setattr(sys, "base_prefix", "/usr")
    inherited = {"PATH": f"{engine_env / 'bin'}:/usr/bin", "VIRTUAL_ENV": str(engine_env)}
    environment = session_environment(confined, NoSandbox(), "sess_1", inherited)
    assert (environment["PATH"], environment["VIRTUAL_ENV"]) == (f"{project_env / 'bin'}:/usr/bin", str(project_env))


def test_secret_places_follow_pointers_and_links(tmp_path: Path) -> None:
    home = Home.locate(tmp_path / "clawpy")
    home.data.mkdir(parents=True)
    user = tmp_path / "ann"
    (user / ".aws").mkdir(parents=True)
    elsewhere = tmp_path / "kube.yml"
    elsewhere.touch()
    (user / ".ssh").symlink_to(tmp_path / "keys")
    (tmp_path / "keys").mkdir()
    paths = secret_places(home, {"HOME": str(user), "KUBECONFIG": f"{elsewhere}:{tmp_path / 'gone'}"})
    paths = tuple(place for place in paths if place.is_relative_to(tmp_path))
    assert paths == tuple(sorted([user / ".aws", tmp_path / "keys", elsewhere, home.data]))
    (user / ".gnupg").symlink_to(user)
    assert user not in secret_places(home, {"HOME": str(user)})


def test_a_session_that_fills_the_disk_is_ended(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    view = world.start(lambda live: shell(live, "import time; time.sleep(60)"))
    until(lambda: world.state(view) is SessionState.RUNNING)
    monkeypatch.setattr(session_watch, "MIN_FREE_BYTES", 1 << 60)
    view = world.sessions.wait(view.id, 5)
    assert view.state is SessionState.FAILED
    assert "are free on the disk" in view.summary


@needs_bubblewrap
def test_the_row_says_which_hosts_the_runner_reaches(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    info = RunnerInfo(available=True, hosts=("api.example.com",))
    monkeypatch.setattr(world.runner, "check", lambda assignment: info)
    assert world.run(lambda live: "done").sandbox == "bubblewrap, network only to api.example.com"


def test_no_tool_and_no_setting_shows_the_home_itself(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "pyenv").mkdir(parents=True)
    (home / ".config" / "git").mkdir(parents=True)
    git_config = "[user]\n\tname = {}\n\temail = ann@example.org\n[credential]\n\thelper = store\n"
    (home / ".config" / "git" / "config").write_text(git_config.format("Ann"))
    for number, (root, is_shown) in enumerate(((home, False), (tmp_path, False), (home / "pyenv", True))):
        environment = {"HOME": str(home), "PATH": "", "PYENV_ROOT": str(root)}
        inside = confinement(tmp_path / "session", readable=(root,))
        assert (root in readable_places(inside, "ls", environment)) is is_shown
        session_home = tmp_path / f"session_home{number}"
        session_home.mkdir()
        link_tools(session_home, environment)
        assert (session_home / ".pyenv").is_symlink() is is_shown
        assert (session_home / ".gitconfig").read_text() == git_config.format("Ann").partition("[credential]")[0]
    (home / ".gitconfig").write_text(git_config.format("Bob"))
    link_tools(session_home, environment)
    assert "Bob" in (session_home / ".gitconfig").read_text(), "of two configurations git takes this one last"
