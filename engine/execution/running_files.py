"""Files that a tool runs or obeys by itself, so that whoever reviews a change knows before reading it (SPEC 3.9)."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True, slots=True)
class Runs:
    """`pattern` is matched without regard to case: against the name, or with a `/` in it against the end of the path
    (`X/**`: anything in a folder X)."""

    pattern: str
    says: str


TABLE = (
    Runs(".envrc", "direnv runs it when a shell enters the folder"),
    Runs(".env", "direnv, docker compose and many programs take their environment from it"),
    Runs(".autoenv*", "autoenv runs it when a shell enters the folder"),
    Runs("mise.toml", "mise runs its hooks and sets the environment when a shell enters the folder"),
    Runs(".mise.toml", "mise runs its hooks and sets the environment when a shell enters the folder"),
    Runs(".tool-versions", "asdf and mise choose program versions by it"),
    Runs(".vscode/tasks.json", "VS Code runs its tasks, and those with `folderOpen` without asking"),
    Runs(".vscode/settings.json", "VS Code applies it: it can start programs"),
    Runs(".vscode/launch.json", "VS Code runs its programs when debugging"),
    Runs(".vscode/extensions.json", "VS Code offers to install its extensions"),
    Runs("*.code-workspace", "VS Code applies its settings and tasks"),
    Runs(".devcontainer/**", "VS Code and Codespaces run its commands when the container starts"),
    Runs(".idea/runConfigurations/**", "JetBrains IDEs run it when you press Run"),
    Runs(".idea/**", "JetBrains IDEs apply it when the project is opened"),
    Runs(".run/**", "JetBrains IDEs run it when you press Run"),
    Runs(".exrc", "Vim runs it when started in the folder, with `exrc` on"),
    Runs(".nvim.lua", "Neovim runs it when started in the folder, with `exrc` on"),
    Runs(".dir-locals.el", "Emacs applies it when a file of the folder is opened"),
    Runs(".gdbinit", "gdb runs it when started in the folder"),
    Runs(".githooks/**", "git runs it at commits and pushes, if `core.hooksPath` names it"),
    Runs(".git-hooks/**", "git runs it at commits and pushes, if `core.hooksPath` names it"),
    Runs(".git*hooks/**", "git runs it at commits and pushes, if `core.hooksPath` names it"),
    Runs(".husky/**", "git runs it at commits and pushes, by husky"),
    Runs("lefthook.y*ml", "git runs its commands at commits and pushes, by lefthook"),
    Runs(".pre-commit-config.yaml", "pre-commit fetches and runs what it names at every commit"),
    Runs(".pre-commit-hooks.yaml", "pre-commit runs it in repositories that use this one"),
    Runs(".gitattributes", "git chooses filters, diff and merge drivers by it"),
    Runs(".gitmodules", "git fetches what it names when submodules are updated"),
    Runs(".gitconfig", "git applies it where it is included"),
    Runs("conftest.py", "pytest runs it at every start"),
    Runs("setup.py", "pip runs it when the package is built or installed"),
    Runs("setup.cfg", "setuptools and pytest apply it"),
    Runs("pyproject.toml", "pip runs the build backend it names; pytest, ruff and others apply it"),
    Runs("pytest.ini", "pytest loads the plugins that it names"),
    Runs("tox.ini", "tox runs its commands; pytest loads the plugins that it names"),
    Runs("noxfile.py", "nox runs it"),
    Runs("sitecustomize.py", "Python runs it at every start with this folder on its path"),
    Runs("usercustomize.py", "Python runs it at every start with this folder on its path"),
    Runs("*.pth", "Python runs its lines at every start from a site folder"),
    Runs("package.json", "npm, yarn and pnpm run its scripts, some of them at install"),
    Runs(".npmrc", "npm applies it: registries, and the shell that scripts run in"),
    Runs(".yarnrc", "yarn applies it: registries, and which yarn runs"),
    Runs(".yarnrc.yml", "yarn applies it: registries, plugins, and which yarn runs"),
    Runs(".pnpmfile.cjs", "pnpm runs it at every install"),
    Runs("binding.gyp", "npm builds with it at install, which runs its commands"),
    Runs("package-lock.json", "npm installs exactly what it names"),
    Runs("npm-shrinkwrap.json", "npm installs exactly what it names"),
    Runs("yarn.lock", "yarn installs exactly what it names"),
    Runs("pnpm-lock.yaml", "pnpm installs exactly what it names"),
    Runs("uv.lock", "uv installs exactly what it names"),
    Runs("poetry.lock", "poetry installs exactly what it names"),
    Runs("pipfile.lock", "pipenv installs exactly what it names"),
    Runs("requirements*.txt", "pip installs what it names, from where it says"),
    Runs("cargo.lock", "cargo builds exactly what it names"),
    Runs("go.sum", "go trusts the modules that it names"),
    Runs("gemfile.lock", "bundler installs exactly what it names"),
    Runs("composer.lock", "composer installs exactly what it names"),
    Runs("gemfile", "bundler runs it"),
    Runs("rakefile", "rake runs it"),
    Runs("build.rs", "cargo runs it at every build"),
    Runs(".cargo/config*", "cargo applies it: it names the compiler and the runner"),
    Runs("rust-toolchain*", "rustup fetches the compiler that it names"),
    Runs("makefile", "make runs it"),
    Runs("gnumakefile", "make runs it"),
    Runs("*.mk", "make runs it where it is included"),
    Runs("justfile", "just runs it"),
    Runs("taskfile.y*ml", "task runs it"),
    Runs("cmakelists.txt", "cmake runs it"),
    Runs("*.gradle", "gradle runs it at every call"),
    Runs("*.gradle.kts", "gradle runs it at every call"),
    Runs("gradlew*", "gradle is started by it"),
    Runs("gradle-wrapper.*", "gradle is fetched and started by it"),
    Runs("mvnw*", "maven is started by it"),
    Runs(".mvn/**", "maven loads the extensions and options it names at every call"),
    Runs("dockerfile*", "docker runs it at builds"),
    Runs("docker-compose*.y*ml", "docker compose runs what it names"),
    Runs("compose*.y*ml", "docker compose runs what it names"),
    Runs("vagrantfile", "vagrant runs it"),
    Runs("shell.nix", "nix runs it when the shell is entered"),
    Runs("flake.nix", "nix runs it when the shell is entered"),
    Runs(".github/workflows/*", "GitHub runs it on its machines, with the repository's secrets, once pushed"),
    Runs(".github/actions/**", "GitHub runs it in workflows, once pushed"),
    Runs(".gitlab-ci.y*ml", "GitLab runs it on its machines, with the project's secrets, once pushed"),
    Runs("jenkinsfile*", "Jenkins runs it once pushed"),
    Runs(".circleci/**", "CircleCI runs it once pushed"),
    Runs(".travis.yml", "Travis runs it once pushed"),
    Runs("azure-pipelines.y*ml", "Azure Pipelines runs it once pushed"),
    Runs("bitbucket-pipelines.yml", "Bitbucket runs it once pushed"),
    Runs("codeowners", "GitHub and GitLab ask these people for review, once pushed"),
    Runs(".claude/**", "Claude Code applies it: hooks and permissions of every session here"),
    Runs(".mcp.json", "agents start the servers that it names"),
    Runs(".cursor/**", "Cursor applies it in every session here"),
    Runs(".codex/**", "Codex applies it in every session here"),
    Runs(".gemini/**", "Gemini CLI applies it in every session here"),
    Runs(".cursorrules", "Cursor reads it as instructions in every session here"),
    Runs("agents.md", "agents read it as instructions in every session here"),
    Runs("claude*.md", "Claude Code reads it as instructions in every session here"),
    Runs("gemini.md", "Gemini CLI reads it as instructions in every session here"),
    Runs("copilot-instructions.md", "Copilot reads it as instructions in every session here"),
)
"""One row a pattern; the first that fits counts."""


def runs_by_itself(path: str) -> str:
    """What runs or obeys the file at `path`, and when; "" for an ordinary file."""
    folded = path.casefold()
    name = folded.rpartition("/")[2]
    for row in TABLE:
        pattern = row.pattern.casefold()
        if "/" not in pattern:
            found = fnmatchcase(name, pattern)
        else:
            pattern = pattern.replace("/**", "/*")
            found = fnmatchcase(folded, pattern) or fnmatchcase(folded, f"*/{pattern}")
        if found:
            return row.says
    return ""
