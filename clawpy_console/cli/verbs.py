"""Every verb of `clawpy`: one sentence, its options, an example, and the request it becomes (SPEC 9.8).

The parser, the help and the shell completions all read `VERBS`. Nothing of the engine is imported here, so that help
and completions answer at once.
"""

from __future__ import annotations

import re
import sys
from argparse import SUPPRESS, ArgumentTypeError, Namespace
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from clawpy_console.cli.options import Where, WrongUse

Request = dict[str, Any]
Adjust = Callable[[Request, Namespace, Where], Request]


class Argument(NamedTuple):
    """One argument or option: what `argparse.add_argument` takes, and which values a shell completes it with
    (a name in `completion.VALUES`, or "file")."""

    flags: Sequence[str]
    settings: Mapping[str, Any]
    values: str = ""


class Verb(NamedTuple):
    """A verb, or one of its actions. `adjust` changes the request that its arguments make. The first action is
    meant when none is given."""

    name: str
    summary: str
    example: str
    arguments: Sequence[Argument] = ()
    actions: Sequence[Verb] = ()
    adjust: Adjust | None = None


def argument(*flags: str, values: str = "", **settings: Any) -> Argument:
    return Argument(flags, settings, values)


def switch(flag: str, help: str, **settings: Any) -> Argument:
    return argument(flag, action="store_true", help=help, **settings)


UNITS = (86400, 3600, 60, 1)


