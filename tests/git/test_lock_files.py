"""Lock files out of step: a fresh one is never named, a changed manifest always is, with the real tools."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.git.lock_files import LockFileReader, LockMismatch, find_mismatches
from tests.support.helpers import needs

PYPI, NPM = "pypi.org", "registry.npmjs.org"


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def run(folder: Path, *argv: str) -> None:
    environment = os.environ | {"COMPOSER_ALLOW_SUPERUSER": "1", "GOFLAGS": "-mod=mod", "GOPROXY": "off"}
    environment.pop("VIRTUAL_ENV", None)
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


@pytest.mark.long
def test_npm(tmp_path: Path) -> None:
    needs("npm", host=NPM)
    manifest = {
        "name": "shop",
        "version": "1.0.0",
        "dependencies": {"left-pad": "^1.3.0", "once": ""},
        "devDependencies": {"ms": "2 || 1", "number": "npm:is-number@^7.0.0"},
        "optionalDependencies": {"wrappy": "~1.0.0"},
    }
    write(tmp_path, {"package.json": json.dumps(manifest)})
    run(tmp_path, "npm", "install", "--package-lock-only", "--no-audit")
    assert differences(tmp_path) == ()
    edit(tmp_path / "package.json", "^1.3.0", "^1.2.0")
    assert differences(tmp_path) == ("package.json asks for left-pad ^1.2.0, but package-lock.json has ^1.3.0",)
    edit(tmp_path / "package.json", '"once": ""', '"inherits": "2"')
    assert differences(tmp_path)[1:] == (
        "package.json asks for inherits 2, but package-lock.json does not have it",
        "package-lock.json has once, but package.json no longer asks for it",
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


def test_uv(tmp_path: Path) -> None:
    uv = shutil.which("uv") or os.environ.get("UV", "")
    if not uv:
        pytest.skip("uv is not installed here")
    needs(host=PYPI)
    write(tmp_path, {"pyproject.toml": UV_PROJECT})
    run(tmp_path, uv, "lock", "--no-config")
    assert differences(tmp_path) == ()
    edit(tmp_path / "pyproject.toml", "pluggy>=1", "pluggy>=1.5")
    assert differences(tmp_path) == ("pyproject.toml asks for pluggy >=1.5, but uv.lock has >=1",)
    edit(tmp_path / "pyproject.toml", '"six >= 1.16, <2", ', '"packaging", ')
    assert differences(tmp_path) == (
        "pyproject.toml asks for packaging any version, but uv.lock does not have it",
        "uv.lock has six, but pyproject.toml no longer asks for it",
        "pyproject.toml asks for pluggy >=1.5, but uv.lock has >=1",
    )


def cargo_project(folder: Path) -> Path:
    """A workspace whose packages lie in it: nothing is fetched."""
    return write(
        folder,
        {
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
        },
    )


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


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("six >= 1.16, <2", "six<2,>=1.16", ()),
        ("<2", "<3", ("pyproject.toml asks for six >=1.16,<3, but uv.lock has >=1.16,<2",)),
        (', "idna~=3.4"', "", ("uv.lock has idna, but pyproject.toml no longer asks for it",)),
        ("ruff>=0.5", "ruff>=0.6", ("pyproject.toml asks for ruff >=0.6, but uv.lock has >=0.5",)),
        (
            "pytest>=8",
            "coverage",
            (
                "pyproject.toml asks for coverage any version, but uv.lock does not have it",
                "uv.lock has pytest, but pyproject.toml no longer asks for it",
            ),
        ),
        ("Shop_App", "market", ("pyproject.toml is for market, but uv.lock has shop-app",)),
        ("git+https", "git+ssh", ()),
    ],
)
def test_uv_as_it_wrote_it(tmp_path: Path, old: str, new: str, expected: tuple[str, ...]) -> None:
    write(tmp_path, {"pyproject.toml": UV_SAMPLE, "uv.lock": UV_LOCK})
    assert differences(tmp_path) == ()
    edit(tmp_path / "pyproject.toml", old, new)
    assert differences(tmp_path) == expected


def test_cargo(tmp_path: Path) -> None:
    needs("cargo")
    cargo_project(tmp_path)
    run(tmp_path, "cargo", "generate-lockfile", "--offline")
    assert differences(tmp_path) == ()
    edit(tmp_path / "crates/lib1/Cargo.toml", '"0.3.1"', '"0.4.0"')
    edit(tmp_path / "Cargo.toml", 'version = "0.2" }', 'version = "0.3" }')
    edit(tmp_path / "Cargo.toml", 'one = { package = "lib1", path = "crates/lib1", optional = true }', "")
    assert differences(tmp_path) == (
        "Cargo.toml asks for lib2 0.3, but Cargo.lock has 0.2.0",
        "Cargo.lock has lib1, but Cargo.toml no longer asks for it",
        "crates/lib1/Cargo.toml is at 0.4.0, but Cargo.lock has lib1 0.3.1",
    )


@pytest.mark.long
def test_bundler(tmp_path: Path) -> None:
    needs("bundle", "rake")
    write(
        tmp_path,
        {
            "Gemfile": 'source "https://rubygems.org"\nruby ">= 2.0"\ngem "rake", ">= 12.0", "< 14" # if\n'
            'group :test do\n  gem "local", require: false, path: "local"\nend\n',
            "local/local.gemspec": "Gem::Specification.new { |s| s.name = 'local'; s.version = '1.0'; "
            "s.summary = s.author = 'x' }\n",
        },
    )
    run(tmp_path, "bundle", "lock", "--local")
    assert differences(tmp_path) == ()
    edit(tmp_path / "Gemfile", '">= 12.0", "< 14"', '"~> 13.0"')
    assert differences(tmp_path) == ("Gemfile asks for rake ~> 13.0, but Gemfile.lock has < 14, >= 12.0",)
    edit(tmp_path / "Gemfile", 'gem "rake", "~> 13.0" # if', 'gem "rake", "~> 13.0" if ENV["RAKE"]')
    assert differences(tmp_path) == ()


@pytest.mark.long
def test_composer(tmp_path: Path) -> None:
    needs("composer", "php")
    manifest = {
        "name": "x/app",
        "require": {"x/lib": "^1.0", "php": ">=7.0"},
        "repositories": [{"type": "path", "url": "./lib"}, {"packagist.org": False}],
        "extra": {"empty": {}, "ü": "é/~", "row": {"0": "x", "1": 1}},
        "config": {"platform": {"php": "8.2.0"}},
    }
    write(
        tmp_path,
        {
            "composer.json": json.dumps(manifest),
            "lib/composer.json": json.dumps({"name": "x/lib", "version": "1.0.0"}),
        },
    )
    run(tmp_path, "composer", "update", "--no-install", "--no-interaction")
    assert differences(tmp_path) == ()
    edit(tmp_path / "composer.json", '"^1.0"', '"^1.0.0"')
    assert differences(tmp_path) == ("what composer.json asks for has changed since composer.lock was written",)
    edit(tmp_path / "composer.json", '"x/lib": "^1.0.0"', '"x/lib": "^1.0", "y/more": "2.*"')
    assert differences(tmp_path) == ("composer.json asks for y/more 2.*, but composer.lock does not have it",)


def test_go(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "go.mod": "module example.org/shop\n\ngo 1.21\n\nrequire (\n\texample.org/a v1.2.0\n"
            "\texample.org/b v0.1.0 // indirect\n\texample.org/c v1.0.0\n)\n\n"
            "replace example.org/c => ./c\n",
            "go.sum": "example.org/a v1.2.0 h1:x=\nexample.org/a v1.2.0/go.mod h1:x=\n"
            "example.org/b v0.1.0/go.mod h1:x=\n",
        },
    )
    assert differences(tmp_path) == ()
    edit(tmp_path / "go.mod", "a v1.2.0", "a v1.3.0")
    assert differences(tmp_path) == ("go.mod asks for example.org/a v1.3.0, but go.sum has v1.2.0",)
    edit(tmp_path / "go.mod", "replace example.org/c => ./c", "replace example.org/c => example.org/d v1.0.0")
    assert differences(tmp_path)[1:] == ("go.mod asks for example.org/d v1.0.0, but go.sum does not have it",)
    write(tmp_path, {"vendor/modules.txt": ""})
    assert differences(tmp_path) == ()  # vendored: go reads no go.sum


# -- with hashes that the tools wrote -------------------------------------------------------------------------------

POETRY_1 = """\
[tool.poetry]
name="d"
version="0.1.0"
description=""
authors=[]
[tool.poetry.dependencies]
python="^3.11"
six="^1.16"
[tool.poetry.group.dev.dependencies]
colorama="*"
[build-system]
requires=["poetry-core"]
build-backend="poetry.core.masonry.api"
"""
POETRY_2 = """\
[project]
name="d"
version="0.1.0"
requires-python=">=3.11"
dependencies=["six>=1.15"]
[dependency-groups]
dev=["idna"]
[build-system]
requires=["poetry-core"]
build-backend="poetry.core.masonry.api"
"""
PDM = """\
[project]
name="d"
version="0.1.0"
requires-python=">=3.11"
dependencies=["six>=1.15"]
[project.optional-dependencies]
x=["idna"]
[tool.pdm.dev-dependencies]
Test_it=["pluggy"]
[tool.pdm.resolution.overrides]
six=">=1.15"
[build-system]
requires=["pdm-backend"]
build-backend="pdm.backend"
"""
POETRY_LOCK = (
    "# This file is automatically @generated by Poetry 2.2.1 and should not be changed by hand.\npackage = []\n"
)


@pytest.mark.parametrize(
    ("manifest", "lock", "text"),
    [
        (POETRY_1, "poetry.lock", "7b558c794da509ae06427c745140d9f60efe5b4cb58e709f9faa55accf4ce458"),
        (POETRY_2, "poetry.lock", "0233916383fcfe011cdc638cdfd255398e3ddd584ae82afd5a3bf4d502d7c329"),
        (PDM, "pdm.lock", "f7a83b0e61561773297d3c5f2e0778a2e7c072c989429fa2224a05c37eaa9851"),
    ],
)
def test_a_content_hash_tells_that_the_manifest_changed(tmp_path: Path, manifest: str, lock: str, text: str) -> None:
    lock_text = (
        f'{POETRY_LOCK}\n[metadata]\nlock-version = "2.1"\ncontent-hash = "{text}"\n'
        if lock == "poetry.lock"
        else f'[metadata]\nlock_version = "4.5.1"\ncontent_hash = "sha256:{text}"\n'
    )
    write(tmp_path, {"pyproject.toml": manifest, lock: lock_text})
    assert differences(tmp_path) == ()
    edit(tmp_path / "pyproject.toml", 'version="0.1.0"', 'version="0.2.0"')
    assert differences(tmp_path) == ()
    edit(tmp_path / "pyproject.toml", "1.1", "1.0")
    assert differences(tmp_path) == (f"what pyproject.toml asks for has changed since {lock} was written",)
    write(tmp_path, {"uv.lock": "version = 1\n"})
    assert lock not in [mismatch.lock for mismatch in find_mismatches(tmp_path)]  # it is a leftover of before


# -- as pnpm and yarn write them ------------------------------------------------------------------------------------

PNPM_LOCK = """\
lockfileVersion: '9.0'

