"""Lock files out of step: a fresh one is never named, a changed manifest is."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.execution.runners.toolchains.lock_files import find_mismatches
from tests.support.helpers import needs


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def run(folder: Path, *argv: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr


def differences(folder: Path) -> tuple[str, ...]:
    """The sentences about the one lock file that does not fit, () when all fit."""
    mismatches = find_mismatches(folder)
    assert len(mismatches) < 2
    return mismatches[0].differences if mismatches else ()


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


# -- with the real tools --------------------------------------------------------------------------------------------

NPM_PROJECT = json.dumps(
    {
        "name": "shop",
        "version": "1.0.0",
        "dependencies": {"left-pad": "^1.3.0", "once": ""},
        "devDependencies": {"ms": "2 || 1", "number": "npm:is-number@^7.0.0"},
        "optionalDependencies": {"wrappy": "~1.0.0"},
    }
)
UV_PROJECT = """\
[project]
name = "Shop_App"
version = "0.1.0"
requires-python = ">=3.11,<4"
dependencies = ["six >= 1.16, <2", "idna~=3.4", "attrs>=23.01", "iniconfig>=2.0.0-rc.1; python_version < '4'"]

[project.optional-dependencies]
a = ["attrs>=22"]
all = ["shop-app[a]"]

[dependency-groups]
test = ["pluggy>=1", {include-group = "Lint.er"}]
"Lint.er" = ["wheel (>=0.40)"]
"""
CARGO_PROJECT = {
    "Cargo.toml": '[package]\nname = "app"\nversion = "0.1.0"\nedition = "2021"\n'
    '[workspace]\nmembers = ["crates/*"]\n'
    '[workspace.dependencies]\ntwo = { package = "lib2", path = "crates/lib2", version = "0.2" }\n'
    '[dependencies]\none = { package = "lib1", path = "crates/lib1", optional = true }\n'
    "[target.'cfg(windows)'.dependencies]\ntwo = { workspace = true }\n",
    "src/main.rs": "fn main() {}\n",
    "crates/lib1/Cargo.toml": '[package]\nname = "lib1"\nversion = "0.3.1"\nedition = "2021"\n'
    '[dev-dependencies]\nlib2 = { path = "../lib2" }\n',
    "crates/lib1/src/lib.rs": "",
    "crates/lib2/Cargo.toml": '[package]\nname = "lib2"\nversion = "0.2.0"\nedition = "2021"\n',
    "crates/lib2/src/lib.rs": "",
}


@pytest.mark.parametrize(
    ("host", "files", "command"),
    [
        pytest.param("registry.npmjs.org", {"package.json": NPM_PROJECT}, "npm install --package-lock-only --no-audit",
                     marks=pytest.mark.long),
        ("pypi.org", {"pyproject.toml": UV_PROJECT}, "uv lock --no-config"),
        ("", CARGO_PROJECT, "cargo generate-lockfile --offline"),
    ],
    ids=["npm", "uv", "cargo"],
)  # fmt: skip
def test_what_the_real_tool_wrote_fits(tmp_path: Path, host: str, files: dict[str, str], command: str) -> None:
    program, *arguments = command.split()
    path = shutil.which(program) or os.environ.get(program.upper(), "")
    if not path:
        pytest.skip(f"{program} is not installed here")
    needs(host=host)
    write(tmp_path, files)
    run(tmp_path, path, *arguments)
    assert differences(tmp_path) == ()


# -- as the tools write them ----------------------------------------------------------------------------------------

UV_SAMPLE = """\
[project]
name = "Shop_App"
dependencies = ["six >= 1.16, <2", "idna~=3.4", "local @ git+https://example.org/local"]

[dependency-groups]
lint = ["ruff>=0.5"]
dev = ["pytest>=8", {include-group = "lint"}]
"""
UV_LOCK = """\
version = 1
requires-python = ">=3.11, <4"

[[package]]
name = "six"
version = "1.16.0"
source = { registry = "https://pypi.org/simple" }

[[package]]
name = "shop-app"
version = "0.1.0"
source = { virtual = "." }
dependencies = [{ name = "six" }]

[package.metadata]
requires-dist = [
    { name = "idna", specifier = "~=3.4" },
    { name = "local", git = "https://example.org/local" },
    { name = "six", specifier = ">=1.16,<2" },
]

