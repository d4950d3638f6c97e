"""The tools that Clawpy knows, as data: one row a tool (SPEC 3.9).

Three tables: what runs tests, what looks at source files, what installs a project's packages. Rows of one `kind` (of
one language) stand in the order in which they are tried; the first that a project has and that is installed is used.
A new tool is a new row, and a reader where it prints something that no other prints.

Words in braces in a command are filled in when the tool is bound to a project: `{program}` the tool itself,
`{python}` the interpreter of the project's environment, `{run}` how the package manager runs a script, `{script}` the
rest of the words of that script, `{target}` the target of a Makefile, `{folder}` the project, `{scratch}` a folder
outside of it, `{report}` a file there, `{extra}` the file of `Tester.extra`. `{tests}` are the ids of tests, one word
each; `{pattern}` is one regular expression for all of them; `{paths}` are files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from engine.execution.runners.toolchains import findings, readers
from engine.execution.runners.toolchains.shapes import Ended, Finding
from engine.model import CheckResult

NOTHING: Mapping[str, str] = MappingProxyType({})
QUIET = MappingProxyType({"NO_COLOR": "1"})
PYTHON = MappingProxyType({"PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1", "PY_COLORS": "0", "NO_COLOR": "1"})
NODE = MappingProxyType({"CI": "1", "NO_COLOR": "1", "FORCE_COLOR": "0", "npm_config_update_notifier": "false"})
CARGO = MappingProxyType({"CARGO_TARGET_DIR": "{scratch}/cargo-target", "CARGO_TERM_PROGRESS_WHEN": "never"})
"""Builds outside the tree, so that checking it changes nothing in it; one session builds once."""

ANY_CODE = tuple(range(124))
SCRIPTS = (".js", ".jsx", ".mjs", ".cjs", ".ts", ".tsx", ".mts", ".cts", ".vue", ".svelte")
SOURCE = (
    ".py", ".pyi", *SCRIPTS, ".go", ".rs", ".c", ".h", ".cc", ".cpp", ".hpp", ".java", ".kt", ".kts", ".scala", ".rb",
    ".php", ".ex", ".exs", ".cs", ".fs", ".vb", ".swift", ".lua", ".sh", ".bash", ".pl", ".hs", ".ml", ".zig", ".dart",
    ".sql", ".css", ".scss",
)  # fmt: skip
"""Files that people write and linters read; not lock files, snapshots or settings."""

LAST = "last"
"""The kind of tools that are used only when nothing else tests a project."""


@dataclass(frozen=True, slots=True)
class Tester:
    """A tool that runs tests.

    `manifests`: a folder that holds one of them may have it (`*` stands for anything but `/`); `says`: what must stand
    in one of them, as a regular expression. `found` says how the tool is looked for, see `looking.FIND`; `program` is
    its name. `test` runs everything, `one` single tests ("" = it cannot). `tests` match the files that hold tests ("" =
    names do not tell). `codes` are exit codes that mean it did its work. `makes` are files it puts into a project that
    has none. `extra` is a file (name, text) that must lie in the scratch folder.
    """

    name: str
    kind: str
    manifests: tuple[str, ...]
    found: str
    program: str
    test: str
    read: Callable[[Ended], CheckResult | None]
    one: str = ""
    title: str = ""
    says: str = ""
    suffixes: tuple[str, ...] = ()
    tests: str = ""
    codes: tuple[int, ...] = (0, 1)
    environment: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    makes: tuple[str, ...] = ()
    extra: tuple[str, str] = ("", "")


@dataclass(frozen=True, slots=True)
class Checker:
    """A linter or type checker.

    `configured`: files (`name`, or `name:regular expression`) one of which shows that the project uses it, in folders
    above, too, for one that `inherits`; an `optional` one is used without, when the project's own environment has it.
    `look` is a command that looks at `{paths}`, `read` its reader; `fixes` are commands that mend. `only_looks` is
    False for a script, which may do anything (SPEC 2.12). Of several of one `kind` and `group` the first is used.
    """

    name: str
    kind: str
    configured: tuple[str, ...]
    found: str
    program: str
    suffixes: tuple[str, ...]
    look: str
    read: Callable[[str], list[Finding]]
    fixes: tuple[str, ...] = ()
    codes: tuple[int, ...] = (0, 1)
    environment: Mapping[str, str] = field(default_factory=lambda: QUIET)
    makes: tuple[str, ...] = ()
    optional: bool = False
    inherits: bool = False
    only_looks: bool = True
    group: str = ""


@dataclass(frozen=True, slots=True)
class Keeper:
    """What installs a project's packages. `install` is the command where there is a lock file, `unlocked` where there
    is none. `folders` are what is there once it is done (empty: not to be
    told by looking). `hosts` are what it needs of the network. `members` (`file:regular expression`) shows that a
    folder above keeps the packages of those below it, too."""

    name: str
    kind: str
    manifests: tuple[str, ...]
    locks: tuple[str, ...]
    install: str
    unlocked: str
    hosts: tuple[str, ...]
    says: str = ""
    folders: tuple[str, ...] = ()
    members: str = ""


_PYTHON_MANIFESTS = ("pyproject.toml", "setup.py", "setup.cfg", "pytest.ini", "conftest.py", "tox.ini",
                     "requirements.txt", "test_*.py", "*_test.py", "tests/test_*.py", "tests/*_test.py",
                     "test/test_*.py", "Pipfile")  # fmt: skip
_PYTEST = (
    " -m pytest -q {tests} --tb=short --color=no -p no:cacheprovider --rootdir={folder} --junitxml={report}"
    " -o junit_family=xunit1"
)
_PY_TEST = r"(^|/)(test_[^/]*|[^/]*_test)\.py$"
_JS_TEST = r"(\.(test|spec)\.[cm]?[jt]sx?|(^|/)(test|tests|__tests__)/[^/]+\.[cm]?[jt]sx?)$"
_GRADLE = """
allprojects { tasks.withType(Test).all { test ->
  test.afterTest { one, done ->
    println "clawpy-test\\t${done.resultType}\\t${one.className}.${one.name}\\t${done.endTime - done.startTime}"
  }
} }
"""

TESTERS: tuple[Tester, ...] = (
    Tester("pytest", "python", _PYTHON_MANIFESTS, "module", "pytest", "{python}" + _PYTEST, readers.junit,
           one="{python}" + _PYTEST, suffixes=(".py",), tests=_PY_TEST, codes=(0, 1, 2, 5), environment=PYTHON),
    Tester("poetry", "python", ("poetry.toml",), "program", "poetry", "{program} run python" + _PYTEST, readers.junit,
           one="{program} run python" + _PYTEST, title="poetry run pytest", says=r"virtualenvs", suffixes=(".py",),
           tests=_PY_TEST, codes=(0, 1, 2, 5), environment=PYTHON),
    Tester("pdm", "python", (".pdm-python",), "program", "pdm", "{program} run python" + _PYTEST, readers.junit,
           one="{program} run python" + _PYTEST, title="pdm run pytest", suffixes=(".py",), tests=_PY_TEST,
           codes=(0, 1, 2, 5), environment=PYTHON),
    Tester("unittest", "python", ("test_*.py", "tests/test_*.py", "test/test_*.py"), "unittest", "unittest",
           "{python} -m unittest discover -v -s {start}", readers.UNITTEST, one="{python} -m unittest -v {tests}",
           title="python -m unittest", says=r"^\s*(import unittest|from unittest\b)", suffixes=(".py",), tests=_PY_TEST,
           codes=(0, 1, 5), environment=PYTHON),
    Tester("tox", "python", ("tox.ini", "tox.toml", "setup.cfg", "pyproject.toml"), "program", "tox",
           "{program} --colored no", readers.words, says=r"^\[(tox|tool\.tox|testenv)|env_list", suffixes=(".py",),
           tests=_PY_TEST, codes=ANY_CODE, environment=PYTHON),
    Tester("nox", "python", ("noxfile.py",), "program", "nox", "{program} --nocolor", readers.words, suffixes=(".py",),
           tests=_PY_TEST, codes=ANY_CODE, environment=PYTHON),
    Tester("hatch", "python", ("pyproject.toml",), "program", "hatch", "{program} --no-color test", readers.words,
           title="hatch test", says=r"^\[tool\.hatch\b", suffixes=(".py",), tests=_PY_TEST, codes=ANY_CODE,
           environment=PYTHON),

    Tester("node:test", "node", ("package.json",), "script", "node --test", "{run} test", readers.words,
           one="node --test --test-name-pattern={pattern} {script}", suffixes=(*SCRIPTS, "package.json"),
           codes=ANY_CODE, environment=NODE),
    Tester("jest", "node", ("package.json",), "script", "jest", "{run} test", readers.words,
           one="{run} test {--} -t {pattern}", suffixes=(*SCRIPTS, "package.json"), codes=ANY_CODE, environment=NODE),
    Tester("vitest", "node", ("package.json",), "script", "vitest", "{run} test {--} --run", readers.words,
           one="{run} test {--} --run -t {pattern}", suffixes=(*SCRIPTS, "package.json"), codes=ANY_CODE,
           environment=NODE),
    Tester("mocha", "node", ("package.json",), "script", "mocha", "{run} test", readers.words,
           one="{run} test {--} --grep {pattern}", suffixes=(*SCRIPTS, "package.json"), codes=ANY_CODE,
           environment=NODE),
    Tester("bun", "node", ("package.json",), "script", "bun test", "bun test", readers.words,
           one="bun test -t {pattern}", title="bun test", suffixes=(*SCRIPTS, "package.json"), codes=ANY_CODE,
           environment=NODE),
    Tester("script", "node", ("package.json",), "script", "", "{run} test", readers.words,
           suffixes=(*SCRIPTS, "package.json"), codes=ANY_CODE, environment=NODE),

    Tester("cargo", "rust", ("Cargo.toml",), "program", "cargo", "cargo test --color=never --no-fail-fast {workspace}",
           readers.CARGO, one="cargo test --color=never --no-fail-fast {workspace} -- --exact {tests}",
           title="cargo test", suffixes=(".rs", "Cargo.toml"), codes=(0, 101), environment=CARGO,
           makes=("Cargo.lock",)),
    Tester("go", "go", ("go.mod",), "program", "go", "go test -v -count=1 ./...", readers.GO,
           one="go test -v -count=1 {pattern} {packages}", title="go test", suffixes=(".go", "go.mod"),
           tests=r"_test\.go$"),

    Tester("gradle", "java", ("build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts"), "wrapper",
           "gradle", "{program} test --continue --console=plain --init-script {extra}", readers.GRADLE,
           one="{program} test --continue --console=plain --init-script {extra} {each}", title="gradle test",
           suffixes=(".java", ".kt", ".kts", ".groovy", ".gradle"),
           tests=r"(^|/)src/\w*[tT]est\w*/.*\.(java|kt|groovy)$",
           environment=MappingProxyType({"GRADLE_OPTS": "-Dorg.gradle.daemon=false"}),
           makes=("gradlew", "gradlew.bat"), extra=("clawpy.gradle", _GRADLE)),
    Tester("maven", "java", ("pom.xml",), "wrapper", "mvn",
           "{program} --batch-mode --fail-at-end -Dstyle.color=never test", readers.MAVEN,
           one="{program} --batch-mode --fail-at-end -Dstyle.color=never -Dtest={commas} -DfailIfNoTests=false"
               " -Dsurefire.failIfNoSpecifiedTests=false test",
           title="mvn test", suffixes=(".java", ".kt", "pom.xml"), tests=r"(^|/)src/test/.*\.(java|kt)$"),

    Tester("rspec", "ruby", (".rspec", "spec/spec_helper.rb", "spec/*_spec.rb", "Gemfile"), "bundle", "rspec",
           "{program} --no-color --format progress --format json --out {report}", readers.rspec,
           one="{program} --no-color --format progress --format json --out {report} {tests}",
           says=r"^--|rspec|describe",
           suffixes=(".rb",), tests=r"_spec\.rb$"),
    Tester("minitest", "ruby", ("Rakefile", "rakefile", "Rakefile.rb"), "bundle", "rake", "{program} test TESTOPTS=-v",
           readers.MINITEST, one="{program} test TESTOPTS=-v\\ {name}", title="rake test",
           says=r"TestTask|task\s*\(?:test\b|Minitest", suffixes=(".rb",), tests=r"(^|/)(test_[^/]*|[^/]*_test)\.rb$"),
    Tester("phpunit", "php", ("phpunit.xml", "phpunit.xml.dist", "composer.json"), "vendor", "phpunit",
           "{program} --colors=never --do-not-cache-result --log-junit {report}", readers.phpunit,
           one="{program} --colors=never --do-not-cache-result --log-junit {report} --filter /{pattern}/",
           says=r"phpunit", suffixes=(".php",), tests=r"Test\.php$", codes=(0, 1, 2)),
    Tester("mix", "elixir", ("mix.exs",), "program", "mix", "mix test --no-color", readers.MIX,
           one="mix test --no-color {tests}", title="mix test", suffixes=(".ex", ".exs"), tests=r"_test\.exs$",
           codes=(0, 1, 2), environment=MappingProxyType({"MIX_BUILD_ROOT": "{scratch}/mix", "MIX_ENV": "test",
                                                          "LC_ALL": "C.UTF-8"})),
    Tester("dotnet", "dotnet", ("*.sln", "*.slnx", "*.csproj", "*.fsproj", "*.vbproj"), "program", "dotnet",
           'dotnet test --nologo --logger "console;verbosity=normal"', readers.DOTNET,
           one='dotnet test --nologo --logger "console;verbosity=normal" --filter {alternatives}', title="dotnet test",
           says=r"Visual Studio Solution|<Solution\b|Microsoft\.NET\.Test\.Sdk",
           suffixes=(".cs", ".fs", ".vb", ".csproj", ".fsproj", ".vbproj"),
           environment=MappingProxyType({"DOTNET_CLI_TELEMETRY_OPTOUT": "1", "DOTNET_NOLOGO": "1"})),

    Tester("make", LAST, ("GNUmakefile", "makefile", "Makefile"), "target", "make", "make {target}", readers.words,
           says=r"^(?P<target>tests?|check)\s*::?(?!=)", codes=(0, 1, 2), environment=PYTHON),
    Tester("just", LAST, ("justfile", "Justfile", ".justfile"), "target", "just", "just {target}", readers.words,
           says=r"^@?(?P<target>tests?|check)\b[^\n:=]*:(?!=)", codes=ANY_CODE, environment=PYTHON),
    Tester("task", LAST, ("Taskfile.yml", "Taskfile.yaml", "taskfile.yml", "taskfile.yaml", "Taskfile.dist.yml"),
           "target", "task", "task {target}", readers.words, says=r"^ +(?P<target>tests?|check):", codes=ANY_CODE,
           environment=PYTHON),
)  # fmt: skip

_RUFF = MappingProxyType({"RUFF_NO_CACHE": "true", **PYTHON})

CHECKERS: tuple[Checker, ...] = (
    Checker("ruff", "python", ("ruff.toml", ".ruff.toml", r"pyproject.toml:^\[tool\.ruff\b"), "environment", "ruff",
            (".py", ".pyi"), "{program} check --output-format=concise --no-fix --force-exclude {paths}", findings.lines,
            ("{program} check --fix --force-exclude {paths}", "{formatter} {paths}"), environment=_RUFF, optional=True,
            inherits=True, group="lint"),
    Checker("flake8", "python", (".flake8", r"setup.cfg:^\[flake8\]", r"tox.ini:^\[flake8\]"), "environment", "flake8",
            (".py", ".pyi"), "{program} {paths}", findings.lines, ("{formatter} {paths}",), environment=_RUFF,
            optional=True, group="lint"),
    Checker("mypy", "python", ("mypy.ini", ".mypy.ini", r"pyproject.toml:^\[tool\.mypy\b", r"setup.cfg:^\[mypy\]"),
            "environment", "mypy", (".py", ".pyi"),
            "{program} --no-error-summary --show-error-codes --no-color-output --no-pretty --cache-dir={scratch}/mypy"
            " {paths}", findings.mypy, environment=_RUFF),
    Checker("pyright", "python", ("pyrightconfig.json", r"pyproject.toml:^\[tool\.(based)?pyright\b"), "environment",
            "pyright", (".py", ".pyi"), "{program} {paths}", findings.pyright, environment=_RUFF),
    Checker("eslint", "node", ("eslint.config.js", "eslint.config.mjs", "eslint.config.cjs", "eslint.config.ts",
            ".eslintrc*", 'package.json:"eslintConfig"'), "node_modules", "eslint", SCRIPTS,
            "{program} --format stylish --no-color {paths}", findings.stylish,
            ("{prettier} --write --ignore-unknown {paths}", "{program} --fix --no-color {paths}"), environment=NODE,
            inherits=True, group="lint"),
    Checker("npm run lint", "node", (r'package.json:"lint"\s*:',), "lint script", "npm", SCRIPTS, "{run} lint",
            findings.stylish, ("{prettier} --write --ignore-unknown {paths}", "{run} format {format}"), codes=ANY_CODE,
            environment=NODE, only_looks=False, group="lint"),
    Checker("prettier", "node", ("package.json",), "node_modules", "prettier", SCRIPTS, "{program} --check {paths}",
            findings.prettier, ("{program} --write --ignore-unknown {paths}",), environment=NODE, group="lint"),
    Checker("tsc", "node", ("tsconfig.json",), "node_modules", "tsc", (".ts", ".tsx", ".mts", ".cts", ".vue"),
            "{program} --noEmit --pretty false", findings.tsc, codes=(0, 1, 2), environment=NODE),
    Checker("clippy", "rust", ("Cargo.toml",), "program", "cargo-clippy", (".rs",),
            "cargo clippy --color=never --all-targets --quiet", findings.clippy, ("cargo fmt --all",), codes=(0, 101),
            environment=CARGO, makes=("Cargo.lock",)),
    Checker("go vet", "go", ("go.mod",), "program", "go", (".go",), "go vet {packages}", findings.vet,
            ("gofmt -w {paths}",), codes=(0, 1, 2)),
    Checker("rubocop", "ruby", (".rubocop.yml",), "bundle", "rubocop", (".rb",),
            "{program} --format emacs --no-color --cache false --force-exclusion {paths}", findings.lines,
            ("{program} --autocorrect --no-color --cache false --force-exclusion {paths}",)),
    Checker("phpstan", "php", ("phpstan.neon", "phpstan.neon.dist", "phpstan.dist.neon"), "vendor", "phpstan",
            (".php",), "{program} analyse --no-progress --no-ansi --error-format=raw {paths}", findings.lines),
    Checker("make lint", LAST, (r"GNUmakefile:^lint\s*::?(?!=)", r"makefile:^lint\s*::?(?!=)",
            r"Makefile:^lint\s*::?(?!=)"), "program", "make", SOURCE, "make lint", findings.lines, codes=(0, 1, 2),
            only_looks=False),
    Checker("just lint", LAST, (r"justfile:^@?lint\b[^\n:=]*:(?!=)", r"Justfile:^@?lint\b[^\n:=]*:(?!=)"), "program",
            "just", SOURCE, "just lint", findings.lines, codes=ANY_CODE, only_looks=False),
    Checker("task lint", LAST, (r"Taskfile.yml:^ +lint:", r"Taskfile.yaml:^ +lint:"), "program", "task", SOURCE,
            "task lint", findings.lines, codes=ANY_CODE, only_looks=False),
)  # fmt: skip

_PYPI = ("pypi.org", "files.pythonhosted.org")
_NPM = ("registry.npmjs.org",)

KEEPERS: tuple[Keeper, ...] = (
    Keeper("uv", "python", ("pyproject.toml",), ("uv.lock",), "uv sync {where}", "uv sync {where}", _PYPI,
           says=r"^\[tool\.uv\b|^\[dependency-groups\]",
           members=r"pyproject.toml:^\[tool\.uv\.workspace\]"),
    Keeper("poetry", "python", ("pyproject.toml",), ("poetry.lock",), "poetry install", "poetry install",
           _PYPI, says=r"^\[tool\.poetry\]"),
    Keeper("pdm", "python", ("pyproject.toml",), ("pdm.lock",), "pdm sync -d", "pdm install -d", _PYPI,
           says=r"^\[tool\.pdm\b"),
    Keeper("pipenv", "python", ("Pipfile",), ("Pipfile.lock",), "pipenv install --dev", "pipenv install --dev", _PYPI),
    Keeper("pip", "python", ("pyproject.toml", "setup.py", "requirements*.txt", "test_*.py", "tests/test_*.py"), (), "",
           "", _PYPI),
    Keeper("pnpm", "node", ("package.json",), ("pnpm-lock.yaml",), "pnpm install --frozen-lockfile",
           "pnpm install", _NPM, says=r'"packageManager"\s*:\s*"pnpm@',
           folders=("node_modules",),
           members="pnpm-workspace.yaml:"),
    Keeper("yarn", "node", ("package.json",), ("yarn.lock",), "yarn install --frozen-lockfile", "yarn install",
           ("registry.yarnpkg.com", *_NPM), says=r'"packageManager"\s*:\s*"yarn@', folders=("node_modules", ".pnp.cjs"),
           members='package.json:"workspaces"'),
    Keeper("bun", "node", ("package.json",), ("bun.lock", "bun.lockb"), "bun install --frozen-lockfile",
           "bun install", _NPM, says=r'"packageManager"\s*:\s*"bun@',
           folders=("node_modules",),
           members='package.json:"workspaces"'),
    Keeper("npm", "node", ("package.json",), ("package-lock.json", "npm-shrinkwrap.json"), "npm ci", "npm install",
           _NPM, folders=("node_modules",),
           members='package.json:"workspaces"'),
    Keeper("cargo", "rust", ("Cargo.toml",), ("Cargo.lock",), "cargo fetch --locked", "cargo fetch",
           ("index.crates.io", "static.crates.io"),
           members=r"Cargo.toml:^\[workspace\]"),
    Keeper("go", "go", ("go.mod",), ("go.sum",), "go mod download", "go mod download",
           ("proxy.golang.org", "sum.golang.org")),
    Keeper("gradle", "java", ("build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts"),
           ("gradle.lockfile",), "{wrapper} --console=plain testClasses", "{wrapper} --console=plain testClasses",
           ("repo.maven.apache.org", "plugins.gradle.org", "plugins-artifacts.gradle.org", "services.gradle.org")),
    Keeper("maven", "java", ("pom.xml",), (), "", "{wrapper} --batch-mode dependency:go-offline",
           ("repo.maven.apache.org",),
           members="pom.xml:<modules>"),
    Keeper("bundler", "ruby", ("Gemfile",), ("Gemfile.lock",), "bundle install", "bundle install",
           ("rubygems.org", "index.rubygems.org")),
    Keeper("composer", "php", ("composer.json",), ("composer.lock",), "composer install --no-interaction --no-scripts",
           "composer install --no-interaction --no-scripts",
           ("repo.packagist.org", "api.github.com", "codeload.github.com"),
           folders=("vendor",)),
    Keeper("mix", "elixir", ("mix.exs",), ("mix.lock",), "mix deps.get", "mix deps.get", ("repo.hex.pm", "hex.pm"),
           members="mix.exs:apps_path"),
    Keeper("dotnet", "dotnet", ("*.sln", "*.slnx", "*.csproj", "*.fsproj", "*.vbproj"), ("packages.lock.json",),
           "dotnet restore --locked-mode", "dotnet restore", ("api.nuget.org",)),
)  # fmt: skip

MANIFESTS = (
    "pyproject.toml", "setup.py", "setup.cfg", "tox.ini", "noxfile.py", "Pipfile", "requirements.txt", "package.json",
    "Cargo.toml", "go.mod", "pom.xml", "build.gradle", "build.gradle.kts", "Gemfile", "Rakefile", ".rspec",
    "composer.json", "phpunit.xml", "phpunit.xml.dist", "mix.exs", "*.sln", "*.slnx", "*.csproj", "*.fsproj",
    "*.vbproj",
)  # fmt: skip
"""Files that make the folder which holds them a project of its own, below the top of a repository, too. A Makefile does
not: most of them belong to the project above."""
