"""The coding agents that are known, how they are found and logged in, and where one lives (SPEC 3.8, 11.1): a home of
its own, its installation, its environment, and nothing else."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from engine.execution.sandbox import Confinement
from engine.model import FoundAgent


@dataclass(frozen=True, slots=True)
class KnownAgent:
    """A public agent. `commands`: what may be on the PATH, the best first. `program`: the agent proper, where the
    protocol is spoken by an adapter of its own, and `adapter` how that is installed. `hosts`: what its provider needs.
    `login`: the words of a command that logs it in; `keys`: variables that hold a key instead."""

    name: str
    title: str
    commands: tuple[tuple[str, ...], ...]
    hosts: tuple[str, ...] = ()
    login: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    program: str = ""
    adapter: str = ""


KNOWN = (
    KnownAgent(
        "claude",
        "Claude Code",
        (("claude-agent-acp",), ("claude-code-acp",)),
        hosts=("api.anthropic.com", "platform.claude.com", "console.anthropic.com", "claude.ai"),
        login=("claude", "/login"),
        keys=("CLAUDE_CODE_OAUTH_TOKEN", "ANTHROPIC_API_KEY"),
        program="claude",
        adapter="npm install -g @agentclientprotocol/claude-agent-acp",
    ),
    KnownAgent(
        "codex",
        "Codex",
        (("codex-acp",),),
        hosts=("api.openai.com", "chatgpt.com", "auth.openai.com"),
        login=("codex", "login"),
        keys=("OPENAI_API_KEY", "CODEX_API_KEY"),
        program="codex",
        adapter="npm install -g @agentclientprotocol/codex-acp",
    ),
    KnownAgent(
        "gemini",
        "Gemini CLI",
        (("gemini", "--acp"),),
        hosts=("generativelanguage.googleapis.com", "cloudcode-pa.googleapis.com", "oauth2.googleapis.com"),
        login=("gemini",),
        keys=("GEMINI_API_KEY",),
    ),
    KnownAgent(
        "opencode",
        "OpenCode",
        (("opencode", "acp"),),
        hosts=("opencode.ai", "models.dev"),
        login=("opencode", "auth", "login"),
        keys=("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENCODE_API_KEY"),
    ),
    KnownAgent(
        "qwen",
        "Qwen Code",
        (("qwen", "--acp"),),
        hosts=("dashscope.aliyuncs.com", "dashscope-intl.aliyuncs.com", "chat.qwen.ai", "portal.qwen.ai"),
        login=("qwen",),
        keys=("DASHSCOPE_API_KEY", "OPENAI_API_KEY"),
    ),
    KnownAgent(
        "vibe",
        "Mistral Vibe",
        (("vibe-acp",),),
        hosts=("api.mistral.ai",),
        login=("vibe-acp", "--setup"),
        keys=("MISTRAL_API_KEY",),
    ),
    KnownAgent(
        "copilot",
        "GitHub Copilot",
        (("copilot", "--acp"),),
        hosts=("api.github.com", "github.com", "api.githubcopilot.com", "*.githubcopilot.com"),
        login=("copilot", "login"),
        keys=("COPILOT_GITHUB_TOKEN", "GH_TOKEN"),
    ),
    KnownAgent("goose", "goose", (("goose", "acp"),), login=("goose", "configure"), keys=("OPENAI_API_KEY",)),
    KnownAgent("kimi", "Kimi CLI", (("kimi", "acp"),), hosts=("api.moonshot.ai", "api.kimi.com"), login=("kimi",)),
    KnownAgent("fast-agent", "fast-agent", (("fast-agent-acp",),), keys=("ANTHROPIC_API_KEY", "OPENAI_API_KEY")),
)


def discover(path: str | None = None, *, data: Path | None = None) -> list[FoundAgent]:
    """The known agents on the search path (`path`, by default PATH). `data`: the home's data folder, where each gets a
    folder of its own. Looks at files only, a few milliseconds."""
    here = []
    for agent in KNOWN:
        command = next((one for one in agent.commands if shutil.which(one[0], path=path)), None)
        if command is not None:
            here.append(found(agent.name, command, data=data))
        elif agent.program and shutil.which(agent.program, path=path):
            here.append(replace(found(agent.name, agent.commands[0], data=data), missing=agent.adapter))
    return here


def found(name: str, command: Sequence[str], *, data: Path | None = None) -> FoundAgent:
    """What is known of the agent `name` that `command` starts; also of one that is not public."""
    agent = known(name, command)
    login = login_words(name, None if data is None else place_of(data, name), command)
    if agent is None:
        return FoundAgent(name, tuple(command), name, (), login)
    return FoundAgent(name, tuple(command), agent.title, agent.hosts, login)


def known(name: str, command: Sequence[str] = ()) -> KnownAgent | None:
    """The known agent of that name, else the one that is started by that program."""
    program = Path(command[0]).name if command else ""
    for agent in KNOWN:
        if agent.name == name or program in {one[0] for one in agent.commands}:
            return agent
    return None


def place_of(data: Path, name: str) -> Path:
    """The folder that is an agent's home here: its login and configuration, and nothing of the operator's."""
    return data / "acp" / name


def login_words(name: str, place: Path | None, command: Sequence[str] = ()) -> str:
    """How the operator lets an agent in, once: a command to run, or a variable to hand on."""
    agent = known(name, command)
    home = shlex.quote(str(place)) if place is not None else "ITS-FOLDER"
    ways = []
    if agent is None:
        ways.append(f"log it in once with HOME={home}")
    elif agent.login:
        ways.append(f"run once: mkdir -p {home} && HOME={home} {shlex.join(agent.login)}")
    keys = ", ".join(agent.keys) if agent is not None else "the name of the variable that holds its key"
    if keys:
        ways.append(f"set `env` of [acp.{name}] to {keys}")
    return ", or ".join(ways)


TOOL_HOMES = {
    "CARGO_HOME": ".cargo",
    "RUSTUP_HOME": ".rustup",
    "PYENV_ROOT": ".pyenv",
    "NVM_DIR": ".nvm",
    "VOLTA_HOME": ".volta",
    "GOPATH": "go",
    "ASDF_DATA_DIR": ".asdf",
}
"""Toolchains that are found through HOME, which is another one for an agent: they are named instead."""


def confined(session: Confinement, *, place: Path, command: Sequence[str], hosts: Sequence[str]) -> Confinement:
    """What the agent may touch: what its session may, its own home, its installation; of the network `hosts` besides
    what the workspace allows."""
    return replace(
        session,
        readable=tuple(dict.fromkeys((*session.readable, *named(command)))),
        writable=(*session.writable, place),
        hosts=(*session.hosts, *hosts),
    )


def of_commands(agent: Confinement, session: Confinement, *, place: Path) -> Confinement:
    """What commands may touch that it has run for it: the same, but for its home and its way to its provider."""
    return replace(agent, writable=tuple(one for one in agent.writable if one != place), hosts=session.hosts)


def named(command: Sequence[str]) -> list[Path]:
    """Files that the command names: scripts, each alone, or with all of the `node_modules` it lies in."""
    found = []
    for word in command[1:]:
        file = Path(word)
        if file.is_absolute() and file.is_file():
            for one in dict.fromkeys((file, file.resolve())):
                found.append(next((up for up in one.parents if up.name == "node_modules"), one))
    return found


def agent_environment(*, place: Path, names: Iterable[str], environment: Mapping[str, str]) -> dict[str, str]:
    """What is added to a session's clean environment: its home, toolchains, and the variables the operator named."""
    user = Path(environment.get("HOME") or Path.home())
    added = {"HOME": str(place)}
    for name, folder in TOOL_HOMES.items():
        if name not in environment and (user / folder).is_dir():
            added[name] = str(user / folder)
    return added | {name: environment[name] for name in names if name in environment}
