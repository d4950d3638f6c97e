"""Stand-ins of the engine have the same methods as the real services, so that a rename cannot be forgotten there."""

import ast
import importlib
import inspect
import re
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine import services
from engine.clock import FakeClock
from engine.home import Home
from tests.api.stand_in import StandIn as ApiStandIn
from tests.console.stand_in import StandIn as ConsoleStandIn

pytestmark = pytest.mark.slow

TEST_METHODS = {"fill", "note", "things", "add", "hold", "preview", "forget"}
"""Methods that only tests call, and those of `knowledge.forgetting`, which a stand-in answers itself."""


@cache
def list_services() -> dict[str, set[str]]:
    """By attribute of `Services`, the names of the methods and attributes of its class."""
    tree = ast.parse(inspect.getsource(services))
    imports = {
        alias.name: node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    fields = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Services").body
    return {
        field.target.id: list_names(getattr(importlib.import_module(imports[name]), name))
        for field in fields
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if (name := re.match(r"\w*", ast.unparse(field.annotation))[0]) in imports
    }


def list_names(service: type) -> set[str]:
    """The names of the methods and attributes of a class."""
    assigned = re.compile(r"self\.(\w+)\b[^=\n]*=")
    bases = [base for base in service.__mro__ if base.__module__.startswith("engine.")]
    return {*dir(service), *(name for base in bases for name in assigned.findall(inspect.getsource(base)))}


@pytest.fixture(params=["api", "console"])
def stand_in(request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock) -> Any:
    return ApiStandIn(Home.locate(tmp_path), clock) if request.param == "api" else ConsoleStandIn()


def test_a_stand_in_has_no_method_that_the_service_lacks(stand_in: Any):
    names = list_services()
    replaced = {service: value for service, value in vars(stand_in).items() if service in names}
    missing = []
    for service, value in replaced.items():
        if type(value).__module__.startswith("engine."):
            continue
        # One object may stand for several services.
        allowed = TEST_METHODS.union(*(names[other] for other, played in replaced.items() if played is value))
        methods = vars(value) if isinstance(value, SimpleNamespace) else vars(type(value))
        missing += [f"{service}.{name}" for name in methods if not name.startswith("_") and name not in allowed]
    assert missing == []
