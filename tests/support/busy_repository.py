"""A repository in which much goes on: five cards, and tests that stream."""

from pathlib import Path

from tests.support.repository import Repository

STREAM = r"""
import sys, time
began = time.perf_counter()
for number in range(1, 120_001):
    sys.stdout.write(f"line {number:06d} of a long build, with enough words to fill a terminal's width somewhat\n")
    if number % 50 == 0:
        sys.stdout.flush()
        time.sleep(max(0.0, began + number / 1000 - time.perf_counter()))
"""
"""A program that prints 1,000 lines a second."""


def make_busy_repository(folder: Path) -> Repository:
    """A project whose tests stream, with enough going on for five cards."""
    repository = Repository(folder)
    repository.commit("feat: stream", {"stream.py": STREAM, "Makefile": "test:\n\t@python3 stream.py\n"})
    repository.git("tag", "v1.0")
    for number in range(4):
        repository.commit(f"feat: part {number}", {f"part{number}.py": f"VALUE = {number}\n"})
    for name in ("feature/coupons", "feature/search"):
        repository.git("branch", name, "HEAD~2")
    repository.write("part0.py", "VALUE = 10\n")
    return repository