[package.metadata.requires-dev]
dev = [
    { name = "pytest", specifier = ">=8" },
    { name = "ruff", specifier = ">=0.5" },
]
lint = [{ name = "ruff", specifier = ">=0.5" }]
"""
PNPM_LOCK = """\
lockfileVersion: '9.0'

settings:
  autoInstallPeers: true
  excludeLinksFromLockfile: false

importers:

  .:
    dependencies:
      react:
        specifier: '*'
        version: 18.0.0
      wrappy:
        specifier: ^1.0.0
        version: 1.0.2
    devDependencies:
      ms:
        specifier: ^2.1.0
        version: 2.1.3

  packages/a:
    dependencies:
      '@x/b':
        specifier: workspace:*
        version: link:../b

packages:

  ms@2.1.3:
    resolution: {integrity: sha512-6Flz==}
"""
YARN_LOCK = """\
# THIS IS AN AUTOGENERATED FILE. DO NOT EDIT THIS FILE DIRECTLY.
# yarn lockfile v1


"@babel/core@^7.0.0", "@babel/core@^7.1.0":
  version "7.2.0"
  dependencies:
    ms "^2.1.0"

ms@^2.1.0:
  version "2.1.3"
"""
BERRY_LOCK = """\
# This file is generated by running "yarn install" inside your project.

__metadata:
  version: 8
  cacheKey: 10c0

"@x/b@workspace:*, @x/b@workspace:packages/b":
  version: 0.0.0-use.local
  resolution: "@x/b@workspace:packages/b"
  dependencies:
    once: "npm:1"
  languageName: unknown
  linkType: soft

"top@workspace:.":
  version: 0.0.0-use.local
  resolution: "top@workspace:."
  dependencies:
    "@x/b": "workspace:*"
    ms: "npm:^2.1.0"
  languageName: unknown
  linkType: soft
"""
CARGO_LOCK = """\
version = 3

[[package]]
name = "app"
version = "0.1.0"
dependencies = [
 "lib1",
 "serde",
]

[[package]]
name = "lib1"
version = "0.3.1"

[[package]]
name = "serde"
version = "1.0.2"
source = "registry+https://github.com/rust-lang/crates.io-index"
"""
GO_MOD = """\
module example.org/shop

go 1.21

require (
\texample.org/a v1.2.0
\texample.org/b v0.1.0 // indirect
\texample.org/c v1.0.0
)

