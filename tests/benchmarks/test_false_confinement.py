"""Whether the sandbox breaks what works outside: test suites of public packages, run outside and inside.

pytest tests/benchmarks/test_false_confinement.py -m benchmark -s

Takes source releases from the package index by their names, and skips where there is none. Each becomes a repository
with a virtual environment; its tests are run bare and as a check, and each test must come out alike.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from engine.execution.sandbox import Confinement
from engine.execution.sandbox.bubblewrap import Bubblewrap
from engine.execution.sandbox.host_paths import link_tools, session_environment

pytestmark = pytest.mark.benchmark

PACKAGES = {
    "itsdangerous": ("freezegun",),
    "pluggy": (),
    "iniconfig": (),
    "click": (),
    "toolz": (),
}
"""Names, and what their tests need besides pytest."""


@pytest.fixture(scope="module")
def pip(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The installer, in an environment of its own."""
    folder = tmp_path_factory.mktemp("pip") / "env"
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    return [str(folder / "bin" / "python"), "-m", "pip", "-q"]


def fetched(pip: list[str], name: str, folder: Path) -> Path:
    """The unpacked source release of a package. Skips without an index."""
    argv = [*pip, "download", "--no-deps", "--no-binary", name, "-d", str(folder), name]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    archives = list(folder.glob("*.tar.gz"))
    if not archives:
        pytest.skip(f"no source release of {name}: {done.stderr.strip()[-200:]}")
    with tarfile.open(archives[0]) as archive:
        archive.extractall(folder / "source", filter="data")
    return next((folder / "source").iterdir())


def prepared(pip: list[str], project: Path, needs: tuple[str, ...]) -> Path:
    """The interpreter of the project's own environment."""
    for argv in (["init", "-q"], ["add", "-A"], ["-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-qm", "x"]):
        subprocess.run(["git", *argv], cwd=project, check=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(project / ".venv")], check=True)
    python = project / ".venv" / "bin" / "python"
    argv = [*pip, "--python", str(python), "install", "pytest", *needs, "-e", str(project)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"the environment cannot be made: {done.stderr.strip()[-200:]}")
    return python


def outcomes(report: Path) -> dict[str, str]:
    """What became of each test, by its name."""
    found = {}
    for case in ElementTree.parse(report).iter("testcase"):
        child = next((one.tag for one in case if one.tag in ("failure", "error", "skipped")), "passed")
        found[f"{case.get('classname')}::{case.get('name')}"] = child
    return found


@pytest.mark.parametrize("name", PACKAGES)
def test_a_suite_comes_out_alike(tmp_path: Path, pip: list[str], name: str) -> None:
    bubblewrap = Bubblewrap()
    if bubblewrap.problem:
        pytest.skip("bubblewrap does not work on this machine")
    project = fetched(pip, name, tmp_path)
    python = prepared(pip, project, PACKAGES[name])
    scratch = tmp_path / "scratch"
    held = Confinement(project, scratch, scratch / "caches", tree=project)
    held.make()
    link_tools(held.home)
    suite = next((one for one in ("tests", "testing") if (project / one).is_dir()), ".")
    argv = [str(python), "-m", "pytest", "-q", suite, "-p", "no:randomly", "--junitxml"]
    subprocess.run([*argv, str(tmp_path / "outside.xml")], cwd=project, capture_output=True, check=False)
    inside = subprocess.run(
        bubblewrap.wrap([*argv, str(held.files / "inside.xml")], held, cwd=project),
        cwd=project,
        env=session_environment(held, bubblewrap, "sess_1"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (held.files / "inside.xml").exists(), inside.stdout + inside.stderr
    bare, confined = outcomes(tmp_path / "outside.xml"), outcomes(held.files / "inside.xml")
    differing = {one: (bare.get(one), confined.get(one)) for one in bare | confined}
    differing = {one: both for one, both in differing.items() if both[0] != both[1]}
    print(f"\n{name}: {len(bare)} tests, {len(differing)} come out otherwise inside")
    assert bare
    assert not differing
