"""Projects whose packages are installed by the flow `prepare_environment`, in sessions with a gate to their
registries."""

import json
from pathlib import Path
from typing import Any

from engine.execution.runners.toolchains.installing import find_installations
from engine.execution.runners.toolchains.projects import find_packages
from engine.model import SessionState, SessionView
from tests.execution.flow_world import FlowWorld
from tests.execution.session_world import SessionWorld
from tests.support.programs import make_program

PYPI, NPM = "pypi.org", "registry.npmjs.org"
UV_PROJECT = {
    "pyproject.toml": '[project]\nname = "shop"\nversion = "0.1.0"\nrequires-python = ">=3.9"\n'
    'dependencies = ["iniconfig>=2"]\n[tool.uv]\npackage = false\n',
    "test_shop.py": "import iniconfig\n\ndef test_it():\n    assert iniconfig\n",
}
NPM_PROJECT = {"package.json": {"name": "a", "dependencies": {"ms": "2"}}, "package-lock.json": "{}"}


def commit_project(world: SessionWorld, files: dict[str, Any], ignored: str = "node_modules\n.venv\n") -> Path:
    """Commit files, of which those that are no texts are JSON, and return the folder of the repository."""
    texts = {name: text if isinstance(text, str) else json.dumps(text) for name, text in files.items()}
    world.repository.commit("begin", {".gitignore": ignored, **texts})
    return world.repository.path


def make_environment(project: Path, *, with_pytest: bool) -> Path:
    """Make a stand-in for a `.venv`, and return its interpreter. That leaves the file `ran` when it is run."""
    program = make_program(project / ".venv" / "bin" / "python", "echo run >> ran\nexit 1")
    (project / ".venv" / "pyvenv.cfg").write_text("include-system-site-packages = false\n")
    if with_pytest:
        package = project / ".venv" / "lib" / "python3.11" / "site-packages" / "pytest"
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
    return program


def find_command_lines(top: Path) -> list[str]:
    """The lines of the command that installs the packages of the project at the top."""
    [installation] = find_installations(top, find_packages(top), "")
    return installation.command_lines


def run_successfully(world: FlowWorld, flow: str, command: list[str]) -> SessionView:
    view = world.run_flow(flow, command=command)
    assert view.state is SessionState.SUCCEEDED, describe_outcome(world, view)
    return view


def describe_outcome(world: FlowWorld, view: SessionView) -> str:
    return f"{view.state} {view.summary}\n{world.read_transcript(view)}"


def make_npm_project(name: str, version: str, **package: str) -> dict[str, Any]:
    """A project that needs one package, which the lock file describes with the fields of `package`."""
    manifest = {"name": "shop", "version": "1.0.0", "dependencies": {name: version}}
    packages = {"": manifest, f"node_modules/{name}": {"version": version, **package}}
    lock = {"name": "shop", "version": "1.0.0", "lockfileVersion": 3, "packages": packages}
    return {"package.json": manifest | {"scripts": {"test": "node --test"}}, "package-lock.json": lock}
