"""Whether the sandbox (SPEC 3.8) breaks work that succeeds outside: tests of public packages run outside and inside.

pytest tests/benchmarks/test_false_confinement.py -m benchmark -s

It downloads source releases from the package index by their names, and is skipped without an index. Each release
becomes a repository with a virtual environment. Its tests are run bare and as a check, and each test must have the same
result.
"""

import subprocess
import sys
import tarfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from engine.execution.sandbox import Confinement
from engine.execution.sandbox.host_paths import link_tools, make_session_environment
from engine.execution.sandbox.programs import Bubblewrap

PACKAGES = {"itsdangerous": ("freezegun",), "pluggy": (), "iniconfig": (), "click": (), "toolz": ()}
"""Names, and what their tests need besides pytest."""


@pytest.fixture(scope="module")
def pip(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The installer, in an environment of its own."""
    folder = tmp_path_factory.mktemp("pip") / "env"
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    return [str(folder / "bin" / "python"), "-m", "pip", "-q"]


def download(pip: list[str], name: str, folder: Path) -> Path:
    """The unpacked source release of a package. Skips without an index."""
    argv = [*pip, "download", "--no-deps", "--no-binary", name, "-d", str(folder), name]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    archives = list(folder.glob("*.tar.gz"))
    if not archives:
        pytest.skip(f"no source release of {name}: {done.stderr.strip()[-200:]}")
    with tarfile.open(archives[0]) as archive:
        archive.extractall(folder / "source", filter="data")
    return next((folder / "source").iterdir())


def commit_all(project: Path):
    """Make a repository of the project."""
    for argv in (["init", "-q"], ["add", "-A"], ["-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-qm", "x"]):
        subprocess.run(["git", *argv], cwd=project, check=True)


def install(pip: list[str], project: Path, needs: tuple[str, ...]) -> Path:
    """Install a project with pytest and its needs into an environment of its own; returns the interpreter."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(project / ".venv")], check=True)
    python = project / ".venv" / "bin" / "python"
    argv = [*pip, "--python", str(python), "install", "pytest", *needs, "-e", str(project)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"the environment cannot be made: {done.stderr.strip()[-200:]}")
    return python


def read_outcomes(report: Path) -> dict[str, str]:
    """The outcome of each test, by its name."""
    by_test = {}
    for case in ElementTree.parse(report).iter("testcase"):
        outcome = next((child.tag for child in case if child.tag in ("failure", "error", "skipped")), "passed")
        by_test[f"{case.get('classname')}::{case.get('name')}"] = outcome
    return by_test


@pytest.mark.parametrize("name", PACKAGES)
def test_a_suite_has_the_same_outcomes_inside_and_outside(tmp_path: Path, pip: list[str], name: str):
    bubblewrap = Bubblewrap()
    if bubblewrap.problem:
        pytest.skip("bubblewrap does not work on this machine")
    project = download(pip, name, tmp_path)
    commit_all(project)
    python = install(pip, project, PACKAGES[name])
    scratch = tmp_path / "scratch"
    confinement = Confinement(project, scratch, scratch / "caches", tree=project)
    confinement.make()
    link_tools(confinement.home)
    suite = next((test for test in ("tests", "testing") if (project / test).is_dir()), ".")
    argv = [str(python), "-m", "pytest", "-q", suite, "-p", "no:randomly", "--junitxml"]
    subprocess.run([*argv, str(tmp_path / "outside.xml")], cwd=project, capture_output=True, check=False)
    inside = subprocess.run(
        bubblewrap.wrap([*argv, str(confinement.files / "inside.xml")], confinement, cwd=project),
        cwd=project,
        env=make_session_environment(confinement, bubblewrap, "sess_1"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (confinement.files / "inside.xml").exists(), inside.stdout + inside.stderr
    bare, confined = read_outcomes(tmp_path / "outside.xml"), read_outcomes(confinement.files / "inside.xml")
    differing = {
        test: (bare.get(test), confined.get(test)) for test in bare | confined if bare.get(test) != confined.get(test)
    }
    print(f"\n{name}: {len(bare)} tests, {len(differing)} come out otherwise inside")
    assert bare
    assert not differing
