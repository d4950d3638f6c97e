"""No modules import each other in a circle, even for types only and inside functions (ARCHITECTURE rule 1)."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILES = {
    ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file
    for package in ("engine", "clawpy_console")
    for file in (ROOT / package).rglob("*.py")
}


def find_imports(module: str) -> set[str]:
    modules = set()
    for node in ast.walk(ast.parse(FILES[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module in FILES:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                modules.add(name if name in FILES else node.module)
        elif isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names if alias.name in FILES}
    return modules - {module, "engine"}


def test_no_modules_import_each_other_in_a_circle():
    graph = {module: find_imports(module) for module in FILES}
    assert len(list(TopologicalSorter(graph).static_order())) >= len(FILES) - 1