settings:
  autoInstallPeers: true
  excludeLinksFromLockfile: false

overrides:
  wrappy: 1.0.2

importers:

  .:
    dependencies:
      react:
        specifier: '*'
        version: 18.0.0
      wrappy:
        specifier: 1.0.2
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


def test_pnpm(tmp_path: Path) -> None:
    top = {
        "dependencies": {"wrappy": "^1.0.0"},
        "devDependencies": {"ms": "^2.1.0"},
        "peerDependencies": {"react": "*"},
    }
    write(
        tmp_path,
        {
            "package.json": json.dumps(top),
            "packages/a/package.json": json.dumps({"dependencies": {"@x/b": "workspace:*"}}),
            "pnpm-lock.yaml": PNPM_LOCK,
        },
    )
    assert differences(tmp_path) == ()
    edit(tmp_path / "package.json", "^2.1.0", "^2.0.0")
    edit(tmp_path / "packages/a/package.json", "@x/b", "@x/c")
    assert differences(tmp_path) == (
        "package.json asks for ms ^2.0.0, but pnpm-lock.yaml has ^2.1.0",
        "packages/a/package.json asks for @x/c, but pnpm-lock.yaml does not have it",
        "pnpm-lock.yaml has @x/b, but packages/a/package.json no longer asks for it",
    )


