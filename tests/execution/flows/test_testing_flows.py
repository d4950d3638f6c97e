"""Flows that run tests: real pytest, cargo and node on small real projects."""

from __future__ import annotations

import ast
import shutil
from datetime import date
from pathlib import Path

import pytest

from engine.execution.runners.flow import FlowError
from engine.execution.runners.flows.failure_causes import Cause, cause_of
from engine.execution.runners.flows.suite_runs import how_to_run_tests
from engine.execution.runners.flows.unreliable_tests import add_skip_mark
from engine.execution.runners.toolchains.detection import ProjectFolder, environment_command
from engine.execution.runners.toolchains.projects import find_projects
from engine.git.leftovers import QuarantinedTest, quarantined_tests_in_file
from tests.conftest import Repository
from tests.execution.flows.conftest import RunFlow

CART = "def total(prices):\n    return sum(prices)\n"
TEST_CART = "from shop.cart import total\n\ndef test_total():\n    assert total([1, 2]) == 3\n"
TEST_TAX = "def test_tax():\n    assert True\n"


def shop(project: Repository) -> str:
    return project.commit(
        "shop",
        {
            "shop/__init__.py": "",
            "shop/cart.py": CART,
            "tests/test_cart.py": TEST_CART,
            "tests/test_tax.py": TEST_TAX,
        },
    )


# -- run_tests ------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_only_the_tests_of_changed_files_run(project: Repository, run_flow: RunFlow) -> None:
    shop(project)
    ran = run_flow("run_tests", paths=["shop/cart.py", "README.md"])
    assert ran.result.check is not None
    assert (ran.result.check.passed, ran.result.check.failed) == (1, 0)
    assert not ran.result.full
    assert ran.result.facts["tests_by_path"] == {"shop/cart.py": ["tests/test_cart.py"]}
    assert "shop/cart.py → tests/test_cart.py" in ran.bench.text
    assert project.git("status", "--porcelain") == ""
    assert not list(project.path.rglob("__pycache__"))


UV = '[project]\nname = "shop"\ndependencies = ["sqlalchemy_not_here"]\n[tool.uv]\n'


@pytest.mark.long
@pytest.mark.parametrize("place", ["conftest.py", "shop/cart.py"])
def test_what_is_not_installed_is_no_red_test(project: Repository, run_flow: RunFlow, place: str) -> None:
    shop(project)
    project.git("rm", "-q", "tests/test_tax.py")
    project.write(place, "import sqlalchemy_not_here\n")
    with pytest.raises(FlowError) as caught:
        run_flow("run_tests")
    assert caught.value.message == "pytest cannot run: the package `sqlalchemy_not_here` is not installed"
    assert caught.value.fix.endswith("bin/pip install pytest")
    project.write("pyproject.toml", UV + '[dependency-groups]\ndev = ["pytest"]\n')
    with pytest.raises(FlowError) as caught:
        run_flow("run_tests")
    assert caught.value.fix == "uv sync"


@pytest.mark.long
def test_a_module_of_the_project_that_cannot_be_imported_is_red(project: Repository, run_flow: RunFlow) -> None:
    shop(project)
    project.git("rm", "-q", "tests/test_tax.py")
    project.write("shop/cart.py", "import shop.gone\n")
    check = run_flow("run_tests").result.check
    assert check is not None
    assert (check.errors, check.failing) == (1, ("tests/test_cart.py",))


