"""Which tests are collected and marked as slow, as hooks of pytest."""

import gc
import re
from pathlib import Path

import pytest

SLOW_MARKERS = {"benchmark", "faults", "long", "model"}
SLOW_FIXTURES = {"model_host", "repository"}
SLOW_FOLDERS = {
    "api", "attach", "attacks", "bad_input", "benchmarks", "cli", "console", "execution", "faults", "local_model",
    "seeds", "simulation", "situations",
}  # fmt: skip
"""The marks, fixtures and folders by which a test is slow. A module may also say so itself."""

FOLDERS_BY_MARK = {"slow": SLOW_FOLDERS, "benchmark": {"benchmarks"}, "model": {"local_model"}}
"""The folders in which every test has a mark."""

TESTS = Path(__file__).parent


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import what `-m` leaves out as a whole, because imports take a second or two: the folders of a mark, and
    modules that have one in their `pytestmark`."""
    if not re.fullmatch(r"not \w+( and not \w+)*", config.option.markexpr):
        return None
    left_out = config.option.markexpr.removeprefix("not ").split(" and not ")
    if collection_path.parent == TESTS and collection_path.is_dir():
        return any(collection_path.name in FOLDERS_BY_MARK.get(mark, ()) for mark in left_out) or None
    if not collection_path.match("test_*.py"):
        return None
    marks = "|".join(SLOW_MARKERS | {"slow"} if "slow" in left_out else left_out)
    own_marks = rf"^pytestmark = pytest\.mark\.({marks})$"
    return re.search(own_marks, collection_path.read_text(encoding="utf-8"), re.MULTILINE) is not None or None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]):
    """Mark tests as `slow` that start a process, a server or a whole console, or parse the whole source. The rest,
    `-m "not slow"`, takes half a minute."""
    for item in items:
        folder = item.path.relative_to(TESTS).parts[0]
        fixtures = SLOW_FIXTURES & set(getattr(item, "fixturenames", ()))
        names = {folder, *(mark.name for mark in item.iter_markers())}
        if fixtures or not names.isdisjoint(SLOW_FOLDERS | SLOW_MARKERS):
            item.add_marker("slow")


def pytest_collection_finish():
    """Collect garbage seldom. What was imported and collected so far stays to the end. A screen consists of tens of
    thousands of small objects, and a search for garbage after every 700 of them took two fifths of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
