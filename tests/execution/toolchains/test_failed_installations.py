"""Packages that cannot be installed leave your tree as it is, and nothing is put elsewhere (SPEC 2.12, 3.8)."""

import os
import stat
import sys
import tempfile
from pathlib import Path

import pytest

from engine.execution.runners.toolchains.installing import (
    _make_temporary_path,
    _put_in_place,
    _restore_old_folder,
)
from engine.model import SessionState
from tests.execution.flow_world import FlowWorld
from tests.execution.toolchains.installations import (
    NPM_PROJECT,
    UV_PROJECT,
    commit_project,
    describe_outcome,
    find_command_lines,
    make_npm_project,
)
from tests.support.helpers import needs


@pytest.mark.long
def test_another_registry_is_not_reached_and_the_tree_is_unchanged(world: FlowWorld):
    needs("npm")
    files = make_npm_project("ms", "2.1.3", resolved="https://registry.invalid/ms/-/ms-2.1.3.tgz")
    top = commit_project(world, files | {".npmrc": "fetch-retries=0\nreplace-registry-host=never\n"})
    (top / "node_modules/mine").mkdir(parents=True)

    view = world.run_flow("prepare_environment", command=["npm ci"])

    assert view.state is SessionState.CANNOT_RUN, describe_outcome(world, view)
    assert "asked for registry.invalid, which is not one of its registries (registry.npmjs.org)" in view.summary
    assert [path.name for path in (top / "node_modules").iterdir()] == ["mine"]


def test_an_environment_that_is_a_link_is_left_alone(world: FlowWorld, tmp_path: Path):
    top = commit_project(world, NPM_PROJECT, ignored="node_modules\n")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (top / "node_modules").symlink_to(elsewhere)

    view = world.run_flow("prepare_environment", command=["npm ci"])

    assert view.state is SessionState.CANNOT_RUN, describe_outcome(world, view)
    assert "node_modules is a link" in view.summary
    assert (top / "node_modules").is_symlink()


def test_the_environment_that_clawpy_runs_from_is_not_replaced(world: FlowWorld, monkeypatch: pytest.MonkeyPatch):
    top = commit_project(world, UV_PROJECT)
    (top / ".venv/bin").mkdir(parents=True)
    monkeypatch.setattr(sys, "prefix", str(top / ".venv"))

    info = world.sessions.check(world.assign("prepare_environment", command=find_command_lines(top)))

    assert not info.available
    assert info.reason.startswith("Clawpy itself runs from .venv, which cannot be replaced meanwhile (quit Clawpy, ")


@pytest.mark.long
def test_files_that_a_package_writes_elsewhere_are_discarded(world: FlowWorld):
    needs("npm", "node")
    script = (
        "node -e \"require('fs').writeFileSync('cart.js', 'evil'); require('fs').writeFileSync('.git/hooks/x', '')\""
    )
    lock = {"name": "a", "lockfileVersion": 3, "packages": {"": {"name": "a", "dependencies": {}}}}
    manifest = {"name": "a", "version": "1.0.0", "devDependencies": {}, "scripts": {"postinstall": script}}
    top = commit_project(world, {"package.json": manifest, "package-lock.json": lock, "cart.js": "mine"})

    world.run_flow("prepare_environment", command=["npm ci"])

    assert (top / "cart.js").read_text() == "mine"
    assert not (top / ".git/hooks/x").exists()


@pytest.mark.parametrize("disk", [None, Path("/dev/shm")], ids=["same disk", "another disk"])
def test_an_installed_folder_replaces_the_old_one(tmp_path: Path, disk: Path | None):
    if disk and not os.access(disk, os.W_OK):
        pytest.skip("there is no other disk here")
    fresh = Path(tempfile.mkdtemp(dir=disk or tmp_path))
    (fresh / "tool").write_text("new")
    (fresh / "tool").chmod(0o4755)
    (fresh / "link").symlink_to("tool")
    target = tmp_path / "tree/.venv"
    (target / "old").mkdir(parents=True)

    _put_in_place(fresh, target)

    assert sorted(path.name for path in target.iterdir()) == ["link", "tool"]
    assert (target / "link").readlink() == Path("tool")
    assert stat.S_IMODE((target / "tool").stat().st_mode) == 0o755
    assert list((tmp_path / "tree").iterdir()) == [target]
    assert not fresh.exists()
    target.rename(_make_temporary_path(target, "old"))  # as a crash leaves it
    _restore_old_folder(target)
    assert (target / "tool").read_text() == "new"