@pytest.mark.parametrize(
    ("files", "command"),
    [
        ({}, "python3 -m venv .venv && .venv/bin/pip install pytest"),
        ({"requirements.txt": ""}, "python3 -m venv .venv && .venv/bin/pip install pytest -r requirements.txt"),
        ({"setup.py": ""}, "python3 -m venv .venv && .venv/bin/pip install pytest -e ."),
        ({"venv/bin/pip": "", "pyproject.toml": "[project]"}, "venv/bin/pip install pytest -e ."),
        ({"uv.lock": "", "pyproject.toml": ""}, "uv add --dev pytest"),
        ({"uv.lock": "", "pyproject.toml": 'dev = ["pytest"]'}, "uv sync"),
        ({"uv.lock": "", "pyproject.toml": "[tool.pytest.ini_options]"}, "uv add --dev pytest"),
        ({"pyproject.toml": "[tool.poetry]\npytest = '*'"}, "poetry install"),
        ({"poetry.lock": "", "pyproject.toml": ""}, "poetry add --group dev pytest"),
        ({"pdm.lock": "", "pyproject.toml": 'dev = ["pytest"]'}, "pdm sync -d"),
        ({"pdm.lock": "", "pyproject.toml": ""}, "pdm add -d pytest"),
        ({"pyproject.toml": '[dependency-groups]\ndev = ["pytest"]'}, "uv sync"),
        (
            {"pyproject.toml": '[project]\n[dependency-groups]\ndev = ["pytest"]', ".venv/bin/pip": ""},
            ".venv/bin/pip install pytest -e .",
        ),
        (
            {"pyproject.toml": '[project.optional-dependencies]\ntest = ["pytest"]\n[project]', ".venv/bin/pip": ""},
            ".venv/bin/pip install pytest -e '.[test]'",
        ),
        ({"pyproject.toml": '[dependency-groups]\ntest = ["pytest>=8"]'}, "uv sync --group test"),
        ({"uv.lock": "", "pyproject.toml": '[project.optional-dependencies]\nci = ["pytest"]'}, "uv sync --extra ci"),
        ({"uv.lock": "", "pyproject.toml": '[project]\ndependencies = ["pytest"]'}, "uv sync"),
        ({"uv.lock": "", "pyproject.toml": '[tool.uv]\ndev-dependencies = ["pytest"]'}, "uv sync"),
        ({"uv.lock": "", "pyproject.toml": 'project = 3\nneeds = ["pytest"]'}, "uv sync"),
        ({"Pipfile": ""}, "pipenv install --dev pytest"),
        ({"Pipfile": "[dev-packages]\npytest = '*'"}, "pipenv install --dev"),
    ],
)
def test_the_command_that_makes_an_environment(tmp_path: Path, files: dict[str, str], command: str) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert environment_command(ProjectFolder.of_operator(tmp_path, tmp_path)) == command


@pytest.mark.long
@pytest.mark.skipif(shutil.which("npm") is None, reason="needs npm")
def test_a_tool_that_cannot_run_does_not_hide_another(project: Repository, run_flow: RunFlow) -> None:
    script = "console.log('Tests:       3 passed, 3 total')"
    project.commit(
        "web", {"test_a.py": "x = 1\n", "package.json": f'{{"scripts": {{"test": "node -e \\"{script}\\""}}}}'}
    )
    ran = run_flow("run_tests")
    assert ran.result.check is not None
    assert (ran.result.check.tool, ran.result.check.passed, ran.result.full) == ("script", 3, False)
    assert "pytest found no tests" in ran.bench.text


# -- bisect ---------------------------------------------------------------------------------------------------------


def history(project: Repository) -> list[str]:
    """Good, good, unrunnable, bad, bad; with an uncommitted edit on top."""
    shas = [shop(project)]
    shas.append(project.commit("docs", {"README.md": "a shop"}))
    shas.append(project.commit("half a refactoring", {"shop/cart.py": "def total(prices:\n"}))
    shas.append(project.commit("round the total", {"shop/cart.py": CART.replace("sum(prices)", "sum(prices) + 1")}))
    shas.append(project.commit("more docs", {"README.md": "a big shop"}))
    project.write("shop/cart.py", CART)
    project.write("tests/untracked.txt", "mine")
    return shas


@pytest.mark.long
def test_bisect_skips_what_cannot_run_and_names_the_candidates(project: Repository, run_flow: RunFlow) -> None:
    shas = history(project)
    ran = run_flow("bisect", test="tests/test_cart.py::test_total", good=shas[0], bad="HEAD")
    assert ran.result.facts["skipped"] == [shas[2]]
    assert set(ran.result.facts["candidates"]) == {shas[2], shas[3]}
    assert project.path.joinpath("tests/untracked.txt").read_text() == "mine"


@pytest.mark.long
def test_bisect_checks_both_ends(repository: Repository, run_flow: RunFlow) -> None:
    first = repository.commit("begin", {"Makefile": "test:\n\tgrep -q well state\n", "state": "well\n"})
    last = repository.commit("docs", {"README.md": "a shop"})
    with pytest.raises(FlowError, match="passes at"):
        run_flow("bisect", test="make test", good=first, bad=last)
    with pytest.raises(FlowError, match="not an ancestor"):
        run_flow("bisect", test="make test", good=last, bad=first)
    broken = repository.commit("break", {"state": "ill\n"})
    repository.commit("still", {"README.md": "x"})
    with pytest.raises(FlowError, match="does not pass at"):
        run_flow("bisect", test="make test", good=broken, bad="HEAD")