def test_yarn_1(tmp_path: Path) -> None:
    manifest = {
        "workspaces": {"packages": ["packages/*"]},
        "dependencies": {"@babel/core": "^7.1.0", "here": "file:./here", "other": "^1.0.0"},
    }
    write(
        tmp_path,
        {
            "package.json": json.dumps(manifest),
            "packages/other/package.json": json.dumps({"name": "other", "devDependencies": {"ms": "^2.1.0"}}),
            "yarn.lock": YARN_LOCK,
        },
    )
    assert differences(tmp_path) == ()
    edit(tmp_path / "package.json", "^7.1.0", "^7.2.0")
    edit(tmp_path / "packages/other/package.json", '"ms"', '"mz"')
    assert differences(tmp_path) == (
        "package.json asks for @babel/core ^7.2.0, but yarn.lock has ^7.0.0 and ^7.1.0",
        "packages/other/package.json asks for mz ^2.1.0, but yarn.lock does not have it",
    )


def test_yarn_berry(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "package.json": json.dumps({"name": "top", "dependencies": {"@x/b": "workspace:*", "ms": "^2.1.0"}}),
            "packages/b/package.json": json.dumps({"name": "@x/b", "dependencies": {"once": "1"}}),
            "yarn.lock": BERRY_LOCK,
        },
    )
    assert differences(tmp_path) == ()
    edit(tmp_path / "packages/b/package.json", '"1"', '"1.4"')
    assert differences(tmp_path) == ("packages/b/package.json asks for once 1.4, but yarn.lock has 1",)


