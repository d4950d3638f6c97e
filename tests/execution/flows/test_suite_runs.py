"""Every tool that tests a project: with passing tests, with a failing one, and without the tool."""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from engine.execution.runners.flow import CannotRun
from engine.execution.runners.flows.suite_runs import describe_check
from engine.execution.runners.toolchains.tool_table import TEST_RUNNERS
from engine.model import CheckResult
from tests.conftest import Repository
from tests.execution.flows.conftest import RunFlow, program_answers


@dataclass(frozen=True)
class Case:
    """A project for one row of the table of test runners."""

    tool: str
    """The row."""
    files: dict[str, str]
    path: str
    """The file with the tests."""
    good: str
    """Its text with a passing test."""
    bad: str
    """Its text with a failing test besides."""
    failing: str
    """The id of the failing test, "" where the tool does not name it."""
    needs: tuple[str, ...] = ()
    """Programs without which the case is skipped."""
    package: str = ""
    """A package of npm that it needs."""
    lacking: str = ""
    """A program without which nothing runs."""
    fix: str = ""
    """The beginning of the advice where that program is missing."""
    python: str = ""
    """`bare`: the operator's Python has no pytest; `pytest`: the project's environment is the one of these tests."""


UNITTEST = "import unittest\nclass CartTest(unittest.TestCase):\n    def test_good(self): pass\n"
UNITTEST_BAD = f"{UNITTEST}    def test_bad(self): self.assertEqual(1, 2)\n"
PYTEST = "def test_good(): pass\n"
PYTEST_BAD = f"{PYTEST}def test_bad(): assert 1 == 2\n"
NODE_TEST = "const test = require('node:test'); const assert = require('assert');\ntest('good', () => {});\n"
NODE_TEST_BAD = f"{NODE_TEST}test('is (bad)', () => assert.equal(1, 2));\n"
JEST = "describe('cart', () => {\n  it('good', () => {});\n"
JEST_BAD = f"{JEST}  it('is (bad)', () => {{ throw new Error('x'); }});\n}});\n"
VITEST = "import { describe, it } from 'vitest';\n"
JUNIT = (
    "import org.junit.*;\nimport static org.junit.Assert.*;\npublic class CartTest {\n  @Test public void good() {}\n"
)
JUNIT_BAD = f"{JUNIT}  @Test public void bad() {{ assertEquals(1, 2); }}\n}}\n"
EXUNIT = 'defmodule CartTest do\n  use ExUnit.Case\n  test "good" do\n    assert true\n  end\n'
GOTEST = 'package shop\n\nimport "testing"\n\nfunc TestGood(t *testing.T) {}\n'
MINITEST = 'require "minitest/autorun"\nclass CartTest < Minitest::Test\n  def test_good; assert true; end\n'
PHPUNIT = (
    "<?php\nuse PHPUnit\\Framework\\TestCase;\nfinal class CartTest extends TestCase {\n"
    "  public function testGood(): void { $this->assertTrue(true); }\n"
)
XUNIT = "using Xunit;\nnamespace Shop;\npublic class CartTest {\n  [Fact] public void Good() { }\n"
RUST = '[package]\nname = "shop"\nversion = "0.1.0"\nedition = "2021"\n'
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>s</groupId>
<artifactId>shop</artifactId><version>1</version><properties><maven.compiler.source>17</maven.compiler.source>
<maven.compiler.target>17</maven.compiler.target></properties><dependencies><dependency><groupId>junit</groupId>
<artifactId>junit</artifactId><version>4.13.2</version><scope>test</scope></dependency></dependencies></project>
"""
JARS = [Path("/usr/share/java") / name for name in ("junit4.jar", "hamcrest-core.jar")]
GRADLE = f"apply plugin: 'java'\ndependencies {{ testCompile files('{JARS[0]}', '{JARS[1]}') }}\n"
CSPROJ = """<Project Sdk="Microsoft.NET.Sdk"><PropertyGroup><TargetFramework>net8.0</TargetFramework></PropertyGroup>
<ItemGroup><PackageReference Include="Microsoft.NET.Test.Sdk" Version="17.*" />
<PackageReference Include="xunit" Version="2.*" /><PackageReference Include="xunit.runner.visualstudio" Version="2.*" />
</ItemGroup></Project>
"""


def package(script: str) -> dict[str, str]:
    return {"package.json": f'{{"name": "shop", "scripts": {{"test": "{script}"}}}}', ".gitignore": "node_modules\n"}


NODE = ("node", "npm")

CASES = [
    Case("pytest", {"pyproject.toml": "", ".gitignore": ".venv\n"}, "tests/test_cart.py", PYTEST, PYTEST_BAD,
         "tests/test_cart.py::test_bad", python="pytest"),
    Case("poetry", {"poetry.toml": '[virtualenvs]\npath = "envs"\n', "pyproject.toml": '[tool.poetry]\nname = "shop"\n'
         'version = "1"\ndescription = ""\nauthors = []\n[tool.poetry.dependencies]\npython = "*"\n',
         ".gitignore": "envs\n"},
         "tests/test_cart.py", PYTEST, PYTEST_BAD, "tests/test_cart.py::test_bad", ("poetry",), lacking="poetry",
         fix="poetry", python="bare"),
    Case("pdm", {"pyproject.toml": '[project]\nname = "shop"\nversion = "1"\nrequires-python = ">=3.8"\n[tool.pdm]\n',
         ".gitignore": ".pdm-python\n"},
         "tests/test_cart.py", PYTEST, PYTEST_BAD, "tests/test_cart.py::test_bad", ("pdm",), lacking="pdm", fix="pdm",
         python="bare"),
    Case("unittest", {"setup.py": ""}, "tests/test_cart.py", UNITTEST, UNITTEST_BAD, "test_cart.CartTest.test_bad",
         python="bare"),
    Case("tox", {"tox.ini": "[tox]\nenv_list = py\nno_package = true\n[testenv]\nskip_install = true\n"
         "commands = python -m unittest discover -v -s tests\n", "requirements.txt": "pytest\n",
         ".gitignore": "__pycache__\n"}, "tests/test_cart.py", UNITTEST, UNITTEST_BAD, "test_cart.CartTest.test_bad",
         ("tox",), lacking="tox", python="bare"),
    Case("nox", {"noxfile.py": 'import nox\n@nox.session(venv_backend="none")\ndef tests(session):\n    session.run('
         '"python3", "-m", "unittest", "discover", "-v", "-s", "tests")\n', "requirements.txt": "pytest\n"},
         "tests/test_cart.py", UNITTEST, UNITTEST_BAD, "test_cart.CartTest.test_bad", ("nox",), lacking="nox",
         python="bare"),
    Case("hatch", {"pyproject.toml": '[project]\nname = "shop"\nversion = "1"\n[tool.hatch.envs.hatch-test]\n'
         'dependencies = []\nskip-install = true\n[tool.hatch.envs.hatch-test.scripts]\n'
         'run = "python -m unittest discover -v -s tests"\n', "requirements.txt": "pytest\n"}, "tests/test_cart.py",
         UNITTEST, UNITTEST_BAD, "test_cart.CartTest.test_bad", ("hatch",), lacking="hatch", python="bare"),
    Case("node:test", package("node --test"), "test/cart.test.js", NODE_TEST, NODE_TEST_BAD, "is (bad)", NODE,
         lacking="npm", fix="install Node.js"),
    Case("jest", package("jest"), "cart.test.js", f"{JEST}}});\n", JEST_BAD, "cart is (bad)", NODE, "jest",
         lacking="npm", fix="install Node.js"),
    Case("vitest", package("vitest"), "cart.test.js", f"{VITEST}{JEST}}});\n", f"{VITEST}{JEST_BAD}", "cart is (bad)",
         NODE, "vitest", lacking="npm", fix="install Node.js"),
    Case("mocha", package("mocha"), "test/cart.js", f"{JEST}}});\n", JEST_BAD, "cart is (bad)", NODE, "mocha",
         lacking="npm", fix="install Node.js"),
    Case("bun", package("bun test"), "cart.test.js", f"{JEST}}});\n", JEST_BAD, "cart is (bad)", ("bun",)),
    Case("script", package("true && node --test"), "test/cart.test.js", NODE_TEST, NODE_TEST_BAD, "is (bad)", NODE,
         lacking="npm", fix="install Node.js"),
    Case("cargo", {"Cargo.toml": RUST, "src/lib.rs": "", ".gitignore": "target\n"}, "tests/cart.rs",
         "#[test]\nfn good() {}\n", "#[test]\nfn good() {}\n#[test]\nfn bad() { assert!(false) }\n", "bad", ("cargo",),
         lacking="cargo", fix="https://rustup.rs"),
    Case("go", {"go.mod": "module shop\n\ngo 1.19\n"}, "cart_test.go",
         GOTEST, f"{GOTEST}func TestBad(t *testing.T) {{ t.Fail() }}\n",
         "shop::TestBad", ("go",), lacking="go", fix="https://go.dev/dl"),
    Case("gradle", {"build.gradle": GRADLE, ".gitignore": ".gradle\nbuild\n"}, "src/test/java/CartTest.java",
         f"{JUNIT}}}\n", JUNIT_BAD, "CartTest.bad", ("gradle", "java"), lacking="gradle", fix="install Gradle"),
    Case("maven", {"pom.xml": POM, ".gitignore": "target\n"}, "src/test/java/CartTest.java", f"{JUNIT}}}\n", JUNIT_BAD,
         "CartTest#bad", ("mvn", "java"), lacking="mvn", fix="install Maven"),
    Case("rspec", {".rspec": "--color\n"}, "spec/cart_spec.rb", 'RSpec.describe("x") { it("good") { } }\n',
         'RSpec.describe("x") {\n it("good") { }\n it("bad") { expect(1).to eq 2 } }\n', "./spec/cart_spec.rb[1:2]",
         ("rspec",), lacking="rspec", fix="gem install rspec"),
    Case("minitest", {"Rakefile": 'require "rake/testtask"\nRake::TestTask.new(:test) { |t| t.pattern = '
         '"test/*_test.rb" }\n'}, "test/cart_test.rb", f"{MINITEST}end\n",
         f"{MINITEST}  def test_bad; assert_equal 1, 2; end\nend\n", "CartTest#test_bad", ("rake",), lacking="rake",
         fix="gem install rake"),
    Case("phpunit", {"phpunit.xml": "<phpunit><testsuites><testsuite name='all'><directory>tests</directory>"
         "</testsuite></testsuites></phpunit>\n"}, "tests/CartTest.php", f"{PHPUNIT}}}\n",
         f"{PHPUNIT}  public function testBad(): void {{ $this->assertSame(1, 2); }}\n}}\n", "CartTest::testBad",
         ("phpunit", "php"), lacking="phpunit", fix="phpunit/phpunit"),
    Case("mix", {"mix.exs": "defmodule Shop.MixProject do\n  use Mix.Project\n  def project, do: [app: :shop, version: "
         '"0.1.0"]\nend\n', "test/test_helper.exs": "ExUnit.start()\n"}, "test/cart_test.exs", f"{EXUNIT}end\n",
         f'{EXUNIT}  test "bad" do\n    assert 1 == 2\n  end\nend\n', "test/cart_test.exs:6", ("mix",), lacking="mix",
         fix="install Elixir"),
    Case("dotnet", {"Shop.csproj": CSPROJ, ".gitignore": "bin\nobj\n"}, "CartTest.cs", f"{XUNIT}}}\n",
         f"{XUNIT}  [Fact] public void Bad() {{ Assert.Equal(1, 2); }}\n}}\n", "Shop.CartTest.Bad", ("dotnet",),
         lacking="dotnet", fix="install .NET"),
    Case("make", {"Makefile": "test:\n\tpython3 -m unittest discover -v -s checks\n"}, "checks/test_cart.py", UNITTEST,
         UNITTEST_BAD, "test_cart.CartTest.test_bad", ("make",), lacking="make", fix="install make"),
    Case("just", {"justfile": "test:\n  python3 -m unittest discover -v -s checks\n"}, "checks/test_cart.py", UNITTEST,
         UNITTEST_BAD, "test_cart.CartTest.test_bad", ("just",), lacking="just", fix="https://just.systems"),
    Case("task", {"Taskfile.yml": "version: '3'\ntasks:\n  test:\n    cmds:\n      - python3 -m unittest discover -v"
         " -s checks\n"}, "checks/test_cart.py", UNITTEST, UNITTEST_BAD, "test_cart.CartTest.test_bad", ("task",),
         lacking="task", fix="https://taskfile.dev"),
]  # fmt: skip


def test_every_test_runner_has_a_case() -> None:
    assert [case.tool for case in CASES] == [row.name for row in TEST_RUNNERS]


def environment(folder: Path, *, with_pytest: bool) -> Path:
    """A real virtual environment, with the pytest of the one that runs these tests where it is asked for."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    if with_pytest:
        packages = next(folder.glob("lib/python3*/site-packages"))
        (packages / "here.pth").write_text(sysconfig.get_paths()["purelib"])
    return folder


