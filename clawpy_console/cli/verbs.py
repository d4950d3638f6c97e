"""Every verb of `clawpy`: one sentence, its options, an example, and the request it becomes (SPEC 9.8).

The parser, the help and the shell completions all read `VERBS`. Nothing of the engine is imported here, so that help
and completions answer at once.
"""

from __future__ import annotations

import re
import sys
from argparse import SUPPRESS, ArgumentTypeError, Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from clawpy_console.cli.options import Where, WrongUse

Request = dict[str, Any]


class Argument(NamedTuple):
    """One argument or option: what `argparse.add_argument` takes, and which values a shell completes it with
    (see `completion`)."""

    name: str
    settings: Mapping[str, Any]
    values: str = ""


class Verb(NamedTuple):
    """A verb, or one of its actions. Its own words are its example where none is given. The first action is meant when
    none is named."""

    name: str
    summary: str
    example: str = ""
    arguments: Sequence[Argument] = ()
    actions: Sequence[Verb] = ()


def argument(name: str, help: str | None = None, values: str = "", **settings: Any) -> Argument:
    return Argument(name, {"help": help, **settings}, values)


def switch(name: str, help: str, **settings: Any) -> Argument:
    return argument(name, help, action="store_true", **settings)


def number(name: str, help: str, **settings: Any) -> Argument:
    return argument(name, help, type=int, metavar="N", **settings)


def an_id(values: str, of: str, **settings: Any) -> Argument:
    return argument("id", f"id of {of}; its beginning is enough", values, **settings)


UNITS = (86400, 3600, 60, 1)