@pytest.mark.long
def test_bisect_follows_merges_and_whole_suites(repository: Repository, run_flow: RunFlow) -> None:
    first = repository.commit("begin", {"Makefile": "test:\n\tgrep -q well state\n", "state": "well\n"})
    repository.git("checkout", "-q", "-b", "side")
    repository.commit("side docs", {"side.md": "1"})
    culprit = repository.commit("side breaks it", {"state": "ill\n"})
    repository.commit("side docs again", {"side.md": "2"})
    repository.git("checkout", "-q", "main")
    repository.commit("main docs", {"README.md": "a shop"})
    repository.git("merge", "-q", "--no-ff", "-m", "merge", "side")
    repository.commit("more docs", {"README.md": "a big shop"})
    assert run_flow("bisect", test="make test", good=first).result.facts["culprit"] == culprit


# -- rehearse_merge -------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_merge_rehearsed_clean_and_tested(project: Repository, run_flow: RunFlow) -> None:
    shop(project)
    project.git("checkout", "-q", "-b", "feature")
    project.commit("callers want 3", {"tests/test_more.py": TEST_CART.replace("test_total", "test_more")})
    project.git("checkout", "-q", "main")
    project.commit("total changes", {"shop/cart.py": CART.replace("sum(prices)", "sum(prices) + 1"),
                                     "tests/test_cart.py": TEST_CART.replace("== 3", "== 4")})  # fmt: skip
    project.write("shop/cart.py", "uncommitted rubbish(")
    heads = project.git("rev-parse", "main", "feature")
    ran = run_flow("rehearse_merge", source="feature", target="main")
    assert "merges cleanly" in ran.result.summary
    assert "but 1 of 3 tests failed" in ran.result.summary
    assert ran.result.full
    assert project.git("rev-parse", "main", "feature") == heads
    assert (ran.folder / "tests/test_more.py").exists()  # what is recorded is the state of the merged tree
    assert "+ 1" in (ran.folder / "shop/cart.py").read_text()


# -- hunt_flakes ----------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_flaky_steady_and_broken_are_told_apart(project: Repository, run_flow: RunFlow) -> None:
    counter = project.path / ".git" / "counter"
    body = f"""from pathlib import Path
def test_flaky():
    file = Path({str(counter)!r})
    n = int(file.read_text()) + 1 if file.exists() else 1
    file.write_text(str(n))
    assert n % 3
def test_steady(): pass
def test_broken(): assert 0
"""
    project.commit("flaky", {"test_x.py": body})
    ran = run_flow("hunt_flakes", tests=["test_x.py"], times=3)
    verdicts = {fact["test"]: (fact["verdict"], fact["failed"], fact["runs"]) for fact in ran.result.facts["tests"]}
    assert verdicts == {
        "test_x.py::test_flaky": ("flaky", 1, 3),
        "test_x.py::test_steady": ("steady", 0, 3),
        "test_x.py::test_broken": ("broken", 3, 3),
    }
    assert ran.result.summary.startswith("1 flaky: test_x.py::test_flaky (1 of 3); 1 broken")


# -- check_clean_head -----------------------------------------------------------------------------------------------


@pytest.mark.long
def test_head_without_the_uncommitted_files(project: Repository, run_flow: RunFlow) -> None:
    shop(project)
    project.commit("uses a helper", {"tests/test_tax.py": "def test_tax():\n    import shop.tax\n"})
    project.write("shop/tax.py", "RATE = 2\n")
    ran = run_flow("check_clean_head", files=["shop/tax.py"])
    assert ran.result.check is not None
    assert ran.result.check.failing == ("tests/test_tax.py::test_tax",)
    assert ran.result.facts["left_out"] == ["shop/tax.py"]
    assert ran.result.facts["passes_with_files"] == ["tests/test_tax.py::test_tax"]
    assert "1 of them pass" in ran.result.summary
    assert not (ran.folder / "shop/tax.py").exists()  # what is recorded is the state of HEAD alone
    assert (project.path / "shop/tax.py").exists()
    project.git("add", "-A")
    project.commit("helper")
    assert run_flow("check_clean_head").result.summary.startswith("HEAD is complete: all 2 tests passed")


def test_tests_without_pytest_are_known_with_the_command_that_brings_it(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "engine.execution.runners.toolchains.python_projects.find_interpreters", lambda workspace, top: []
    )
    folder = repository.path
    repository.write("pyproject.toml", '[project]\nname = "shop"\n')
    assert find_projects(folder)[0].missing_tool == "", "no tests, nothing to install for them"
    repository.write("tests/unit/test_cart.py", "")
    assert find_projects(folder)[0].missing_tool == "pytest"
    assert (
        environment_command(ProjectFolder.of_operator(folder, folder))
        == "python3 -m venv .venv && .venv/bin/pip install pytest -e ."
    )
    repository.write("uv.lock", "")
    assert environment_command(ProjectFolder.of_operator(folder, folder)) == "uv add --dev pytest"
    assert how_to_run_tests(find_projects(folder)[0], folder) == "uv add --dev pytest"