replace example.org/c => ./c
"""
GO_SUM = """\
example.org/a v1.2.0 h1:x=
example.org/a v1.2.0/go.mod h1:x=
example.org/b v0.1.0/go.mod h1:x=
"""
POETRY = """\
[tool.poetry]
name = "shop"
[tool.poetry.dependencies]
python = "^3.11"
Six = "^1.16"
[tool.poetry.group.dev.dependencies]
colorama = "*"
"""
PYTHON_LOCK = '[[package]]\nname = "six"\nversion = "1.16.0"\n\n[[package]]\nname = "colorama"\nversion = "0.4"\n'
PROJECTS = {
    "uv": {"pyproject.toml": UV_SAMPLE, "uv.lock": UV_LOCK},
    "pnpm": {
        "package.json": json.dumps(
            {
                "dependencies": {"wrappy": "^1.0.0"},
                "devDependencies": {"ms": "^2.1.0"},
                "peerDependencies": {"react": "*"},
            }
        ),
        "packages/a/package.json": json.dumps({"dependencies": {"@x/b": "workspace:*"}}),
        "pnpm-lock.yaml": PNPM_LOCK,
    },
    "yarn": {
        "package.json": json.dumps({"dependencies": {"@babel/core": "^7.1.0", "ms": "^2.1.0"}}),
        "yarn.lock": YARN_LOCK,
    },
    "berry": {
        "package.json": json.dumps({"name": "top", "dependencies": {"@x/b": "workspace:*", "ms": "^2.1.0"}}),
        "packages/b/package.json": json.dumps({"name": "@x/b", "dependencies": {"once": "1"}}),
        "yarn.lock": BERRY_LOCK,
    },
    "cargo": {
        "Cargo.toml": '[package]\nname = "app"\nversion = "0.1.0"\n[workspace]\nmembers = ["crates/*"]\n'
        '[dependencies]\none = { package = "lib1", path = "crates/lib1" }\nserde = "1"\n',
        "crates/lib1/Cargo.toml": '[package]\nname = "lib1"\nversion = "0.3.1"\n',
        "Cargo.lock": CARGO_LOCK,
    },
    "go": {"go.mod": GO_MOD, "go.sum": GO_SUM},
    "poetry": {"pyproject.toml": POETRY, "poetry.lock": PYTHON_LOCK},
}


@pytest.mark.parametrize(
    ("project", "path", "old", "new", "expected"),
    [
        ("uv", "pyproject.toml", "six >= 1.16, <2", "six<2,>=1.16", ()),
        ("uv", "pyproject.toml", "git+https", "git+ssh", ()),
        ("uv", "pyproject.toml", "<2", "<3", ("pyproject.toml asks for six >=1.16,<3, but uv.lock has >=1.16,<2",)),
        ("uv", "pyproject.toml", ', "idna~=3.4"', "", ("uv.lock has idna, but pyproject.toml no longer asks for it",)),
        ("uv", "pyproject.toml", "ruff>=0.5", "ruff>=0.6",
         ("pyproject.toml asks for ruff >=0.6, but uv.lock has >=0.5",)),
        ("uv", "pyproject.toml", "pytest>=8", "coverage", (
            "pyproject.toml asks for coverage any version, but uv.lock does not have it",
            "uv.lock has pytest, but pyproject.toml no longer asks for it",
        )),
        ("uv", "pyproject.toml", "Shop_App", "market", (
            "pyproject.toml asks for market, but uv.lock does not have it",
            "uv.lock has shop-app, but pyproject.toml no longer asks for it",
        )),
        ("pnpm", "package.json", "^2.1.0", "^2.0.0",
         ("package.json asks for ms ^2.0.0, but pnpm-lock.yaml has ^2.1.0",)),
        ("pnpm", "packages/a/package.json", "@x/b", "@x/c", (
            "packages/a/package.json asks for @x/c, but pnpm-lock.yaml does not have it",
            "pnpm-lock.yaml has @x/b, but packages/a/package.json no longer asks for it",
        )),
        ("yarn", "package.json", "^7.1.0", "^7.2.0",
         ("package.json asks for @babel/core ^7.2.0, but yarn.lock has ^7.0.0 and ^7.1.0",)),
        ("yarn", "package.json", '"ms"', '"mz"', ("package.json asks for mz ^2.1.0, but yarn.lock does not have it",)),
        ("berry", "packages/b/package.json", '"1"', '"1.4"',
         ("packages/b/package.json asks for once 1.4, but yarn.lock has 1",)),
        ("cargo", "Cargo.toml", 'serde = "1"', 'serde_json = "1"', (
            "Cargo.toml asks for serde_json, but Cargo.lock does not have it",
            "Cargo.lock has serde, but Cargo.toml no longer asks for it",
        )),
        ("cargo", "crates/lib1/Cargo.toml", "0.3.1", "0.4.0",
         ("crates/lib1/Cargo.toml asks for lib1 0.4.0, but Cargo.lock has 0.3.1",)),
        ("go", "go.mod", "a v1.2.0", "a v1.3.0", ("go.mod asks for example.org/a v1.3.0, but go.sum has v1.2.0",)),
        ("go", "go.mod", "org/b v", "org/d v", ("go.mod asks for example.org/d v0.1.0, but go.sum does not have it",)),
        ("poetry", "pyproject.toml", "Six", "idna",
         ("pyproject.toml asks for idna, but poetry.lock does not have it",)),
        ("poetry", "pyproject.toml", '"^1.16"', '{version = "1", platform = "darwin"}\nidna = ["1"]', ()),
        ("yarn", "package.json", '"ms"', '"mz", "workspaces": ["a"], "x"', ()),
    ],
)  # fmt: skip
def test_a_changed_manifest_is_named(
    tmp_path: Path, project: str, path: str, old: str, new: str, expected: tuple[str, ...]
) -> None:
    write(tmp_path, PROJECTS[project])
    assert differences(tmp_path) == ()
    edit(tmp_path / path, old, new)
    assert differences(tmp_path) == expected


@pytest.mark.parametrize(("project", "beside"), [("go", "vendor/modules.txt"), ("poetry", "uv.lock")])
def test_a_lock_file_that_is_not_used_is_passed_over(tmp_path: Path, project: str, beside: str) -> None:
    write(tmp_path, PROJECTS[project] | {beside: "version = 1\n"})
    for name in ("go.mod", "pyproject.toml"):
        if (tmp_path / name).exists():
            edit(tmp_path / name, "a v1" if project == "go" else "Six", "other")
    assert differences(tmp_path) == ()


# -- what is not known for certain ----------------------------------------------------------------------------------


def test_it_names_the_folder_and_counts_what_it_does_not_name(tmp_path: Path) -> None:
    required = {f"p{number}": "1" for number in range(8)}
    lock = {"lockfileVersion": 3, "packages": {"": {}}}
    write(
        tmp_path,
        {"web/package.json": json.dumps({"dependencies": required}), "web/package-lock.json": json.dumps(lock)},
    )
    [mismatch] = find_mismatches(tmp_path, ["", "web", "gone"])
    assert (mismatch.folder, mismatch.tool, mismatch.lock_path) == ("web", "npm", "web/package-lock.json")
    assert (len(mismatch.differences), mismatch.more) == (5, 3)


def test_a_pipe_in_place_of_a_lock_file_is_not_waited_for(tmp_path: Path) -> None:
    write(tmp_path, {"package.json": "{}", "Cargo.toml": "[package]\nname = 'a'\n"})
    os.mkfifo(tmp_path / "package-lock.json")
    (tmp_path / "Cargo.lock").symlink_to("/dev/zero")
    assert find_mismatches(tmp_path) == ()


SECRET = json.dumps({"dependencies": {"secret-of-another": "1"}})


@pytest.mark.parametrize("member", ["{outside}", "a/../../outside", "../outside", "linked", "linked/../outside"])
def test_nothing_outside_the_repository_is_read(tmp_path: Path, member: str) -> None:
    outside = write(tmp_path / "outside", {"package.json": SECRET})
    top = write(tmp_path / "shop", {"package.json": "{}", "a/x": ""})
    (top / "linked").symlink_to(outside)
    packages = {"": {}, member.format(outside=outside): {}}
    (top / "package-lock.json").write_text(json.dumps({"lockfileVersion": 3, "packages": packages}))
    assert differences(top) == ()
    importers = f"importers:\n  .:\n  {member.format(outside=outside)}:\n"
    (top / "package-lock.json").write_text("{}")
    (top / "pnpm-lock.yaml").write_text(f"lockfileVersion: '9.0'\n{importers}")
    assert differences(top) == ()


def test_a_manifest_or_folder_that_leads_outside_is_not_read(tmp_path: Path) -> None:
    lock = json.dumps({"lockfileVersion": 3, "packages": {"": {}}})
    outside = write(tmp_path / "outside", {"package.json": SECRET, "package-lock.json": lock})
    top = write(tmp_path / "shop", {"package-lock.json": lock})
    (top / "package.json").symlink_to(outside / "package.json")
    (top / "web").symlink_to(outside)
    assert find_mismatches(top, ["", "web"]) == ()
    (top / "package.json").unlink()
    write(top, {"real.json": SECRET})
    (top / "package.json").symlink_to("real.json")
    assert len(differences(top)) == 1, "a link that stays inside is read"


@given(manifest=st.binary(max_size=400), lock=st.binary(max_size=400))
def test_rubbish_is_passed_over(manifest: bytes, lock: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("rubbish")
    pairs = {"package.json": "package-lock.json", "pyproject.toml": "uv.lock", "Cargo.toml": "Cargo.lock"}
    pairs |= {"go.mod": "go.sum"}
    for manifest_name, lock_name in pairs.items():
        (folder / manifest_name).write_bytes(manifest)
        (folder / lock_name).write_bytes(lock)
    find_mismatches(folder)


NAMES = st.sampled_from(["left-pad", "@x/y", "ms", "once"])
SPECS = st.sampled_from(["^1.0.0", "1", "", "*", ">=2 <3", "file:./x", "npm:ms@1", "latest"])


@given(dependencies=st.dictionaries(NAMES, SPECS), development=st.dictionaries(NAMES, SPECS))
@settings(max_examples=30, deadline=None)
def test_what_npm_copies_into_its_lock_file_always_fits(
    dependencies: dict[str, str], development: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("copied")
    manifest = {"dependencies": dependencies, "devDependencies": development}
    lock = {"lockfileVersion": 3, "packages": {"": manifest}}
    write(folder, {"package.json": json.dumps(manifest), "package-lock.json": json.dumps(lock)})
    assert differences(folder) == ()
