"""Lock files that do not fit their manifest are found, and a fresh one is never reported. Nothing is run (SPEC 3.8)."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.execution.runners.toolchains.lock_files import find_mismatches
from tests.support import read_table

TABLE = read_table(__file__)


FOREIGN_MANIFEST = json.dumps({"dependencies": {"package-of-another": "1"}})


def write_files(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def find_differences(folder: Path) -> tuple[str, ...]:
    """The sentences about the one lock file that does not fit, () when all fit."""
    mismatches = find_mismatches(folder)
    assert len(mismatches) < 2
    return mismatches[0].differences if mismatches else ()


def replace_text(file: Path, old: str, new: str):
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


# Changed after the tools wrote them


@pytest.mark.parametrize("change", TABLE["edit"], ids=lambda change: f"{change['project']}: {change['new']}")
def test_a_changed_manifest_is_named(tmp_path: Path, change: dict[str, Any]):
    write_files(tmp_path, TABLE["projects"][change["project"]])
    assert find_differences(tmp_path) == ()
    replace_text(tmp_path / change["path"], change["old"], change["new"])
    assert find_differences(tmp_path) == tuple(change["expected"])


# What is not read, and what is not certain


def test_a_pipe_in_place_of_a_lock_file_is_not_waited_for(tmp_path: Path):
    write_files(tmp_path, {"package.json": "{}", "Cargo.toml": "[package]\nname = 'a'\n"})
    os.mkfifo(tmp_path / "package-lock.json")
    (tmp_path / "Cargo.lock").symlink_to("/dev/zero")
    assert find_mismatches(tmp_path) == ()


@pytest.mark.parametrize("member", ["{outside}", "a/../../outside", "../outside", "linked", "linked/../outside"])
def test_nothing_outside_the_repository_is_read(tmp_path: Path, member: str):
    outside = write_files(tmp_path / "outside", {"package.json": FOREIGN_MANIFEST})
    top = write_files(tmp_path / "shop", {"package.json": "{}", "a/x": ""})
    (top / "linked").symlink_to(outside)
    packages = {"": {}, member.format(outside=outside): {}}
    (top / "package-lock.json").write_text(json.dumps({"lockfileVersion": 3, "packages": packages}))
    assert find_differences(top) == ()
    importers = f"importers:\n  .:\n  {member.format(outside=outside)}:\n"
    (top / "package-lock.json").write_text("{}")
    (top / "pnpm-lock.yaml").write_text(f"lockfileVersion: '9.0'\n{importers}")
    assert find_differences(top) == ()


@given(manifest=st.binary(max_size=400), lock=st.binary(max_size=400))
def test_rubbish_is_passed_over(manifest: bytes, lock: bytes, tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("rubbish")
    pairs = {"package.json": "package-lock.json", "pyproject.toml": "uv.lock", "Cargo.toml": "Cargo.lock"}
    pairs |= {"go.mod": "go.sum"}
    for manifest_name, lock_name in pairs.items():
        (folder / manifest_name).write_bytes(manifest)
        (folder / lock_name).write_bytes(lock)
    find_mismatches(folder)
