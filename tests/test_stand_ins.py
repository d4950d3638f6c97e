"""Stand-ins of the engine have the methods that the real services have: a rename in one place is found in the other."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine import services
from engine.clock import FakeClock
from engine.home import Home
from tests.api.stand_in import StandIn as ApiStandIn
from tests.console.stand_in import StandIn as ConsoleStandIn

OF_THE_TESTS = {"fill", "note", "things", "add", "hold", "preview"}
"""What only tests call, and `forgetting.preview`, which a stand-in answers itself."""


def service_names() -> dict[str, set[str]]:
    """By attribute of `Services`, every name in the modules that define its class."""
    tree = ast.parse(inspect.getsource(services))
    imports = {
        alias.name: node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    fields = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Services").body
    return {
        field.target.id: names_in(getattr(importlib.import_module(imports[name]), name))
        for field in fields
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if (name := re.match(r"\w*", ast.unparse(field.annotation))[0]) in imports
    }


def names_in(service: type) -> set[str]:
    modules = {base.__module__ for base in service.__mro__ if base.__module__.startswith("engine.")}
    return {name for module in modules for name in re.findall(r"\w+", inspect.getsource(sys.modules[module]))}


@pytest.fixture(params=["api", "console"])
def stand_in(request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock) -> Any:
    return ApiStandIn(Home.locate(tmp_path), clock) if request.param == "api" else ConsoleStandIn()


def test_a_stand_in_has_no_method_that_the_service_lacks(stand_in: Any) -> None:
    names = service_names()
    missing = [
        f"{service}.{name}"
        for service, value in vars(stand_in).items()
        if service in names and not type(value).__module__.startswith("engine.")
        for name in (vars(value) if isinstance(value, SimpleNamespace) else vars(type(value)))
        if not name.startswith("_") and name not in OF_THE_TESTS and name not in names[service]
    ]
    assert missing == []
