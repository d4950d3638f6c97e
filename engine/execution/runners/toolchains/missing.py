"""What a run lacked, read from what it printed: a program, a package, a library, the network, a service (SPEC 2.12).

One row a sentence that some tool prints. A tool that could not work says nothing about the project: what is found here
is never a finding or a failed test.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

PACKAGE_KINDS = ("package", "fixture", "option")


@dataclass(frozen=True, slots=True)
class Missing:
    """Something that a run needed and did not find. `what` is its name as the tool said it, "" where none was said;
    `kind` is a key of `SENTENCES`."""

    kind: str
    what: str

    @property
    def sentence(self) -> str:
        """It in words, without a full stop."""
        return SENTENCES[self.kind].format(what=self.what or "it")


SENTENCES: Mapping[str, str] = {
    "program": "`{what}` is not installed",
    "package": "the package `{what}` is not installed",
    "fixture": "the pytest plugin `{what}` is not installed",
    "option": "the pytest plugin `{what}` is not installed",
    "library": "the library `{what}` is not installed",
    "locale": "the locale {what} is not installed",
    "toolchain": "no version of `{what}` is selected",
    "interpreter": "no Python interpreter for `{what}` is installed",
    "browser": "the browser for the tests is not installed",
    "display": "there is no display",
    "network": "{what} could not be reached: there is no network",
    "service": "nothing answers at {what}",
    "permission": "{what} is not executable",
    "read-only": "{what} cannot be written: it is read-only",
    "disk": "the disk is full",
}

PLUGINS: Mapping[str, str] = {
    "mocker": "pytest-mock", "benchmark": "pytest-benchmark", "httpx_mock": "pytest-httpx", "snapshot": "syrupy",
    "requests_mock": "requests-mock", "qtbot": "pytest-qt", "aiohttp_client": "pytest-aiohttp", "freezer":
    "pytest-freezer", "httpserver": "pytest-httpserver", "celery_app": "pytest-celery", "db": "pytest-django",
    "django_user_model": "pytest-django", "anyio_backend": "anyio", "respx_mock": "respx", "faker": "Faker",
    "--cov": "pytest-cov", "--no-cov": "pytest-cov", "--cov-report": "pytest-cov", "-n": "pytest-xdist",
    "--dist": "pytest-xdist", "--timeout": "pytest-timeout", "--reruns": "pytest-rerunfailures",
    "--asyncio-mode": "pytest-asyncio", "--benchmark-disable": "pytest-benchmark", "--benchmark-skip":
    "pytest-benchmark", "--ds": "pytest-django", "--randomly-seed": "pytest-randomly", "--snapshot-update": "syrupy",
}  # fmt: skip
"""The package that brings a fixture or an option of pytest."""

_NAME = r"(?P<what>[\w@./][\w@./+-]*)"
_BARE = r"(?P<what>[\w@+-][\w@.+-]*)"  # without a folder: it was looked for on the PATH, and a folder there is closed
_ROWS: tuple[tuple[str, str], ...] = (
    ("program", rf"(?:^|[\s/])(?:ba|da|z|k|a)?sh: (?:line )?(?:\d+: )?{_NAME}: (?:command )?not found\s*$"),
    ("program", rf"^(?:\S+: line \d+|\S+\.sh: \d+): {_NAME}: (?:command )?not found\s*$"),
    ("program", rf"\b(?:zsh|bundler): (?:\d+: )?command not found: {_NAME}"),
    ("program", rf"^(?:make|gmake)(?:\[\d+\])?: {_NAME}: No such file or directory$"),
    ("program", rf"^(?:/usr/bin/)?env: [‘'\"]?{_NAME}[’'\"]?: No such file or directory$"),
    ("program", rf"^bwrap: execvp {_NAME}: No such file or directory$"),
    ("program", rf"exec: \"{_NAME}\": executable file not found in \$PATH"),
    ("program", rf"^error: linker `{_NAME}` not found"),
    ("program", rf"\bspawn {_NAME} ENOENT\b"),
    ("program", rf"Executable `{_NAME}` not found"),
    ("program", rf"_execute_child[\s\S]{{0,2000}}?FileNotFoundError: \[Errno 2\] No such file or directory: '{_NAME}'"),
    ("program", rf"(?:^|[\s/])(?:ba|da|z|k|a)?sh: (?:line )?(?:\d+: )?{_BARE}: Permission denied\s*$"),
    ("program", rf"^(?:make|gmake)(?:\[\d+\])?: {_BARE}: Permission denied$"),
    ("program", rf"\bspawn {_BARE} EACCES\b"),
    ("program", rf"_execute_child[\s\S]{{0,2000}}?PermissionError: \[Errno 13\] Permission denied: '{_BARE}'"),
    ("program", r"(?P<what>JAVA_HOME) (?:is not set|environment variable is not defined)"),
    ("program", r"^git: '(?P<what>lfs)' is not a git command"),
    ("toolchain", r"rustup could not choose a version of (?P<what>[\w-]+)"),
    ("cargo", r"^error: no such (?:sub)?command: `(?P<what>[\w-]+)`"),
    ("interpreter", r"(?:could not find python interpreter (?:matching any of the specs|with spec\(s\):?)"
                    r"|InterpreterNotFound:) ?(?P<what>[\w.]+)"),
    ("package", r"(?:ModuleNotFoundError: |: )No module named ['\"]?(?P<what>\w+)"),
    ("package", r"Cannot find (?:module|package) '(?P<what>@?[a-zA-Z][^'./]*(?:/[^'./]+)?)[^']*'"),
    ("package", r"Failed to resolve import \"(?P<what>@?[a-zA-Z][^\"./]*)[^\"]*\""),
    ("package", r"Preset (?P<what>[\w@/-]+) not found"),
    ("package", r"Test environment (?P<what>[\w@/-]+) cannot be found"),
    ("package", r"ESLint couldn't find the (?:plugin|config) \"(?P<what>[^\"]+)\""),
    ("package", r"cannot load such file -- (?P<what>[\w/-]+) \(LoadError\)"),
    ("package", r"^Could not find (?:gem )?'?(?P<what>[\w-]+)[^\n]*(?:in any of the sources|locally installed gems)"),
    ("package", r"missing go\.sum entry for (?:module providing package )?(?P<what>\S+?)[;\s]"),
    ("fixture", r"fixture '(?P<what>\w+)' not found"),
    ("asyncio", r"async def functions are not natively supported"),
    ("option", r"error: unrecognized arguments: (?P<what>-[\w-]+)"),
    ("library", r"(?:error while loading shared libraries|ImportError|OSError): (?P<what>lib[\w.+-]+): cannot open"),
    ("locale", r"locale\.Error: unsupported locale setting"),
    ("locale", r"setlocale: LC_\w+: cannot change locale \((?P<what>[^)]+)\)"),
    ("browser", r"(?:BrowserType\.launch: )?Executable doesn't exist at \S*ms-playwright"),
    ("display", r"(?:cannot open|could not connect to|couldn't connect to|no) (?:X )?display\b"),
    ("network", r"(?:Could not resolve host: |Unknown host |UnknownHostException: )(?P<what>[\w.-]+)"),
    ("network", r"getaddrinfo (?:EAI_AGAIN|ENOTFOUND)(?: (?P<what>[\w.-]+))?"),
    ("network", r"dial tcp: lookup (?P<what>[\w.-]+)"),
    ("network", r"Failed to resolve '(?P<what>[\w.-]+)'"),
    ("network", r"host='(?P<what>[\w.-]+)', port=\d+\): Max retries exceeded"),
    ("network", r"Temporary failure in name resolution|Name or service not known|nodename nor servname provided"
                r"|failed to lookup address information|Network is unreachable|\bENETUNREACH\b"),
    ("service", r"(?:connection to server|could not connect to server)[^\n]*?\"(?P<what>[\w./-]+)\"[^\n]*"
                r"(?:Connection refused|No such file or directory)"),
    ("service", r"\bECONNREFUSED (?P<what>[\w.:\[\]-]+)"),
    ("service", r"dial (?:tcp|unix) (?P<what>\S+?): connect: (?:connection refused|no such file or directory)"),
    ("service", r"Can't connect to (?:local )?MySQL server (?:on|through socket) '(?P<what>[^']+)'"),
    ("service", r"Error (?:111|61) connecting to (?P<what>[\w.:-]+)"),
    ("service", r"Cannot connect to the Docker daemon at (?P<what>\S+)\."),
    ("service", r"ConnectionRefusedError: \[Errno \d+\](?:[^\n]*\('(?P<what>[\w.]+)', \d+\))?"),
    ("permission", r"(?:^|[\s:])(?P<what>[\w./-]+): Permission denied\s*$"),
    ("read-only", r"Read-only file system: '(?P<what>[^'\n]+)'"),
    ("read-only", r"\bEROFS: read-only file system, \w+ '(?P<what>[^'\n]+)'"),
    ("read-only", r"(?P<what>[\w./-]+): Read-only file system"),
    ("disk", r"No space left on device|\bENOSPC\b"),
)  # fmt: skip
_PATTERNS = tuple((kind, re.compile(pattern, re.MULTILINE)) for kind, pattern in _ROWS)

EXECUTION = frozenset({"program", "permission"})
"""What a shell says when it could not start a program: believed also where the exit code is 0."""


def missing_in(text: str) -> Iterator[Missing]:
    """Everything that `text`, the output of a run or of one failed test, names as missing; rows in their order."""
    for kind, pattern in _PATTERNS:
        for match in pattern.finditer(text):
            what = (match.groupdict().get("what") or "").strip()
            if kind == "cargo":
                yield Missing("program", f"cargo-{what}")
            elif kind == "asyncio":
                yield Missing("fixture", "pytest-asyncio")
            elif kind in ("fixture", "option"):
                if what in PLUGINS:  # any other name may be a mistake in the project itself
                    yield Missing(kind, PLUGINS[what])
            elif kind == "program" and what == "JAVA_HOME":
                yield Missing("program", "java")
            else:
                yield Missing(kind, what)


def first_missing(text: str, believed: Callable[[Missing], bool] = lambda one: True) -> Missing | None:
    """The first that is `believed`, or None."""
    return next((one for one in missing_in(text) if believed(one)), None)


_HEADING = re.compile(
    r"^\s*(?:not ok \d+ - |ok \d+ - |# |[●✖✗✕×✔✓] |--- (?:FAIL|PASS|SKIP): |=== RUN\s+|---- |FAIL\s+|\d+\) )"
)
"""How runners begin what they say about one test."""


def failure_texts(output: str, failing: tuple[str, ...]) -> dict[str, str]:
    """What was printed about each failing test, for runners that report in words: from each heading that names it to
    the next heading. A test that no heading names has ""."""
    named = {name: re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])") for name in failing}
    texts = dict.fromkeys(failing, "")
    about: list[str] = []
    for line in output.splitlines():
        if _HEADING.match(line):
            about = [name for name, pattern in named.items() if pattern.search(line)]
        for name in about:
            texts[name] += f"{line}\n"
    return texts


INSTALL_PROGRAM: Mapping[str, str] = {
    "go": "install Go: https://go.dev/dl",
    "gofmt": "install Go: https://go.dev/dl",
    "cargo": "install Rust: https://rustup.rs",
    "rustc": "install Rust: https://rustup.rs",
    "cargo-clippy": "rustup component add clippy",
    "cargo-fmt": "rustup component add rustfmt",
    "cargo-nextest": "cargo install cargo-nextest",
    "node": "install Node.js: https://nodejs.org",
    "npm": "install Node.js: https://nodejs.org",
    "npx": "install Node.js: https://nodejs.org",
    "pnpm": "npm install -g pnpm",
    "yarn": "npm install -g yarn",
    "bun": "install Bun: https://bun.sh",
    "uv": "install uv: python3 -m pip install uv",
    "uvx": "install uv: python3 -m pip install uv",
    "poetry": "pipx install poetry",
    "pdm": "pipx install pdm",
    "hatch": "pipx install hatch",
    "nox": "pipx install nox",
    "tox": "pipx install tox",
    "pre-commit": "pipx install pre-commit",
    "just": "install just: https://just.systems",
    "task": "install Task: https://taskfile.dev",
    "docker": "install Docker, or run it where Docker is",
    "java": "install a JDK and set JAVA_HOME",
    "mvn": "install Maven: https://maven.apache.org",
    "rspec": "gem install rspec",
    "rake": "gem install rake",
    "rubocop": "gem install rubocop",
    "phpunit": "composer require --dev phpunit/phpunit",
    "phpstan": "composer require --dev phpstan/phpstan",
    "mix": "install Elixir: https://elixir-lang.org/install.html",
    "dotnet": "install .NET: https://dotnet.microsoft.com/download",
    "gradle": "install Gradle, or use the project's ./gradlew",
    "bundle": "gem install bundler",
    "composer": "install Composer: https://getcomposer.org",
    "lfs": "install git-lfs",
    "cc": "install a C compiler, for example gcc",
    "make": "install make",
}
"""What brings a program that no project keeps with its packages."""


def fix_for(missing: Missing, install: str) -> str:
    """What brings it. `install` is the command that installs the project's own packages."""
    match missing.kind:
        case "program":
            return INSTALL_PROGRAM.get(missing.what, f"install `{missing.what}`, or fix the command that calls it")
        case "package" | "fixture" | "option":
            return install
        case "library":
            return f"install the system package that has {missing.what}"
        case "locale":
            return f"generate it (locale-gen {missing.what})" if missing.what else "set LC_ALL=C.UTF-8, or generate it"
        case "toolchain":
            return "rustup default stable"
        case "interpreter":
            return f"install Python for `{missing.what}`"
        case "browser":
            return "npx playwright install"
        case "display":
            return "run it under xvfb-run, or use a headless mode"
        case "network":
            return "checks have no network; to allow it for this workspace, set `network = true` in config.toml"
        case "service":
            return "start it; checks can reach services on this machine if `network = true` is set for the workspace"
        case "permission":
            return f"chmod +x {missing.what}" if missing.what else "make it executable"
        case "read-only":
            return "configure the tool to write to TMPDIR or XDG_CACHE_HOME"
    return "free some space"