def span(text: str) -> int:
    """`90s`, `30m`, `2h`, `1h30m`, `1d` in seconds."""
    parts = re.fullmatch(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", text.strip().lower())
    seconds = 0 if parts is None else sum(int(n or 0) * unit for n, unit in zip(parts.groups(), UNITS, strict=True))
    if not 0 < seconds <= 30 * 86400:
        raise ArgumentTypeError(f"{text!r} is not a time span: write 90s, 30m, 2h or 1d, at most 30d")
    return seconds


# -- requests: what an engine's verb is sent beside the options that were given


def workspaces(request: Request, options: Namespace, where: Where) -> Request:
    """The workspaces that are named, else that of the current folder."""
    return request | {"workspaces": where.scope()}


def _predict(request: Request, options: Namespace, where: Where) -> Request:
    where.all(needed=True)
    return workspaces(request, options, where) | {"shown": True}


def _cards(request: Request, options: Namespace, where: Where) -> Request:
    return workspaces(request, options, where) | {"shown": not options.all}


def _work(request: Request, options: Namespace, where: Where) -> Request:
    return request | {"shown": not where.as_json} if options.id else {"workspaces": where.scope()}


def _land(request: Request, options: Namespace, where: Where) -> Request:
    if options.hunk and len(options.only or ()) != 1:
        raise WrongUse("--hunk needs one --only: the file that it is a hunk of")
    return {"id": options.id, "only": [{"path": path, "hunks": options.hunk or []} for path in options.only or ()]}


def _comment(request: Request, options: Namespace, where: Where) -> Request:
    place = request.pop("place", None)
    if place is None:
        return request
    file, _, line = place.rpartition(":")
    if not file or not line.isdecimal() or not options.text:
        raise WrongUse(f"{place!r}: write FILE:LINE and a text, for example cart.py:12 'use Decimal here'")
    return request | {"file": file, "line": int(line)}


def _propose(request: Request, options: Namespace, where: Where) -> Request:
    return request if options.continues else _one_workspace(request, where, needed=True)


def _learnings(request: Request, options: Namespace, where: Where) -> Request:
    if request.get("scope") == "global" or "session" in request:
        return request
    return _one_workspace(request, where, needed=True)


def _learnings_write(request: Request, options: Namespace, where: Where) -> Request:
    return _one_workspace(request, where, needed=True)


def _tasks(request: Request, options: Namespace, where: Where) -> Request:
    return request | ({"workspace": scope[0]} if (scope := where.scope()) else {})


def _metrics(request: Request, options: Namespace, where: Where) -> Request:
    return request | ({"workspace": where.scope()[0]} if where.workspace_names else {})


def _one_workspace(request: Request, where: Where, *, needed: bool) -> Request:
    scope = where.scope(needed=needed)
    if len(scope) > 1:
        raise WrongUse("this verb takes one workspace; name one --workspace")
    return request | {"workspace": scope[0]}


def _profile(request: Request, options: Namespace, where: Where) -> Request:
    if options.undo and options.file is not None:
        raise WrongUse("--undo takes no file")
    if options.file is None:
        return request
    try:
        text = sys.stdin.read() if options.file == "-" else Path(options.file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise WrongUse(f"{options.file} cannot be read: {error}") from error
    return {"id": options.id, "text": text, "yes": options.yes}


def _import(request: Request, options: Namespace, where: Where) -> Request:
    return request | {"file": str(Path(options.file).resolve())}


def _dnd(request: Request, options: Namespace, where: Where) -> Request:
    if options.off and options.seconds:
        raise WrongUse("give --for SPAN or --off, not both")
    return request


def _status(request: Request, options: Namespace, where: Where) -> Request:
    return {}  # the format is for the printing


def _unmute(request: Request, options: Namespace, where: Where) -> Request:
    return request | {"action": "lift"}


# -- arguments that several verbs take

CARD = argument("id", values="cards", help="id of a card, session or changes; its beginning is enough")
SESSION = argument("id", values="sessions", help="id of a session or its card; its beginning is enough")
CHANGES = argument("id", values="changes", help="id of the changes, their session or card")
AGENT = argument("id", metavar="AGENT", values="agents")
LEADER = argument(
    "--to", dest="reportsTo", required=True, metavar="LEADER", values="agents", help="its leader, or owner"
)
FOR = argument("--for", dest="seconds", metavar="SPAN", type=span, help="30m, 2h or 1d (default: 2h)")
END_AFTER = argument(
    "--for", dest="seconds", metavar="SPAN", type=span, help="stop after 30m, 8h or 2d, when running work is finished"
)
STORE = argument(
    "--store",
    choices=("keyring", "file"),
    default="keyring",
    help="where to keep it: the system's keyring (default), or a plain file that only you can read",
)
NEVER = argument("never", nargs="*", help=SUPPRESS)
"""What is given here by mistake may be a secret: it is refused, and never printed."""
SURFACE = argument("surface", nargs="?", choices=("phone", "watch", "glasses", "discord", "web", "desktop"))
REASON = argument("reason", nargs="*", metavar="REASON", help="why, in your words")
YES = switch("--yes", "do it; without --yes you only see what would change")
BATCH = argument("--batch", metavar="FILE.jsonl", values="file")

COMMON = (
    argument(
        "--workspace",
        metavar="DIR",
        action="append",
        values="workspaces",
        help="a git repository to work on; may be given again (default: that of the current folder)",
    ),
    argument(
        "--home", metavar="DIR", values="file", help="keep config, data, cache and logs under DIR (or set CLAWPY_HOME)"
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


CANDIDATE = argument("id", values="candidates", help="id of a candidate; its beginning is enough")
WHY = argument("--reason", metavar="TEXT", help="why, in your words")
LEARNING = argument("id")
DECIDED = argument("id", values="decided cards", help="id of a card, session or changes; its beginning is enough")
RUNNING = argument("id", values="running sessions", help="id of a session or its card; its beginning is enough")
PERMISSION = argument("id", values="permissions", help="id of the request; its beginning is enough")
WHOLE_SESSION = switch("--session", "give the same answer as long as the session runs")
DRAFT = argument("id", values="drafts", help="id of the draft; its beginning is enough")
KEY_NAME = argument("name", values="providers", help="openai, anthropic, together, twin, or one of your [providers]")
SETTING = argument("key", values="settings")

GROUPS: Mapping[str, Sequence[Verb]] = {
    "cards": (
        Verb("predict", "check for new cards now, and show all that are pending", "clawpy predict", adjust=_predict),
        Verb(
            "cards",
            "show the cards that are pending",
            "clawpy cards --channel koji-core",
            (
                argument("--channel", values="channels", help="only cards of this channel"),
                switch("--snoozed", "include snoozed cards"),
                switch("--all", "the latest cards, decided ones too"),
            ),
            adjust=_cards,
        ),
        Verb(
            "propose",
            "make a card of your own, from a prompt or from a flow with its parameters as key=value",
            'clawpy propose "run the tests"\n  clawpy propose bisect test=tests/test_cart.py::test_total good=HEAD~9',
            (
                argument("text", nargs="+", values="flows", help="a prompt, or FLOW key=value ..."),
                argument("--channel", values="channels", help="the channel to run it on"),
                argument(
                    "--continue",
                    dest="continues",
                    metavar="ID",
                    values="sessions",
                    help="go on with this finished session and its changes",
                ),
            ),
            adjust=_propose,
        ),
        Verb(
            "approve",
            "approve a card and start its session",
            "clawpy approve 7k2m --wait",
            (
                CARD,
                argument("--edit", metavar="TEXT", help="another prompt, or other parameters of a flow as key=value"),
                switch("--wait", "wait for the end of the session; exit code 1 if it failed, 3 if it could not run"),
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
                    choices=DISMISS_REASONS,
                    help="why; never-here and never-anywhere switch this kind of card off",
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
            "clawpy muted",
            actions=(
                Verb("list", "show what is muted, where, until when and why", "clawpy muted list"),
                Verb(
                    "unmute",
                    "let cards of this subject appear again",
                    "clawpy muted unmute mute_7k2m",
                    (argument("id"),),
                    adjust=_unmute,
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
                SESSION._replace(settings={**SESSION.settings, "nargs": "?"}),
                argument("--lines", type=int, default=40, metavar="N", help="lines of output to show (default: 40)"),
                switch("--diff", "show the diff of the changes too"),
            ),
            adjust=_work,
        ),
        Verb(
            "land",
            "put the changes of a session into your working tree, all or part of them",
            "clawpy land 7k2m\n  clawpy land 7k2m --only cart.py --hunk 2",
            (
                CHANGES,
                argument(
                    "--only",
                    metavar="PATH",
                    action="append",
                    help="only this file; the rest stays waiting; may be given again",
                ),
                argument(
                    "--hunk",
                    metavar="N",
                    type=int,
                    action="append",
                    help="only this hunk of one file, as `clawpy work ID --diff` counts them",
                ),
            ),
            adjust=_land,
        ),
        Verb(
            "comment",
            "comment on a line of the changes, or show the comments",
            'clawpy comment 7k2m cart.py:12 "use Decimal here"\n  clawpy comment 7k2m --send',
            (
                CHANGES,
                argument("place", metavar="FILE:LINE", nargs="?"),
                argument("text", nargs="*"),
                switch("--old", "LINE counts lines before the change"),
                argument("--remove", metavar="N", type=int, help="remove comment N"),
                switch("--send", "make a card that sends the comments to the agent"),
            ),
            adjust=_comment,
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
            "clawpy permissions",
            actions=(
                Verb(
                    "list",
                    "show open requests",
                    "clawpy permissions list",
                    (switch("--all", "the latest requests, answered ones too"),),
                ),
                Verb("allow", "allow a request", "clawpy permissions allow 7k2m", (PERMISSION, WHOLE_SESSION)),
                Verb("deny", "deny a request", "clawpy permissions deny 7k2m", (PERMISSION, WHOLE_SESSION)),
            ),
        ),
        Verb(
            "xray",
            "show the model calls of a session and the exact prompts",
            "clawpy xray 7k2m --call 1",
            (SESSION, argument("--call", metavar="N", help="show the prompt of call N, each line with its source")),
        ),
        Verb(
            "tasks",
            "show and change the task board",
            "clawpy tasks",
            adjust=_tasks,
            actions=(
                Verb(
                    "list",
                    "show tasks",
                    "clawpy tasks list --state open",
                    (argument("--state", choices=("open", "running", "done", "failed")),),
                    adjust=_tasks,
                ),
                Verb(
                    "add",
                    "add a task",
                    'clawpy tasks add "cart rounding"',
                    (
                        argument("title", nargs="+", metavar="TITLE"),
                        argument("--channel", values="channels", help="the channel it belongs to"),
                        argument(
                            "--needs",
                            metavar="ID",
                            action="append",
                            values="tasks",
                            help="a task to be done first; may be given again",
                        ),
                    ),
                    adjust=_tasks,
                ),
                Verb(
                    "done",
                    "mark a task done",
                    "clawpy tasks done 7k2m",
                    (argument("id", values="tasks"),),
                ),
            ),
        ),
    ),
    "engine": (
        Verb(
            "status",
            "show what runs, what waits, and what it has cost",
            "clawpy status --format short",
            (
                argument(
                    "--format",
                    choices=("full", "short", "long"),
                    default="full",
                    help="short or long: one line for a status bar",
                ),
            ),
            adjust=_status,
        ),
        Verb("stop", "stop everything at once, until you resume", 'clawpy stop "looking into something"', (REASON,)),
        Verb(
            "resume",
            "end a stop, a month stop or a pause",
            "clawpy resume stop",
            (argument("word", nargs="?", choices=("stop", "pause", "month"), help="which one, if several are active"),),
        ),
        Verb(
            "dnd",
            "do not disturb: cards appear, nothing runs by itself",
            "clawpy dnd --for 2h",
            (FOR, switch("--off", "end it")),
            adjust=_dnd,
        ),
        Verb("run", "run the engine without a screen until you stop it", "clawpy run --for 8h", (END_AFTER,)),
        Verb(
            "serve",
            "run the engine without a screen, with the HTTP API for a phone, a script or an agent",
            "clawpy serve --port 8477",
            (
                END_AFTER,
                argument(
                    "--port",
                    type=int,
                    metavar="N",
                    help="port to listen on; 0 takes a free one (default: 8477, or what the settings say)",
                ),
                argument(
                    "--host",
                    metavar="ADDRESS",
                    help="address to listen on (default: 127.0.0.1, or what the settings say)",
                ),
                argument(
                    "--certificate",
                    metavar="FILE",
                    values="file",
                    help="TLS certificate (PEM), needed when other machines connect",
                ),
                argument(
                    "--certificate-key",
                    metavar="FILE",
                    values="file",
                    help="its private key (PEM), if it is in another file",
                ),
                switch("--tunnel", "allow plain HTTP because a tunnel of yours encrypts it"),
                STORE,
            ),
        ),
        Verb(
            "token",
            "show the token of the HTTP API, or make a new one",
            "clawpy token",
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
            (argument("--agent", metavar="NAME", help="name to record for it (default: the name it gives itself)"),),
        ),
        Verb(
            "check",
            "ask the content filter about a command or a prompt, without running anything",
            'clawpy check "rm -fr build"',
            (
                argument("command", nargs="*", help="the command; the exit code is 0 whatever the verdict"),
                argument("--prompt", metavar="TEXT", help="a prompt instead of a command"),
                BATCH._replace(
                    settings={**BATCH.settings, "help": 'lines with "command" or "prompt"; - reads standard input'}
                ),
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
            "clawpy agents",
            actions=(
                Verb("list", "show all agents, and the coding agents on this machine", "clawpy agents list"),
                Verb("show", "show one agent", "clawpy agents show cto", (AGENT,)),
                Verb(
                    "add",
                    "add an agent",
                    "clawpy agents add tester --to backend_lead --domain tests",
                    (
                        argument("id", metavar="AGENT", help="its name"),
                        LEADER,
                        argument("--title", help="its title"),
                        argument("--archetype", help="sets its tier, for example builder"),
                        argument("--domain", help="what it knows about, in a few words"),
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
                            "id",
                            metavar="CODING-AGENT",
                            values="coding agents",
                            help="one that `clawpy agents list` names",
                        ),
                    ),
                ),
            ),
        ),
        Verb(
            "guidance",
            "show the guidance in an agent's next prompt, and what was left out",
            "clawpy guidance backend_builder",
            (
                AGENT,
                LEADER._replace(
                    settings={**LEADER.settings, "required": False, "help": "also show its guidance under this leader"}
                ),
            ),
        ),
        Verb(
            "profile",
            "show the profile of a leader, save an edited one, or undo the last save",
            "clawpy profile cto guidance-of-cto.md --yes",
            (
                argument("id", metavar="LEADER", values="agents"),
                argument(
                    "file", nargs="?", metavar="FILE", values="file", help="the edited text; - reads standard input"
                ),
                switch("--yes", "save it; without --yes you only see which prompts change"),
                switch("--undo", "undo the last save"),
            ),
            adjust=_profile,
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
                            choices=("queued", "refused", "flushed"),
                            help="only findings in this state; flushed means sent up",
                        ),
                        argument(
                            "--agent", metavar="AGENT", values="agents", help="only findings that it sent or received"
                        ),
                    ),
                ),
                Verb("flush", "send queued findings to their leaders now", "clawpy bubbles flush"),
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
                argument("--k", type=int, default=10, metavar="N", help="lines to show, 1 to 1000 (default: 10)"),
                argument("--agent", metavar="AGENT", values="agents", help="search as this agent"),
                BATCH._replace(
                    settings={**BATCH.settings, "help": 'lines with "id", "query", "k"; - reads standard input'}
                ),
            ),
        ),
        Verb(
            "remember",
            "store conversations in memory",
            "clawpy remember chats.jsonl",
            (
                argument(
                    "file",
                    metavar="FILE.jsonl",
                    values="file",
                    help='lines with "text", and "id", "speaker", "timestamp", "session", "agent"; - for stdin',
                ),
                switch("--no-wait", "do not wait until all of it can be found by meaning"),
            ),
        ),
        Verb(
            "forget",
            "delete a memory entry, or everything that contains some words, from every store",
            "clawpy forget 'my phone number is 555 0101' --yes",
            (
                argument("what", metavar="ID|WORDS", nargs="+", help="the whole id of an entry, or its exact words"),
                switch("--yes", "delete it for good; without --yes you see what would go, and the exit code is 1"),
            ),
        ),
        Verb(
            "drafts",
            "show drafts of facts; keep or dismiss them",
            "clawpy drafts",
            actions=(
                Verb("list", "show drafts, oldest first", "clawpy drafts list"),
                Verb(
                    "promote",
                    "keep a draft as a fact",
                    'clawpy drafts promote 7k2m --edit "the service listens on 8001"',
                    (DRAFT, argument("--edit", metavar="TEXT", help="keep it in these words instead")),
                ),
                Verb(
                    "dismiss",
                    "dismiss a draft; the same words are not drafted again",
                    "clawpy drafts dismiss 7k2m",
                    (DRAFT,),
                ),
            ),
        ),
        Verb(
            "learnings",
            "show learnings and their sources, decide about them, write them into AGENTS.md",
            "clawpy learnings list",
            adjust=_learnings,
            actions=(
                Verb(
                    "list",
                    "show learnings of this workspace",
                    "clawpy learnings list --scope session --words parser",
                    (
                        argument(
                            "--scope",
                            choices=("team", "session", "project", "global"),
                            help="only of this scope, in any status",
                        ),
                        argument(
                            "--kind",
                            choices=("institutional", "task", "proxy"),
                            help="about your organisation, the work, or you",
                        ),
                        argument("--session", metavar="ID", values="sessions", help="only what this session taught"),
                        argument("--words", metavar="WORDS", help="only those that contain all of these words"),
                        argument("--limit", type=int, metavar="N", help="show at most N (default: 50)"),
                    ),
                    adjust=_learnings,
                ),
                Verb(
                    "scopes",
                    "show all scopes that have learnings, and files that cannot be read",
                    "clawpy learnings scopes",
                ),
                Verb(
                    "show",
                    "show a learning, where it came from and what came of it",
                    "clawpy learnings show lrn_4k2",
                    (LEARNING,),
                ),
                Verb(
                    "retract",
                    "retract a learning that is not valid any more",
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
                Verb(
                    "write",
                    "make a card that writes learnings into a marked section of AGENTS.md",
                    "clawpy learnings write",
                    adjust=_learnings_write,
                ),
            ),
        ),
        Verb(
            "candidates",
            "show proposed changes in how agents act, and decide",
            "clawpy candidates",
            actions=(
                Verb(
                    "list",
                    "show candidates, newest first",
                    "clawpy candidates list --status review",
                    (
                        argument("--status", choices=CANDIDATE_STATES, help="only in this state"),
                        argument("--type", choices=CANDIDATE_TYPES, help="only of this type"),
                    ),
                ),
                _candidate("show", "show a candidate: its evidence, what it would change, what came of it"),
                _candidate("approve", "approve a candidate: it becomes active"),
                _candidate("reject", "reject a candidate; it returns only if new evidence outweighs this", WHY),
                _candidate("rollback", "roll a candidate back: its changes are removed", WHY),
                _candidate("undo", "undo your last decision on a candidate"),
                Verb("digest", "look for new candidates now", "clawpy candidates digest"),
                Verb(
                    "records",
                    "show the records that candidates are made from",
                    "clawpy candidates records --kind failed_tdd",
                    (
                        argument(
                            "--kind", choices=RECORD_KINDS, metavar="KIND", help="one of " + ", ".join(RECORD_KINDS)
                        ),
                    ),
                ),
            ),
        ),
        Verb(
            "metrics",
            "show how good the cards are: approved, dismissed, by source and hour",
            "clawpy metrics --days 30",
            (argument("--days", type=int, default=7, metavar="N", help="of the last N days (default: 7)"),),
            adjust=_metrics,
        ),
        Verb(
            "export",
            "export your decisions as training files",
            "clawpy export dpo --format together",
            (
                argument("what", choices=("dpo", "sft"), help="preference pairs, or conversations"),
                argument(
                    "--format",
                    choices=("plain", "together", "openai", "trl"),
                    default="plain",
                    help="format of the pairs",
                ),
            ),
        ),
        Verb(
            "train",
            "train a Twin model on your decisions at a model provider",
            "clawpy train start",
            actions=(
                Verb("status", "show training runs, and move the current one on", "clawpy train status"),
                Verb("start", "start the next run", "clawpy train start"),
                Verb("cancel", "cancel the running training", "clawpy train cancel"),
                Verb("adopt", "use the last model although it was not adopted", "clawpy train adopt"),
                Verb("back", "go back to the previous model", "clawpy train back"),
                Verb(
                    "import",
                    "import pairs, in any export format",
                    "clawpy train import my.jsonl",
                    (argument("file", metavar="FILE.jsonl", values="file"),),
                    adjust=_import,
                ),
            ),
        ),
        Verb(
            "simulate",
            "simulate a month with the real engine, in a temporary home",
            "clawpy simulate --days 30 --seed 7",
            (
                argument("--days", type=int, default=30, metavar="N", help="1 to 366 (default: 30)"),
                argument(
                    "--seed", type=int, default=1, metavar="N", help="the same seed gives the same output (default: 1)"
                ),
            ),
        ),
    ),
    "settings": (
        Verb(
            "config",
            "show and change settings",
            "clawpy config",
            actions=(
                Verb(
                    "get",
                    "show one setting, or all",
                    "clawpy config get console.theme",
                    (SETTING._replace(settings={**SETTING.settings, "nargs": "?"}),),
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
                Verb("list", "show which keys are set, and where they come from", "clawpy key list"),
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
                Verb("list", "show where notifications go, and what was not delivered", "clawpy notify list"),
                Verb(
                    "set",
                    "set an address: type it when asked, or pipe it in",
                    "clawpy notify set phone\n  clawpy config unset notify.phone.url",
                    (SURFACE._replace(settings={"choices": SURFACE.settings["choices"]}), NEVER, STORE),
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
    """What the engine's verb is sent: the options that were given, and what the verb or its action adds. Raises
    `WrongUse`, and `Refusal` where a workspace is missing."""
    verb = VERBS[options.verb]
    made: Request = {}
    if verb.actions:
        made["action"] = options.action or verb.actions[0].name
        verb = next(one for one in verb.actions if one.name == made["action"])
    for one in verb.arguments:
        name = one.settings.get("dest") or one.flags[0].removeprefix("--")
        value = getattr(options, name, None)
        if isinstance(value, list) and one.settings.get("action") != "append":
            value = " ".join(value)
        if value not in (None, False, ""):
            made[name] = value
    return verb.adjust(made, options, where) if verb.adjust else made
