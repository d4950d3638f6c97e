"""Missing, broken, silent and half-installed tools, each with the real tool: the message names what is missing and
what brings it, and there is no result that could be taken for a finding, a failure or a success."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from engine.execution.runners.flow import CannotRun
from engine.model import CheckResult
from tests.conftest import Repository
from tests.execution.flows.conftest import RunFlow


@dataclass(frozen=True)
class Case:
    """`files` of a project, the `flow` that is run on it, and what it says: `missing` and what brings it, `fix`."""

    name: str
    files: dict[str, str]
    missing: str
    fix: str = ""
    flow: str = "run_tests"
    needs: tuple[str, ...] = ()
    without: tuple[str, ...] = ()


def makefile(target: str, command: str) -> dict[str, str]:
    return {"Makefile": f"{target}:\n\t{command}\n"}


def script(text: str) -> dict[str, str]:
    return {"Makefile": "test:\n\tsh ./run.sh\n", "run.sh": text}


def npm(name: str, command: str, body: str = "", extra: str = "") -> dict[str, str]:
    return {
        "package.json": f'{{"name": "x", "scripts": {{"{name}": "{command}"}}{extra}}}',
        "a.test.js": f"const test = require('node:test');\n{body}\n",
    }


NODE = ("node", "npm")
RUST = '[package]\nname = "x"\nversion = "0.1.0"\nedition = "2021"\n'

MAKE = [
    Case("a program that make calls", makefile("test", "nosuchtool"), "`nosuchtool` is not installed", "nosuchtool"),
    Case("a program, with a closed folder on the path",
         script("echo 'sh: 1: nosuchtool: Permission denied'; exit 126\n"), "`nosuchtool` is not installed"),
    Case("uv, by a lint target", makefile("lint", "uv run ruff check ."), "`uv` is not installed", "install uv",
         flow="lint", without=("uv",)),
    Case("pre-commit", makefile("lint", "pre-commit run -a"), "`pre-commit` is not installed",
         "pipx install pre-commit", flow="lint", without=("pre-commit",)),
    Case("a module of Python", makefile("test", "python3 -m nosuchmodule"), "the package `nosuchmodule`"),
    Case("a linter that names no line", makefile("lint", "@echo all is lost; exit 1"), "naming a line", flow="lint"),
    Case("a script that may not be run", makefile("lint", "./check.sh") | {"check.sh": "#!/bin/sh\n"},
         "is not executable", "chmod +x", flow="lint"),
    Case("a script that is not there", makefile("test", "./gone.sh"), "gone.sh"),
    Case("a shared library", script("echo 'x: error while loading shared libraries: libfoo.so.1: cannot open shared "
         "object file'; exit 127\n"), "the library `libfoo.so.1` is not installed", "system package"),
    Case("a JDK", script("echo 'ERROR: JAVA_HOME is not set'; exit 1\n"), "`java` is not installed", "JDK"),
    Case("room on the disk", script("echo 'write error: No space left on device'; exit 1\n"), "the disk is full",
         "free some space"),
    Case("git-lfs", script("git lfs pull\n"), "`lfs` is not installed", "git-lfs"),
]  # fmt: skip

PYTEST = [
    Case("a package that conftest imports", {"conftest.py": "import nosuchpackage\n", "test_a.py": ""},
         "the package `nosuchpackage`", "pip install pytest"),
    Case("a plugin that an option asks for", {"pytest.ini": "[pytest]\naddopts = --cov=shop\n", "test_a.py": ""},
         "the pytest plugin `pytest-cov` is not installed", "pip install"),
    Case("a plugin that a fixture asks for", {"test_a.py": "def test_a(mocker): pass\n"},
         "the pytest plugin `pytest-mock` is not installed"),
    Case("any test", {"test_a.py": "x = 1\n"}, "pytest found no tests", "write the first one"),
    Case("a program that a test starts", {"test_a.py": "import subprocess\n"
         "def test_a(): subprocess.run(['ffmpeg-not-here'], check=True)\n"}, "`ffmpeg-not-here` is not installed"),
    Case("the network", {"test_a.py": "import socket\ndef test_a(): socket.create_connection(('host.invalid', 80))\n"},
         "there is no network", "network = true"),
    Case("a browser", {"test_a.py": "def test_a():\n    raise RuntimeError('BrowserType.launch: Executable doesn\\'t "
         "exist at /root/.cache/ms-playwright/chromium-1/chrome')\n"}, "the browser", "npx playwright install"),
    Case("a display", {"test_a.py": "def test_a(): raise RuntimeError('could not connect to display')\n"},
         "there is no display", "xvfb-run"),
    Case("an end that looks like that of red tests", {"conftest.py": "import os\nos._exit(1)\n", "test_a.py": ""},
         "pytest ended with exit code 1: it printed nothing"),
    Case("a life longer than a signal", {"conftest.py": "import os\nos.kill(os.getpid(), 9)\n", "test_a.py": ""},
         "pytest was killed"),
]  # fmt: skip

OTHERS = [
    Case("packages of npm", npm("test", "jest"), "`jest` is not installed", "npm install", needs=NODE,
         without=("jest",)),
    Case("a package that a test requires", npm("test", "node --test", "test('a', () => require('express'));"),
         "the package `express` is not installed", "npm install", needs=NODE),
    Case("a program that a test of node starts", npm("test", "node --test", "test('a', (t, done) => {"
         " require('child_process').spawn('ffmpeg-not-here').on('error', done); });"),
         "`ffmpeg-not-here` is not installed", needs=NODE),
    Case("npm", npm("test", "node --test"), "looked for npm on the PATH", "install Node.js", without=("npm",)),
    Case("go", {"go.mod": "module x\n\ngo 1.19\n", "x_test.go": ""},
         "looked for go on the PATH", "https://go.dev/dl", without=("go",)),
    Case("a module of go", {"go.mod": "module x\n\ngo 1.19\n\nrequire example.invalid/y v1.0.0\n",
         "x_test.go": 'package x\n\nimport "testing"\nimport _ "example.invalid/y"\n\nfunc TestX(*testing.T) {}\n'},
         "example.invalid", needs=("go",)),
    Case("cargo", {"Cargo.toml": RUST, "src/lib.rs": ""}, "looked for cargo on the PATH", "rustup.rs",
         without=("cargo",)),
    Case("a crate", {"Cargo.toml": f'{RUST}[dependencies]\ny = {{ git = "https://host.invalid/y" }}\n',
         "src/lib.rs": ""}, "there is no network", needs=("cargo",)),
    Case("a linter that is configured", {"ruff.toml": "", "a.py": ""}, "no linter: looked for ruff", "pip install ruff",
         flow="lint", without=("ruff",)),
]  # fmt: skip


def program_answers(program: str) -> bool:
    """Whether it is there and answers: a version manager may have none to run."""
    asked = "version" if program == "go" else "--version"
    return shutil.which(program) is not None and not subprocess.run([program, asked], capture_output=True).returncode


def run_case(case: Case, repository: Repository, run_flow: RunFlow, without: Callable[..., None]) -> CannotRun:
    for program in case.needs:
        if not program_answers(program):
            pytest.skip(f"needs {program}")
    repository.commit("begin", case.files)
    if case.without:
        without(*case.without)
    with pytest.raises(CannotRun) as caught:
        run_flow(case.flow)
    return caught.value


@pytest.mark.parametrize(
    "case",
    [*MAKE, *(pytest.param(case, marks=pytest.mark.long) for case in (*PYTEST, *OTHERS))],
    ids=lambda case: case.name,
)
def test_what_is_missing_and_what_brings_it_is_said(
    case: Case, request: pytest.FixtureRequest, run_flow: RunFlow, without: Callable[..., None]
) -> None:
    refusal = run_case(case, request.getfixturevalue("project" if case in PYTEST else "repository"), run_flow, without)
    assert case.missing in refusal.message
    assert case.fix in refusal.fix


@pytest.mark.long
def test_a_database_that_is_down(project: Repository, run_flow: RunFlow) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        body = f"import socket\ndef test_a(): socket.create_connection(('127.0.0.1', {port}))\ndef test_b(): pass\n"
        project.commit("tests", {"test_a.py": body})
        with pytest.raises(CannotRun, match="1 of 2 tests could not run: nothing answers") as caught:
            run_flow("run_tests")
    assert "start it" in caught.value.fix


def run_tests(run_flow: RunFlow) -> CheckResult:
    check = run_flow("run_tests").result.check
    assert check is not None
    return check


class TestFailures:
    """A check that has all that it needs and finds something fails, whatever else is missing."""

    @pytest.mark.long
    def test_a_red_test_beside_one_without_network(self, project: Repository, run_flow: RunFlow) -> None:
        body = "import socket\ndef test_a(): socket.create_connection(('host.invalid', 80))\ndef test_b(): assert 0\n"
        project.commit("tests", {"test_a.py": body})
        ran = run_flow("run_tests")
        assert ran.result.check is not None
        assert ran.result.check.failed == 2
        assert "1 test of 2 could not run" in ran.bench.text

    @pytest.mark.long
    def test_a_green_test_that_logs_a_refused_connection(self, project: Repository, run_flow: RunFlow) -> None:
        project.commit("tests", {"test_a.py": "def test_a(): print('sh: 1: x: not found, Connection refused')\n"})
        check = run_tests(run_flow)
        assert check.green

    @pytest.mark.long
    def test_a_module_that_was_renamed(self, project: Repository, run_flow: RunFlow) -> None:
        project.commit("begin", {"shop/__init__.py": "", "test_a.py": "import shop\ndef test_a(): pass\n"})
        project.git("mv", "shop", "store")
        project.commit("renamed")
        check = run_tests(run_flow)
        assert check.errors == 1

    @pytest.mark.long
    def test_a_file_that_a_test_does_not_find(self, project: Repository, run_flow: RunFlow) -> None:
        project.commit("tests", {"test_a.py": "def test_a(): open('data.json')\n"})
        check = run_tests(run_flow)
        assert check.failed == 1

    @pytest.mark.long
    @pytest.mark.skipif(shutil.which("npm") is None, reason="needs npm")
    def test_a_package_that_nobody_named(self, repository: Repository, run_flow: RunFlow) -> None:
        """Where the others are installed, one that package.json does not name is a slip in the code."""
        repository.commit("begin", npm("test", "node --test", "test('a', () => require('expresss'));"))
        (repository.path / "node_modules").mkdir()
        check = run_tests(run_flow)
        assert check.failed == 1

    def test_a_script_of_the_projects_own_that_says_no(self, repository: Repository, run_flow: RunFlow) -> None:
        repository.commit("begin", makefile("test", "@echo 3 carts are wrong; exit 1"))
        ran = run_flow("run_tests")
        assert ran.result.check is not None
        assert (ran.result.check.failed, ran.result.check.counted) == (1, False)
        assert ran.result.summary.startswith("Make test failed in ")
        assert ran.result.summary.endswith("its output names no tests")
