"""A check of the inspection that fails is named, and tried again only after a change (SPEC 2.1)."""

from engine.git.reader import GitReader
from tests.conftest import MONDAY_MORNING as NOW
from tests.conftest import Repository


def test_a_check_that_fails_is_named_and_tried_again_after_a_change(repository: Repository):
    """What HEAD has of the changed file is missing in git."""
    repository.commit("begin", {"a.py": "1\n"})
    repository.write("a.py", "breakpoint()\n")
    blob = repository.git("rev-parse", "HEAD:a.py")
    object_file = repository.path / ".git/objects" / blob[:2] / blob[2:]
    content = object_file.read_bytes()
    object_file.unlink()
    reader = GitReader()
    state = reader.read(repository.path)
    unknown = reader.inspect(repository.path, state, NOW, NOW).unknown
    assert set(unknown) == {"uncommitted", "own"}, "they compare what you changed with what git has"
    object_file.write_bytes(content)
    assert reader.inspect(repository.path, state, NOW, NOW).unknown == unknown, "it is not tried again at once"
    repository.write("a.py", "x = 1\nbreakpoint()\n")
    assert reader.inspect(repository.path, reader.read(repository.path), NOW, NOW).unknown == {}