@pytest.fixture
def set_up(repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Case], None]:
    """Commits the project of a case, with what it needs beside it; skips where that is not here."""

    def make(case: Case) -> None:
        for program in case.needs:
            if not program_answers(program):
                pytest.skip(f"needs {program}")
        if case.tool == "gradle" and not all(jar.exists() for jar in JARS):
            pytest.skip("needs JUnit 4 in /usr/share/java")
        modules = Path(os.environ.get("CLAWPY_NODE_MODULES", "/nowhere"))
        if case.package:
            if not (modules / case.package).is_dir():
                pytest.skip(f"needs {case.package} in CLAWPY_NODE_MODULES")
            (repository.path / "node_modules").symlink_to(modules, target_is_directory=True)
        monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
        repository.commit("begin", {**case.files, case.path: case.good})
        if case.python == "pytest":
            (repository.path / ".venv").symlink_to(sys.prefix, target_is_directory=True)
        if case.python == "bare":
            bare = environment(tmp_path / "bare", with_pytest=False)
            monkeypatch.setenv("PATH", f"{bare}/bin{os.pathsep}{os.environ['PATH']}")
        if case.tool == "poetry":
            digest = hashlib.sha256(os.path.realpath(repository.path).encode()).digest()
            name = f"shop-{base64.urlsafe_b64encode(digest).decode()[:8]}-py{sys.version_info[0]}.{sys.version_info[1]}"
            environment(repository.path / "envs" / name, with_pytest=True)
        if case.tool == "pdm":
            elsewhere = environment(tmp_path / "elsewhere", with_pytest=True)
            repository.write(".pdm-python", f"{elsewhere}/bin/python")

    return make


