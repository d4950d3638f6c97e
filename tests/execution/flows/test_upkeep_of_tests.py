"""Unreliable tests are skipped until a day, and slow ones are timed at two commits."""

from __future__ import annotations

import ast
from datetime import date

import pytest

from engine.execution.runners.flow import FlowError
from engine.execution.runners.flows.quarantine import add_skip_mark
from engine.git.quarantine import Quarantined, quarantined_in_file
from tests.conftest import Repository
from tests.execution.flows.conftest import RunFlow

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
    assert quarantined_in_file("t.py", after.split("\n")) == [Quarantined("::".join(["t.py", *names]), DAY)]
    lines = ast.parse(after).body
    assert ast.unparse(ast.parse(text).body[-1]).splitlines()[-1] in ast.unparse(lines[-1])
    assert add_skip_mark(after, names, DAY, "again") is None
    later = add_skip_mark(after, names, date(2027, 1, 1), "again")
    assert later is not None
    assert "2026-12-07" not in later
    assert later.count("import pytest") == 1


@pytest.mark.long
def test_a_test_is_really_skipped(project: Repository, run_flow: RunFlow) -> None:
    project.commit("one", {"tests/test_a.py": "def test_a():\n    assert 0\n\ndef test_b():\n    pass\n"})
    ran = run_flow("quarantine", tests=["tests/test_a.py::test_a"], until="2999-12-07")
    assert ran.result.check is not None
    assert (ran.result.check.skipped, ran.result.check.passed, ran.result.check.failed) == (1, 1, 0)
    assert "assert 0" in (ran.folder / "tests/test_a.py").read_text()
    with pytest.raises(FlowError, match="only pytest tests"):
        run_flow("quarantine", tests=["../x.py::test_a"], until="2999-12-07")


@pytest.mark.long
def test_slower_than_it_was(project: Repository, run_flow: RunFlow) -> None:
    test = "from work import work\n\ndef test_a():\n    assert work()\n"
    fast = project.commit("fast", {"work.py": "def work():\n    return 1\n", "tests/test_a.py": test})
    project.commit("slow", {"work.py": "def work():\n    return sum(i * i for i in range(1_000_000))\n"})
    ran = run_flow("time_tests", tests=["tests/test_a.py::test_a"], fast=fast, times=2)
    assert ran.result.facts["slower"] == 1
    assert ran.result.summary.endswith((" times as long", ": slower"))
    assert f"git log --oneline {fast[:10]}..HEAD" in ran.bench.text