# -- what is not known for certain ----------------------------------------------------------------------------------


def test_it_names_the_folder_and_counts_what_it_does_not_name(tmp_path: Path) -> None:
    required = {f"p{number}": "1" for number in range(8)}
    lock = {"lockfileVersion": 3, "packages": {"": {}}}
    write(
        tmp_path,
        {"web/package.json": json.dumps({"dependencies": required}), "web/package-lock.json": json.dumps(lock)},
    )
    [mismatch] = find_mismatches(tmp_path, ["", "web", "gone"])
    assert isinstance(mismatch, LockMismatch)
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


def test_an_edited_member_is_compared_again(tmp_path: Path) -> None:
    lock = {"lockfileVersion": 3, "packages": {"": {}, "packages/a": {}, "packages/b": {}}}
    write(tmp_path, {"package.json": "{}", "package-lock.json": json.dumps(lock), "packages/a/package.json": "{}"})
    read = LockFileReader()
    assert read.mismatches(tmp_path, [""]) == ()
    assert read.mismatches(tmp_path, [""]) == ()
    write(tmp_path, {"packages/a/package.json": json.dumps({"dependencies": {"once": "1"}})})
    [mismatch] = read.mismatches(tmp_path, [""])
    assert mismatch.differences == ("packages/a/package.json asks for once 1, but package-lock.json does not have it",)
    assert read.mismatches(tmp_path, [""])[0] is mismatch, "it is not compared again while nothing is written"
    write(tmp_path, {"packages/a/package.json": "{}", "packages/b/package.json": SECRET})
    [mismatch] = read.mismatches(tmp_path, [""])
    assert "packages/b" in mismatch.differences[0], "a member that was not there"


@pytest.mark.long
@given(manifest=st.binary(max_size=400), lock=st.binary(max_size=400))
def test_rubbish_is_passed_over(manifest: bytes, lock: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("rubbish")
    pairs = {"package.json": "package-lock.json", "pyproject.toml": "uv.lock", "Cargo.toml": "Cargo.lock"}
    pairs |= {"go.mod": "go.sum", "Gemfile": "Gemfile.lock", "composer.json": "composer.lock"}
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