def span(text: str) -> int:
    """`90s`, `30m`, `2h`, `1h30m`, `1d` in seconds."""
    parts = re.fullmatch(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", text.strip().lower())
    seconds = 0 if parts is None else sum(int(n or 0) * unit for n, unit in zip(parts.groups(), UNITS, strict=True))
    if not 0 < seconds <= 30 * 86400:
        raise ArgumentTypeError(f"{text!r} is not a time span: write 90s, 30m, 2h or 1d, at most 30d")
    return seconds


def seconds(help: str) -> Argument:
    return argument("--for", help, dest="seconds", metavar="SPAN", type=span)


def leader(help: str, **settings: Any) -> Argument:
    return argument("--to", help, "agents", dest="reportsTo", metavar="LEADER", **settings)


def batch(fields: str) -> Argument:
    return argument("--batch", f"lines with {fields}; - reads standard input", "file", metavar="FILE.jsonl")


def absolute(path: str) -> str:
    return str(Path(path).resolve())


# -- arguments that several verbs take

CARD = an_id("cards", "a card, session or changes")
SESSION = an_id("sessions", "a session or its card")
CHANGES = argument("id", "id of the changes, their session or card", values="changes")
AGENT = argument("id", metavar="AGENT", values="agents")
LEADER = leader("its leader, or owner", required=True)
FOR = seconds("30m, 2h or 1d (default: 2h)")
END_AFTER = seconds("stop after 30m, 8h or 2d, when running work is finished")
STORE = argument(
    "--store",
    "where to keep it: the system's keyring (default), or a plain file that only you can read",
    choices=("keyring", "file"),
    default="keyring",
)
NEVER = argument("never", SUPPRESS, nargs="*")
"""What is given here by mistake may be a secret: it is refused, and never printed."""
SURFACES = ("phone", "watch", "glasses", "discord", "web", "desktop")
SURFACE = argument("surface", nargs="?", choices=SURFACES)
REASON = argument("reason", "the reason, in your own words", nargs="*", metavar="REASON")

COMMON = (
    argument(
        "--workspace",
        "a git repository to work on; may be given again (default: that of the current folder)",
        metavar="DIR",
        action="append",
        values="workspaces",
    ),
    argument(
        "--home", "keep config, data, cache and logs under DIR (or set CLAWPY_HOME)", metavar="DIR", values="file"
    ),
    switch("--json", "print one JSON document"),
)
"""Options that stand before or after any verb."""

DISMISS_REASONS = ("not-now", "wrong", "already-done", "never-here", "never-anywhere")
CANDIDATE_STATES = ("drafted", "review", "promoted", "rejected", "rolled_back")
CANDIDATE_TYPES = ("prompt_fragment", "fix_template", "routing_hint", "validator_policy_tweak", "flow_offload")
RECORD_KINDS = (
    "failed_tdd",
    "successful_heal",
    "repeated_retry",
    "task_conflict",
    "budget_incident",
    "human_approval",
    "agent_error",
    "successful_bubble",
    "guidance_applied",
    "guidance_noisy",
    "stale_guidance",
    "teaching_refresh",
    "cloud_sync_failure",
    "cloud_memory_recall_hit",
    "tool_sequence",
)


def _candidate(name: str, summary: str, *more: Argument) -> Verb:
    return Verb(name, summary, f"clawpy candidates {name} 7k2m", (CANDIDATE, *more))


CANDIDATE = an_id("candidates", "a candidate")
WHY = argument("--reason", "the reason, in your own words", metavar="TEXT")
LEARNING = argument("id")
DECIDED = an_id("decided cards", "a card, session or changes")
RUNNING = an_id("running sessions", "a session or its card")
PERMISSION = an_id("permissions", "the request")
WHOLE_SESSION = switch("--session", "give the same answer as long as the session runs")
DRAFT = an_id("drafts", "the draft")
KEY_NAME = argument("name", "openai, anthropic, together, twin, or one of your [providers]", values="providers")
SETTING = argument("key", values="settings")

GROUPS: Mapping[str, Sequence[Verb]] = {
    "cards": (
        Verb("predict", "check for new cards now, and show all that are pending"),
        Verb(
            "cards",
            "show the cards that are pending",
            "clawpy cards --channel koji-core",
            (
                argument("--channel", "only cards of this channel", values="channels"),
                switch("--snoozed", "include snoozed cards"),
                switch("--all", "the latest cards, including decided ones"),
            ),
        ),
        Verb(
            "propose",
            "make your own card, from a prompt or from a flow with its parameters as key=value",
            'clawpy propose "run the tests"\n  clawpy propose bisect test=tests/test_cart.py::test_total good=HEAD~9',
            (
                argument("text", "a prompt, or FLOW key=value ...", nargs="+", values="flows"),
                argument("--channel", "the channel to run it on", values="channels"),
                argument(
                    "--continue",
                    "continue this finished session and its changes",
                    dest="continues",
                    metavar="ID",
                    values="sessions",
                ),
            ),
        ),
        Verb(
            "approve",
            "approve a card and start its session",
            "clawpy approve 7k2m --wait",
            (
                CARD,
                argument("--edit", "another prompt, or other parameters of a flow as key=value", metavar="TEXT"),
                switch("--wait", "wait until the session finishes; exit code 1 if it failed, 3 if it could not run"),
                switch("--without-sandbox", "confirm that it may run without a sandbox", dest="withoutSandbox"),
            ),
        ),
        Verb(
            "dismiss",
            "dismiss a card and mute its subject for a while",
            "clawpy dismiss 7k2m --reason wrong",
            (
                CARD,
                argument(
                    "--reason",
                    "why; never-here and never-anywhere switch this kind of card off",
                    choices=DISMISS_REASONS,
                ),
            ),
        ),
        Verb("snooze", "show a card again later", "clawpy snooze 7k2m --for 30m", (CARD, FOR)),
        Verb(
            "undo",
            "undo a decision: reopen the card, stop its session, or undo its landing",
            "clawpy undo 7k2m",
            (DECIDED,),
        ),
        Verb(
            "muted",
            "show what is muted, and unmute it",
            actions=(
                Verb("list", "show what is muted, where, until when and why"),
                Verb(
                    "unmute",
                    "let cards of this subject appear again",
                    "clawpy muted unmute mute_7k2m",
                    (argument("id"),),
                ),
            ),
        ),
    ),
    "sessions and changes": (
        Verb(
            "work",
            "show sessions and changes, or one of them",
            "clawpy work 7k2m --diff",
            (
                an_id("sessions", "a session or its card", nargs="?"),
                number("--lines", "lines of output to show (default: 40)", default=40),
                switch("--diff", "show the diff of the changes too"),
            ),
        ),
        Verb(
            "land",
            "put the changes of a session into your working tree, all or part of them",
            "clawpy land 7k2m\n  clawpy land 7k2m --only cart.py --hunk 2",
            (
                CHANGES,
                argument(
                    "--only",
                    "only this file; the rest keeps waiting; may be given again",
                    metavar="PATH",
                    action="append",
                ),
                number("--hunk", "only this hunk of one file, as numbered by `clawpy work ID --diff`", action="append"),
            ),
        ),
        Verb(
            "comment",
            "comment on a line of the changes, or show the comments",
            'clawpy comment 7k2m cart.py:12 "use Decimal here"\n  clawpy comment 7k2m --send',
            (
                CHANGES,
                argument("place", metavar="FILE:LINE", nargs="?"),
                argument("text", nargs="*"),
                switch("--old", "LINE is a line number before the change"),
                number("--remove", "remove comment N"),
                switch("--send", "make a card that sends the comments to the agent"),
            ),
        ),
        Verb("branch", "commit the changes of a session to a new branch", "clawpy branch 7k2m", (CHANGES,)),
        Verb("discard", "delete the changes of a session", "clawpy discard 7k2m", (CHANGES,)),
        Verb(
            "reply",
            "send a message to a running session",
            'clawpy reply 7k2m "use the other file"',
            (RUNNING, argument("text", nargs="+")),
        ),
        Verb(
            "permissions",
            "show what sessions ask permission for, and answer",
            actions=(
                Verb(
                    "list",
                    "show open requests",
                    "clawpy permissions list",
                    (switch("--all", "the latest requests, including answered ones"),),
                ),
                Verb("allow", "allow a request", "clawpy permissions allow 7k2m", (PERMISSION, WHOLE_SESSION)),
                Verb("deny", "deny a request", "clawpy permissions deny 7k2m", (PERMISSION, WHOLE_SESSION)),
            ),
        ),
        Verb(
            "xray",
            "show the model calls of a session and the exact prompts",
            "clawpy xray 7k2m --call 1",
            (SESSION, argument("--call", "show the prompt of call N, each line with its source", metavar="N")),
        ),
        Verb(
            "tasks",
            "show and change the task board",
            actions=(
                Verb(
                    "list",
                    "show tasks",
                    "clawpy tasks list --state open",
                    (argument("--state", choices=("open", "running", "done", "failed")),),
                ),
                Verb(
                    "add",
                    "add a task",
                    'clawpy tasks add "cart rounding"',
                    (
                        argument("title", nargs="+", metavar="TITLE"),
                        argument("--channel", "the channel it belongs to", values="channels"),
                        argument(
                            "--needs",
                            "a task that must be done first; may be given again",
                            metavar="ID",
                            action="append",
                            values="tasks",
                        ),
                    ),
                ),
                Verb("done", "mark a task done", "clawpy tasks done 7k2m", (argument("id", values="tasks"),)),
            ),
        ),
    ),
    "engine": (
        Verb(
            "status",
            "show what is running, what is waiting, and what it has cost",
            "clawpy status --format short",
            (
                argument(
                    "--format",
                    "short or long: one line for a status bar",
                    choices=("full", "short", "long"),
                    default="full",
                ),
            ),
        ),
        Verb(
            "stop", "stop everything immediately, until you resume", 'clawpy stop "looking into something"', (REASON,)
        ),
        Verb(
            "resume",
            "end a stop, a month stop or a pause",
            "clawpy resume stop",
            (argument("word", "which one, if several are active", nargs="?", choices=("stop", "pause", "month")),),
        ),
        Verb(
            "dnd",
            "do not disturb: cards appear, nothing runs by itself",
            "clawpy dnd --for 2h",
            (FOR, switch("--off", "end it")),
        ),
        Verb("run", "run the engine without a screen until you stop it", "clawpy run --for 8h", (END_AFTER,)),
        Verb(
            "serve",
            "run the engine without a screen, with the HTTP API for a phone, a script or an agent",
            "clawpy serve --port 8477",
            (
                END_AFTER,
                number(
                    "--port", "port to listen on; 0 chooses a free one (default: 8477, or the value in the settings)"
                ),
                argument(
                    "--host",
                    "address to listen on (default: 127.0.0.1, or the value in the settings)",
                    metavar="ADDRESS",
                ),
                argument(
                    "--certificate",
                    "TLS certificate (PEM), needed when other machines connect",
                    metavar="FILE",
                    values="file",
                ),
                argument(
                    "--certificate-key",
                    "its private key (PEM), if it is in another file",
                    metavar="FILE",
                    values="file",
                ),
                switch("--tunnel", "allow plain HTTP because your tunnel encrypts it"),
                STORE,
            ),
        ),
        Verb(
            "token",
            "show the token of the HTTP API, or make a new one",
            actions=(
                Verb(
                    "show",
                    "show the token",
                    'curl -H "Authorization: Bearer $(clawpy token)" http://127.0.0.1:8477/api/v1/health',
                ),
                Verb("new", "make a new token; the old one stops working within 15 s", "clawpy token new", (STORE,)),
            ),
        ),
        Verb(
            "mcp",
            "let a coding agent recall, remember and propose over the Model Context Protocol",
            "claude mcp add clawpy -- clawpy mcp",
            (argument("--agent", "name to record for it (default: the name it gives itself)", metavar="NAME"),),
        ),
        Verb(
            "check",
            "ask the content filter about a command or a prompt, without running anything",
            'clawpy check "rm -fr build"',
            (
                argument("command", "the command; the exit code is 0 whatever the verdict", nargs="*"),
                argument("--prompt", "a prompt instead of a command", metavar="TEXT"),
                batch('"command" or "prompt"'),
            ),
        ),
        Verb(
            "doctor",
            "show what is configured, found and missing, and how to fix it",
            "clawpy doctor",
            (switch("--online", "also ask each model provider whether it accepts its key"),),
        ),
    ),
    "agents": (
        Verb(
            "agents",
            "show and change agents, and who serves which channel",
            actions=(
                Verb("list", "show all agents, and the coding agents on this machine"),
                Verb("show", "show one agent", "clawpy agents show cto", (AGENT,)),
                Verb(
                    "add",
                    "add an agent",
                    "clawpy agents add tester --to backend_lead --domain tests",
                    (
                        argument("id", "its name", metavar="AGENT"),
                        LEADER,
                        argument("--title", "its title"),
                        argument("--archetype", "its archetype, which sets its tier, for example builder"),
                        argument("--domain", "its domain, in a few words"),
                    ),
                ),
                Verb(
                    "move", "put an agent under another leader", "clawpy agents move tester --to cto", (AGENT, LEADER)
                ),
                Verb("retire", "retire an agent; its folder is kept", "clawpy agents retire tester", (AGENT,)),
                Verb("restore", "restore a retired agent", "clawpy agents restore tester", (AGENT,)),
                Verb(
                    "tier",
                    "set the tier of an agent, or let the rules decide (auto)",
                    "clawpy agents tier cto 1",
                    (AGENT, argument("tier", choices=("1", "2", "3", "4", "5", "auto"), metavar="1-5|auto")),
                ),
                Verb(
                    "serve",
                    "let a coding agent serve a channel",
                    "clawpy agents serve koji-core claude",
                    (
                        argument("channel", values="channels"),
                        argument(
                            "id", "one that `clawpy agents list` names", metavar="CODING-AGENT", values="coding agents"
                        ),
                    ),
                ),
            ),
        ),
        Verb(
            "guidance",
            "show the guidance in an agent's next prompt, and what was left out",
            "clawpy guidance backend_builder",
            (AGENT, leader("also show its guidance under this leader")),
        ),
        Verb(
            "profile",
            "show the profile of a leader, save an edited one, or undo the last save",
            "clawpy profile cto guidance-of-cto.md --yes",
            (
                argument("id", metavar="LEADER", values="agents"),
                argument("file", "the edited text; - reads standard input", nargs="?", metavar="FILE", values="file"),
                switch("--yes", "save it; without --yes you only see which prompts change"),
                switch("--undo", "undo the last save"),
            ),
        ),
        Verb(
            "bubbles",
            "show findings of agents, and which gate refused them",
            "clawpy bubbles list --state refused",
            actions=(
                Verb(
                    "list",
                    "show findings",
                    "clawpy bubbles list --state queued",
                    (
                        argument(
                            "--state",
                            "only findings in this state; flushed means sent up",
                            choices=("queued", "refused", "flushed"),
                        ),
                        argument("--agent", "only findings that it sent or received", metavar="AGENT", values="agents"),
                    ),
                ),
                Verb("flush", "send queued findings to their leaders now"),
                Verb(
                    "approve",
                    "approve a finding that quotes tools, files or other agents",
                    "clawpy bubbles approve bub_4k2",
                    (argument("id", values="findings"),),
                ),
            ),
        ),
    ),
    "memory and learning": (
        Verb(
            "recall",
            "search memory",
            'clawpy recall "what did we decide about rounding"',
            (
                argument("query", nargs="*"),
                number("--k", "lines to show, 1 to 1000 (default: 10)", default=10),
                argument("--agent", "search as this agent", metavar="AGENT", values="agents"),
                batch('"id", "query", "k"'),
            ),
        ),
        Verb(
            "remember",
            "store conversations in memory",
            "clawpy remember chats.jsonl",
            (
                argument(
                    "file",
                    'lines with "text", and "id", "speaker", "timestamp", "session", "agent"; - for stdin',
                    metavar="FILE.jsonl",
                    values="file",
                ),
                switch("--no-wait", "do not wait until all of it can be found by meaning"),
            ),
        ),
        Verb(
            "forget",
            "delete a memory entry, or everything that contains some words, from every store",
            "clawpy forget 'my phone number is 555 0101' --yes",
            (
                argument("what", "the full id of an entry, or its exact words", metavar="ID|WORDS", nargs="+"),
                switch("--yes", "delete it for good; without --yes you see what would go, and the exit code is 1"),
            ),
        ),
        Verb(
            "drafts",
            "show drafts of facts; keep or dismiss them",
            actions=(
                Verb("list", "show drafts, oldest first"),
                Verb(
                    "promote",
                    "keep a draft as a fact",
                    'clawpy drafts promote 7k2m --edit "the service listens on 8001"',
                    (DRAFT, argument("--edit", "keep it with this text instead", metavar="TEXT")),
                ),
                Verb(
                    "dismiss",
                    "dismiss a draft; it is not drafted again",
                    "clawpy drafts dismiss 7k2m",
                    (DRAFT,),
                ),
            ),
        ),
        Verb(
            "learnings",
            "show learnings and their sources, decide about them, write them into AGENTS.md",
            "clawpy learnings list",
            actions=(
                Verb(
                    "list",
                    "show learnings of this workspace",
                    "clawpy learnings list --scope session --words parser",
                    (
                        argument(
                            "--scope",
                            "only of this scope, in any status",
                            choices=("team", "session", "project", "global"),
                        ),
                        argument(
                            "--kind",
                            "about your organisation, the work, or you",
                            choices=("institutional", "task", "proxy"),
                        ),
                        argument("--session", "only what this session taught", metavar="ID", values="sessions"),
                        argument("--words", "only those that contain all of these words", metavar="WORDS"),
                        number("--limit", "show at most N (default: 50)"),
                    ),
                ),
                Verb("scopes", "show all scopes that have learnings, and files that cannot be read"),
                Verb(
                    "show",
                    "show a learning, where it came from and what became of it",
                    "clawpy learnings show lrn_4k2",
                    (LEARNING,),
                ),
                Verb(
                    "retract",
                    "retract a learning that is no longer valid",
                    "clawpy learnings retract lrn_4k2 we use pip again",
                    (LEARNING, REASON),
                ),
                Verb(
                    "keep",
                    "keep a learning although its source was retracted",
                    "clawpy learnings keep lrn_4k2",
                    (LEARNING,),
                ),
                Verb(
                    "promote",
                    "use a learning of a project in all projects",
                    "clawpy learnings promote lrn_4k2",
                    (LEARNING,),
                ),
                Verb(
                    "chain",
                    "promote learnings from sessions to their projects now",
                    "clawpy learnings chain --judge",
                    (switch("--judge", "also from projects to all projects; the model in `[memory] model` decides"),),
                ),
                Verb("write", "make a card that writes learnings into a marked section of AGENTS.md"),
            ),
        ),
        Verb(
            "candidates",
            "show proposed changes in how agents act, and decide",
            actions=(
                Verb(
                    "list",
                    "show candidates, newest first",
                    "clawpy candidates list --status review",
                    (
                        argument("--status", "only in this state", choices=CANDIDATE_STATES),
                        argument("--type", "only of this type", choices=CANDIDATE_TYPES),
                    ),
                ),
                _candidate("show", "show a candidate: its evidence, what it would change, what became of it"),
                _candidate("approve", "approve a candidate: it becomes active"),
                _candidate("reject", "reject a candidate; it returns only if new evidence outweighs this", WHY),
                _candidate("rollback", "roll a candidate back: its changes are removed", WHY),
                _candidate("undo", "undo your last decision on a candidate"),
                Verb("digest", "look for new candidates now"),
                Verb(
                    "records",
                    "show the records that candidates are made from",
                    "clawpy candidates records --kind failed_tdd",
                    (argument("--kind", "one of " + ", ".join(RECORD_KINDS), choices=RECORD_KINDS, metavar="KIND"),),
                ),
            ),
        ),
        Verb(
            "metrics",
            "show how useful the cards are: approved, dismissed, by source and hour",
            "clawpy metrics --days 30",
            (number("--days", "of the last N days (default: 7)", default=7),),
        ),
        Verb(
            "export",
            "export your decisions as training files",
            "clawpy export dpo --format together",
            (
                argument("what", "preference pairs, or conversations", choices=("dpo", "sft")),
                argument(
                    "--format", "format of the pairs", choices=("plain", "together", "openai", "trl"), default="plain"
                ),
            ),
        ),
        Verb(
            "train",
            "train a Twin model on your decisions at a model provider",
            "clawpy train start",
            actions=(
                Verb("status", "show training runs, and move the current one on"),
                Verb("start", "start the next run"),
                Verb("cancel", "cancel the running training"),
                Verb("adopt", "use the last model although it was not adopted"),
                Verb("back", "go back to the previous model"),
                Verb(
                    "import",
                    "import pairs, in any export format",
                    "clawpy train import my.jsonl",
                    (argument("file", values="file", metavar="FILE.jsonl", type=absolute),),
                ),
            ),
        ),
        Verb(
            "simulate",
            "simulate a month with the real engine, in a temporary home",
            "clawpy simulate --days 30 --seed 7",
            (
                number("--days", "1 to 366 (default: 30)", default=30),
                number("--seed", "the same seed gives the same output (default: 1)", default=1),
            ),
        ),
    ),
    "settings": (
        Verb(
            "config",
            "show and change settings",
            actions=(
                Verb(
                    "get",
                    "show one setting, or all",
                    "clawpy config get console.theme",
                    (argument("key", values="settings", nargs="?"),),
                ),
                Verb(
                    "set",
                    "change a setting",
                    (
                        "clawpy config set quietHoursStart 22\n"
                        "  clawpy config set providers.ollama.model qwen3:30b\n"
                        "  clawpy config set channels.koji-core.model anthropic:claude-sonnet-5-5\n"
                        "  clawpy config set channels.koji-core.runner acp:claude"
                    ),
                    (SETTING, argument("value")),
                ),
                Verb("unset", "restore the default of a setting", "clawpy config unset quietHoursStart", (SETTING,)),
            ),
        ),
        Verb(
            "key",
            "set, test and delete the keys of model providers",
            "clawpy key set openai",
            actions=(
                Verb("list", "show which keys are set, and where they come from"),
                Verb(
                    "set",
                    "set a key: type it when asked, or pipe it in",
                    "clawpy key set openai",
                    (KEY_NAME, NEVER, STORE),
                ),
                Verb("delete", "delete a key", "clawpy key delete openai", (KEY_NAME,)),
                Verb("test", "test a key with its provider", "clawpy key test openai", (KEY_NAME,)),
            ),
        ),
        Verb(
            "notify",
            "set, test and retry notifications",
            "clawpy notify test phone",
            actions=(
                Verb("list", "show where notifications go, and what was not delivered"),
                Verb(
                    "set",
                    "set an address: type it when asked, or pipe it in",
                    "clawpy notify set phone\n  clawpy config unset notify.phone.url",
                    (argument("surface", choices=SURFACES), NEVER, STORE),
                ),
                Verb("test", "send a test notification", "clawpy notify test phone", (SURFACE,)),
                Verb("retry", "send again what was not delivered", "clawpy notify retry phone", (SURFACE,)),
                Verb("dismiss", "dismiss what was not delivered", "clawpy notify dismiss phone", (SURFACE,)),
            ),
        ),
    ),
    "help": (
        Verb(
            "help",
            "show a page of the documentation, or list the pages",
            "clawpy help flows",
            (argument("topic", nargs="?", metavar="TOPIC", values="topics"),),
        ),
        Verb(
            "completion",
            "print the completion script of a shell, and how to install it",
            "clawpy completion bash",
            (argument("shell", choices=("bash", "zsh", "fish")),),
        ),
    ),
}
"""Every verb, by what it is about."""

VERBS: Mapping[str, Verb] = {verb.name: verb for group in GROUPS.values() for verb in group}


def request(options: Namespace, where: Where) -> Request:
    """What the engine's verb is sent: the options that were given, and what else it must know. Raises `WrongUse`, and
    `Refusal` where a workspace is missing."""
    verb = VERBS[options.verb]
    made: Request = {}
    if verb.actions:
        made["action"] = options.action or verb.actions[0].name
        verb = next(one for one in verb.actions if one.name == made["action"])
    for one in verb.arguments:
        name = one.settings.get("dest") or one.name.removeprefix("--")
        value = getattr(options, name, None)
        if isinstance(value, list) and one.settings.get("action") != "append":
            value = " ".join(value)
        if value not in (None, False, ""):
            made[name] = value
    match options.verb, made.get("action"):
        case "predict", _:
            where.all(needed=True)
            made |= {"workspaces": where.scope(), "shown": True}
        case "cards", _:
            made |= {"workspaces": where.scope(), "shown": not options.all}
        case "work", _:
            made = made | {"shown": not where.as_json} if options.id else {"workspaces": where.scope()}
        case "metrics", _ if where.workspace_names:
            made["workspace"] = where.scope()[0]
        case "tasks", "list" | "add" if scope := where.scope():
            made["workspace"] = scope[0]
        case "propose", _ if not options.continues:
            made["workspace"] = _one_workspace(where)
        case "learnings", "write":
            made["workspace"] = _one_workspace(where)
        case "learnings", "list" if made.get("scope") != "global" and "session" not in made:
            made["workspace"] = _one_workspace(where)
        case "land", _:
            only = made.get("only", [])
            if options.hunk and len(only) != 1:
                raise WrongUse("--hunk needs one --only: the file that it is a hunk of")
            made = {"id": options.id, "only": [{"path": path, "hunks": options.hunk or []} for path in only]}
        case "comment", _ if place := made.pop("place", ""):
            file, _, line = place.rpartition(":")
            if not file or not line.isdecimal() or not options.text:
                raise WrongUse(f"{place!r}: write FILE:LINE and a text, for example cart.py:12 'use Decimal here'")
            made |= {"file": file, "line": int(line)}
        case "profile", _ if options.file is not None:
            if options.undo:
                raise WrongUse("--undo takes no file")
            made = {"id": options.id, "text": _text(options.file), "yes": options.yes}
        case "dnd", _ if options.off and options.seconds:
            raise WrongUse("give --for SPAN or --off, not both")
        case "status", _:
            made = {}  # the format is for the printing
        case "muted", "unmute":
            made["action"] = "lift"
    return made


def _one_workspace(where: Where) -> str:
    scope = where.scope(needed=True)
    if len(scope) > 1:
        raise WrongUse("this verb needs one workspace; give a single --workspace")
    return scope[0]


def _text(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise WrongUse(f"{file} cannot be read: {error}") from error