@pytest.mark.long
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.tool)
def test_passing_and_failing_tests_are_read_from_the_tool(
    case: Case, repository: Repository, run_flow: RunFlow, set_up: Callable[[Case], None]
) -> None:
    set_up(case)
    try:
        passing = run_flow("run_tests").check
    except CannotRun as error:
        if "no network" not in error.message:
            raise
        pytest.skip(f"{case.tool} has no packages here: {error.message}")
    assert (passing.tool, passing.passed, passing.failed, passing.errors) == (case.tool, 1, 0, 0)
    repository.write(case.path, case.bad)
    failing = run_flow("run_tests").check
    assert (failing.passed, failing.failed, failing.failing) == (1, 1, (case.failing,))
    row = next(row for row in TEST_RUNNERS if row.name == case.tool)
    if row.single:
        alone = run_flow("run_tests", tests=[case.failing]).check
        assert (alone.passed, alone.failed, alone.failing) == (0, 1, (case.failing,))
    changed = repository.git("status", "--porcelain").splitlines()
    assert [line for line in changed if line[3:] != case.path and not line.endswith(case.path)] == []


@pytest.mark.parametrize("case", [case for case in CASES if case.lacking], ids=lambda case: case.tool)
def test_a_missing_tool_is_named_with_its_fix(
    case: Case,
    repository: Repository,
    run_flow: RunFlow,
    without: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    repository.commit("begin", {**case.files, case.path: case.good})
    without(case.lacking, *(["python3"] if case.python == "bare" else []))
    if case.tool == "pdm":
        repository.write(".pdm-python", "/nowhere/python")
    if case.python == "bare":
        bare = environment(tmp_path / "bare", with_pytest=False)
        monkeypatch.setenv("PATH", f"{bare}/bin{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(CannotRun, match=case.lacking) as error:
        run_flow("run_tests")
    assert case.fix in error.value.fix
    assert error.value.fix


BELOW = {
    "packages/py/pyproject.toml": '[project]\nname = "cart"\n',
    "packages/py/cart.py": "def total(prices):\n    return sum(prices)\n",
    "packages/py/tests/test_cart.py": "from cart import total\n\ndef test_total():\n    assert total([1, 2]) == 3\n",
}


@pytest.fixture
def shop_below(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """A repository whose top has no tests; the one project below it has its own environment."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    repository.commit("begin", {".gitignore": ".venv\n", "README.md": "", **BELOW})
    (repository.path / "packages/py/.venv").symlink_to(sys.prefix, target_is_directory=True)
    return repository


@pytest.mark.long
def test_tests_of_a_project_below_run_in_its_folder_and_environment(shop_below: Repository, run_flow: RunFlow) -> None:
    run = run_flow("run_tests", project="packages/py", paths=["packages/py/cart.py", "README.md"])
    assert (run.check.passed, run.result.full) == (1, False)
    assert run.facts["tests_by_path"] == {"packages/py/cart.py": ["tests/test_cart.py"]}
    assert run.summary.endswith(" in packages/py (only the tests of this change)")
    assert run.session.commands[0][0] == str(shop_below.path / "packages/py/.venv/bin/python")


def test_the_top_names_the_projects_with_tests(shop_below: Repository, run_flow: RunFlow) -> None:
    with pytest.raises(CannotRun, match="the tests are in packages/py"):
        run_flow("run_tests")


@pytest.mark.parametrize(
    ("check", "words"),
    [
        (CheckResult("pytest", 23, 0, seconds=1.25), "all 23 tests passed in 1.2 s"),
        (CheckResult("pytest", 1, 0, skipped=2), "the one test passed in <0.1 s, 2 skipped"),
        (CheckResult("pytest", 1, 1, failing=("a",)), "1 of 2 tests failed in <0.1 s: a"),
        (
            CheckResult("pytest", 3, 1, errors=1, failing=("a", "b")),
            "1 of 4 tests failed and 1 error in <0.1 s: a and b",
        ),
        (CheckResult("pytest", 3, 0, errors=1, failing=("a",)), "1 error, 3 tests passed in <0.1 s: a"),
        (CheckResult("pytest", 0, 0, errors=2, failing=("a", "b")), "2 errors, no tests ran in <0.1 s: a and b"),
        (CheckResult("pytest", 0, 0, skipped=2), "no tests ran, 2 skipped"),
    ],
)
def test_results_in_words(check: CheckResult, words: str) -> None:
    assert describe_check(check) == words
