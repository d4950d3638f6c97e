"""No modules import each other in a circle, even for types only and inside functions (ARCHITECTURE rule 1)."""

import re
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILES = {
    ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file
    for package in ("engine", "clawpy_console")
    for file in (ROOT / package).rglob("*.py")
}

IMPORT = re.compile(r"^ *(?:from (\S+) )?import (\([^)]*\)|.+)$", re.MULTILINE)
"""A statement that imports. To parse all modules takes three seconds."""


def find_imports(module: str) -> set[str]:
    """The modules of the product that a module imports. `engine` is left out: its names are loaded at their use."""
    modules = set()
    for source, names in IMPORT.findall(FILES[module].read_text(encoding="utf-8")):
        for name in re.findall(r"([\w.*]+)(?: as \w+)?", names):
            full_name = f"{source}.{name}" if source else name
            modules.add(full_name if full_name in FILES else source)
    return (modules & FILES.keys()) - {module, "engine"}


def test_no_modules_import_each_other_in_a_circle():
    graph = {module: find_imports(module) for module in FILES}
    assert sum(map(len, graph.values())) > 3 * len(FILES), "imports are found"
    TopologicalSorter(graph).prepare()