# Which failures are one and the same.


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "tests/a.py:3: in test_a\n    f()\nsrc/b.py:7: in f\n    g()\n/x/site-packages/c.py:1: in g\n"
            "E   shop.errors.PriceError: 12 of /tmp/x/y at 0x7f12\n",
            Cause("PriceError", "N of /… at ADDRESS", "src/b.py:7"),
        ),
        ("E   assert 3 == 4\n", Cause("", "assert N == N", "")),
        (
            "TypeError: a.b is not a function\n    at f (node:internal/x:1:2)\n    at g (/repo/lib/a.js:3:5)\n"
            "    at h (/repo/test/a.js:9:1)",
            Cause("TypeError", "a.b is not a function", "lib/a.js:3"),
        ),
        (
            "thread 'x' panicked at src/lib.rs:5:9:\nassertion failed: 1 > 2\n",
            Cause("", "assertion failed: N > N", "src/lib.rs:5"),
        ),
        ("    cart_test.go:12: got 3, want 4\n", Cause("", "got N, want N", "cart_test.go:12")),
        ("", Cause("", "", "")),
    ],
)
def test_causes(text: str, expected: Cause) -> None:
    assert cause_of(text, "/repo") == expected


@pytest.mark.parametrize(
    ("cause", "signature"),
    [
        (Cause("KeyError", "'a'", "src/cart.py:7"), "KeyError: 'a' in src/cart.py"),
        (Cause("", "assert N == N", "tests/test_cart.py:3"), "failed: assert N == N in tests/test_cart.py::test_a"),
        (Cause("KeyError", "'a'", ""), ""),  # where it came from is not told
        (Cause("", "", "src/cart.py:7"), ""),
    ],
)
def test_the_signature_is_the_error_and_its_file_or_the_test_where_it_is_an_assertion(
    cause: Cause, signature: str
) -> None:
    assert cause.signature_of("tests/test_cart.py::test_a") == signature


def test_failures_that_differ_by_chance_and_by_line_have_one_signature() -> None:
    def text(line: int, price: int) -> str:
        return (
            f"tests/t.py:3: in test_a\n    f()\nsrc/b.py:{line}: in f\n    g()\nE   ValueError: {price} is too much\n"
        )

    assert len({cause_of(text(line, 3 * line), "/repo").signature_of("tests/t.py::test_a") for line in (7, 12)}) == 1


# Unreliable tests are skipped until a day, and slow ones are timed at two commits.


DAY = date(2026, 12, 7)
FILES = [
    ("def test_a():\n    pass\n", ["test_a"]),
    ('"""Doc."""\n\nfrom __future__ import annotations\n\nimport os\n\nimport pytest\n\n\nclass TestA:\n'
     "    @pytest.mark.x\n    async def test_b(self, date):\n        pass\n", ["TestA", "test_b"]),
    ("from cart import total\n\ndef test_a():\n    pass\n", ["test_a"]),
    ('"""Doc."""\n\nimport os\nimport sys\nfrom cart import total\n\ndef test_a():\n    pass\n', ["test_a"]),
    ("from datetime import date as d\nimport pytest\r\n\r\ndef test_a():\r\n    pass\r\n", ["test_a"]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "names"), FILES)
def test_the_skip_names_its_end_and_is_found_again(text: str, names: list[str]) -> None:
    after = add_skip_mark(text, names, DAY, "flaky: failed 3 of 20")
    assert after is not None
    assert quarantined_tests_in_file("t.py", after.split("\n")) == [QuarantinedTest("::".join(["t.py", *names]), DAY)]
    lines = ast.parse(after).body
    assert ast.unparse(ast.parse(text).body[-1]).splitlines()[-1] in ast.unparse(lines[-1])
    assert add_skip_mark(after, names, DAY, "again") is None
    later = add_skip_mark(after, names, date(2027, 1, 1), "again")
    assert later is not None
    assert "2026-12-07" not in later
    assert later.count("import pytest") == 1


@pytest.mark.long
def test_slower_than_it_was(project: Repository, run_flow: RunFlow) -> None:
    test = "from work import work\n\ndef test_a():\n    assert work()\n"
    fast = project.commit("fast", {"work.py": "def work():\n    return 1\n", "tests/test_a.py": test})
    project.commit("slow", {"work.py": "def work():\n    return sum(i * i for i in range(1_000_000))\n"})
    ran = run_flow("time_tests", tests=["tests/test_a.py::test_a"], fast=fast, times=2)
    assert ran.result.facts["slower"] == 1
    assert ran.result.summary.endswith((" times as long", ": slower"))
    assert f"git log --oneline {fast[:10]}..HEAD" in ran.bench.text
