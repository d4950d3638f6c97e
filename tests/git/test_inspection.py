"""What cards are offered about is found: due merges, tests in quarantine, and a check that fails (SPEC 2.1)."""

from collections.abc import Callable
from datetime import date

from engine.git import Git
from engine.git.inspection import Inspection, QuarantinedTest, read_quarantined_tests
from engine.git.reader import GitReader
from tests.support import MONDAY_MORNING as NOW
from tests.support.repository import Repository


def make_inspector(repository: Repository) -> Callable[[], Inspection]:
    """Inspects the repository, each time with what the same reader remembers."""
    reader = GitReader()
    return lambda: reader.inspect(repository.path, reader.read(repository.path), NOW, NOW)


def test_a_merge_is_due_for_a_branch_with_commits_of_its_own(repository: Repository):
    repository.commit("begin", {"a.txt": "1\n"})
    repository.git("branch", "topic")
    repository.commit("main goes on", {"a.txt": "2\n"})
    repository.git("switch", "-q", "topic")
    inspect = make_inspector(repository)
    assert inspect().merges == ()
    repository.commit("own", {"b.txt": "1\n"})
    merges = inspect().merges
    assert [(merge.source, merge.behind, merge.ahead) for merge in merges] == [("main", 1, 1)]


def test_a_check_that_fails_is_named_and_tried_again_after_a_change(repository: Repository):
    """What HEAD has of the changed file is missing in git."""
    repository.commit("begin", {"a.py": "1\n"})
    repository.write("a.py", "breakpoint()\n")
    blob = repository.git("rev-parse", "HEAD:a.py")
    object_file = repository.path / ".git/objects" / blob[:2] / blob[2:]
    content = object_file.read_bytes()
    object_file.unlink()
    inspect = make_inspector(repository)
    unknown = inspect().unknown
    assert set(unknown) == {"uncommitted", "own"}, "they compare what you changed with what git has"
    object_file.write_bytes(content)
    assert inspect().unknown == unknown, "it is not tried again at once"
    repository.write("a.py", "x = 1\nbreakpoint()\n")
    assert inspect().unknown == {}


def test_quarantined_tests_are_found_with_their_last_day(repository: Repository):
    quarantined = (
        "class TestCart:\n    def test_0(self):\n        pass\n\n"
        '    @pytest.mark.skip(reason="quarantined until 2026-02-01")\n    async def test_1(self):\n        pass\n'
        '@pytest.mark.skip(reason="quarantined until 2026-03-01")\nclass TestTax:\n    def helper(self): ...\n'
        "    def test_2(self):\n        pass\n    def test_3(self):\n        pass\ndef test_4():\n    pass\n"
    )
    named_only = "TEXT = '@pytest.mark.skip(reason=\"quarantined until 2026-02-01\")'\ndef test_b():\n    pass\n"
    repository.commit("tests", {"ü b/test_c.py": quarantined, "tests/test_other.py": named_only})
    assert read_quarantined_tests(Git(repository.path), "HEAD") == (
        QuarantinedTest("ü b/test_c.py::TestCart::test_1", date(2026, 2, 1)),
        QuarantinedTest("ü b/test_c.py::TestTax::test_2", date(2026, 3, 1)),
        QuarantinedTest("ü b/test_c.py::TestTax::test_3", date(2026, 3, 1)),
    )
