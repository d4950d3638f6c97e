"""The command line: every verb, its options, an example, and the request it becomes (SPEC 9.8)."""

from __future__ import annotations

import argparse
import difflib
import os
import re
import shlex
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, NoReturn

from clawpy_console.where import Where, WrongUse
from engine.values import sanitise
from engine.values.secrets import redact

Build = Callable[[argparse.Namespace, Where], dict[str, Any]]


def _scoped(options: argparse.Namespace, where: Where) -> dict[str, Any]:
    scope = where.scope()
    return {"workspaces": scope} if scope else {}


def _predict(options: argparse.Namespace, where: Where) -> dict[str, Any]:
    if not where.all():
        where.scope(needed=True)
    return _scoped(options, where) | {"shown": not where.as_json}


def _cards(options: argparse.Namespace, where: Where) -> dict[str, Any]:
    wanted: dict[str, Any] = _scoped(options, where) | {"snoozed": options.snoozed, "all": options.all}
    return wanted | {"channel": options.channel, "shown": not where.as_json and not options.all}


def _propose(options: argparse.Namespace, where: Where) -> dict[str, Any]:
    if options.continues is not None:
        return {"text": " ".join(options.text), "continues": options.continues, "channel": options.channel}
    scope = where.scope(needed=True)
    if len(scope) > 1:
        raise WrongUse("a card belongs to one workspace; name one")
    return {"text": " ".join(options.text), "workspace": scope[0], "channel": options.channel}


def _work(options: argparse.Namespace, where: Where) -> dict[str, Any]:
    if options.id is None:
        return _scoped(options, where)
    return {"id": options.id, "lines": options.lines, "diff": options.diff}


def _tasks(options: argparse.Namespace, where: Where) -> dict[str, Any]:
    scope = where.scope()
    here = {"workspace": scope[0]} if scope else {}
    if options.action == "add":
        new = {"action": "add", "title": " ".join(options.title), "channel": options.channel or ""}
        return new | here | ({"needs": options.needs} if options.needs else {})
    if options.action == "done":
        return {"action": "done", "id": options.id}
    return {"action": "list", "state": getattr(options, "state", None)} | here


def _export(options: argparse.Namespace, where: Where) -> dict[str, Any]:
    return {"what": options.what, "format": options.format}


def _dnd(options: argparse.Namespace, where: Where) -> dict[str, Any]:
    return {"off": True} if options.off else {"seconds": options.seconds}


UNITS = (86400, 3600, 60, 1)


def span(text: str) -> int:
    """`90s`, `30m`, `2h`, `1h30m`, `1d` in seconds."""
    parts = re.fullmatch(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", text.strip().lower())
    seconds = 0 if parts is None else sum(int(n or 0) * unit for n, unit in zip(parts.groups(), UNITS, strict=True))
    if not 0 < seconds <= 30 * 86400:
        raise argparse.ArgumentTypeError(f"{text!r} is no time span; 30m, 2h or 1d for instance, at most 30d")
    return seconds


class _Parser(argparse.ArgumentParser):
    verbs: Collection[str] = ()
    """Those of the parser of everything."""

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        if self.verbs and args and not args[0].startswith("-") and args[0] not in self.verbs:
            self.error(_no_verb(args[0], self.verbs))
        return super().parse_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {sanitise(redact(message))}\nsee `{self.prog} --help`\n")


def _no_verb(word: str, verbs: Collection[str]) -> str:
    """What is said of a first word that is none: argparse would list all verbs, and not what was meant."""
    if os.sep in word or Path(word).is_dir():
        return f"{word} is no verb; a repository is named with --workspace: clawpy --workspace {shlex.quote(word)}"
    near = difflib.get_close_matches(word, verbs, 3)
    return f"there is no verb {word}" + (f"; is {' or '.join(near)} meant?" if near else "")


EVERYWHERE = """before or after any verb:
  --home DIR        keep config, data, cache and logs under DIR (or set CLAWPY_HOME)
  --workspace DIR   a git repository to work on, may be given again; by default that of the current folder
  --json            one JSON document on standard output
"""


def parser() -> argparse.ArgumentParser:
    """The parser of everything besides the options of `where`; its result has `verb`, and `build` for its arguments."""
    plain: dict[str, Any] = {"formatter_class": argparse.RawDescriptionHelpFormatter, "allow_abbrev": False}
    top = _Parser(
        prog="clawpy",
        usage="clawpy [--workspace DIR]... [--home DIR] [--demo] [--version] [VERB ...]",
        description="An operator's console for a swarm of AI agents. Without a verb it opens the console.",
        epilog=EVERYWHERE
        + "\nfor instance:\n  clawpy\n  clawpy predict\n  clawpy approve 7k2m --wait\n  clawpy --demo",
        **plain,
    )
    verbs = top.add_subparsers(prog="clawpy", dest="verb", metavar="VERB", title="verbs", parser_class=_Parser)

    def add(name: str, says: str, example: str, build: Build | None = None) -> argparse.ArgumentParser:
        made = verbs.add_parser(
            name, help=says, description=says[0].upper() + says[1:] + ".",
            epilog=f"for instance:\n  {example}\n\n{EVERYWHERE}", **plain,
        )  # fmt: skip
        made.set_defaults(build=build or (lambda options, where: {}))
        return made

    def with_id(name: str, says: str, example: str) -> argparse.ArgumentParser:
        made = add(name, says, example, lambda options, where: {"id": options.id})
        made.add_argument("id", metavar="ID", help="a card's, session's or change set's id, or its beginning")
        return made

    run = add("run", "run the engine without a screen until it is ended", "clawpy run --for 8h")
    run.add_argument("--for", dest="seconds", metavar="SPAN", type=span, help="end by itself, running work finished")
    add("predict", "run one prediction cycle now and show the cards", "clawpy predict --json", _predict)
    cards = add("cards", "show the cards that are pending", "clawpy cards --channel koji-core", _cards)
    cards.add_argument("--channel", help="only of this channel")
    cards.add_argument("--snoozed", action="store_true", help="those that were put off, too")
    cards.add_argument("--all", action="store_true", help="the latest cards of any status")
    propose = add("propose", "make a card of your own", 'clawpy propose "run the tests"', _propose)
    propose.add_argument("text", metavar="TEXT", nargs="+")
    propose.add_argument("--channel", help="the channel that shall do it")
    propose.add_argument(
        "--continue", dest="continues", metavar="ID", help="go on with a finished session: its words, its changes"
    )

    approve = with_id("approve", "approve a card, which starts its session", "clawpy approve 7k2m --wait")
    approve.add_argument("--edit", metavar="TEXT", help="another prompt, or KEY=VALUE parameters of a flow")
    approve.add_argument("--wait", action="store_true", help="until the session has ended; exit code 1 when it failed")
    approve.set_defaults(build=lambda options, where: {"id": options.id, "edit": options.edit, "wait": options.wait})
    with_id("dismiss", "dismiss a card", "clawpy dismiss 7k2m")
    snooze = with_id("snooze", "put a card off", "clawpy snooze 7k2m --for 30m")
    snooze.add_argument("--for", dest="seconds", metavar="SPAN", type=span, default=7200, help="2h by default")
    snooze.set_defaults(build=lambda options, where: {"id": options.id, "seconds": options.seconds})
    with_id(
        "undo", "take a decision back: reopen the card, end its session, or reverse its landing", "clawpy undo 7k2m"
    )

    work = add("work", "show sessions and change sets, or one of them", "clawpy work 7k2m --diff", _work)
    work.add_argument("id", metavar="ID", nargs="?", help="a card's, session's or change set's id, or its beginning")
    work.add_argument("--lines", type=int, default=40, help="so many lines of the transcript, 40 by default")
    work.add_argument("--diff", action="store_true", help="with what it changed")
    xray = with_id("xray", "show the calls that a session made, and what exactly was sent", "clawpy xray 7k2m --call 1")
    xray.add_argument("--call", metavar="N", help="the prompt of its N-th call, each line with its source")
    xray.set_defaults(build=lambda options, where: {"id": options.id, "call": options.call})
    reply = with_id("reply", "tell a running session something", 'clawpy reply 7k2m "use the other file"')
    reply.add_argument("text", metavar="TEXT", nargs="+")
    reply.set_defaults(build=lambda options, where: {"id": options.id, "text": " ".join(options.text)})
    with_id("land", "bring what a session changed into the working tree", "clawpy land 7k2m")
    with_id("branch", "commit what a session changed onto a branch of its own", "clawpy branch 7k2m")
    with_id("discard", "throw away what a session changed", "clawpy discard 7k2m")

    status = add("status", "show state, holds, cost, and what waits", "clawpy status --format short")
    status.add_argument("--format", choices=("full", "short", "long"), default="full", help="short for a status bar")
    stop = add("stop", "stop everything at once, and keep it stopped", 'clawpy stop "looking into something"')
    stop.add_argument("reason", nargs="*", metavar="REASON")
    resume = add("resume", "lift a hold", "clawpy resume stop", lambda options, where: {"word": options.word or ""})
    resume.add_argument("word", nargs="?", choices=("stop", "pause", "month"))
    dnd = add("dnd", "do not disturb: cards are made, nothing executes by itself", "clawpy dnd --for 2h", _dnd)
    spans = dnd.add_mutually_exclusive_group()
    spans.add_argument("--for", dest="seconds", metavar="SPAN", type=span, default=7200, help="2h by default")
    spans.add_argument("--off", action="store_true", help="end it")
    doctor = add("doctor", "show what is configured, found, missing, and how to mend it", "clawpy doctor")
    doctor.add_argument("--online", action="store_true", help="also ask each provider whether it takes its key")

    _agents_parser(add, plain)
    _wisdom_parsers(add, plain)
    _permissions_parser(add, plain)
    _tasks_parser(add, plain)
    _config_parser(add, plain)
    _key_parser(add, plain)
    _train_parser(add, plain)

    remember = add("remember", "remember turns of conversations", "clawpy remember chats.jsonl")
    remember.add_argument(
        "file",
        metavar="FILE.jsonl",
        help='lines with "text", and "id", "speaker", "timestamp", "session", "agent"; - for standard input',
    )
    remember.add_argument(
        "--no-wait", action="store_true", help="do not wait until all of it can be found by meaning, too"
    )
    recall = add(
        "recall", "show what memory knows about a question", 'clawpy recall "what did we decide about rounding"'
    )
    recall.add_argument("query", metavar="QUERY", nargs="*")
    recall.add_argument("--k", type=int, default=10, metavar="N", help="so many lines, from 1 to 1000; 10 by default")
    recall.add_argument("--agent", metavar="AGENT", help="as this agent would be told")
    recall.add_argument("--batch", metavar="FILE.jsonl", help='lines with "id", "query", "k"; - for standard input')
    measured = add(
        "metrics", "show how good the predictions are", "clawpy metrics --days 30",
        lambda options, where: {"days": options.days},
    )  # fmt: skip
    measured.add_argument("--days", type=int, default=7, metavar="N", help="of the last N days; 7 by default")
    says = "bring out what was learnt from your decisions, as files to train a model on"
    export = add("export", says, "clawpy export dpo --format together", _export)
    export.add_argument("what", choices=("dpo", "sft"), help="preference pairs, or conversations")
    export.add_argument(
        "--format", choices=("plain", "together", "openai", "trl"), default="plain", help="the shape of pairs"
    )
    _drafts_parser(add, plain)
    says = "take an entry of memory, or everything that holds some words, out of every store for good"
    forget = add(
        "forget", says, "clawpy forget 'my phone number is 555 0101' --yes",
        lambda options, where: {"what": " ".join(options.what), "yes": options.yes},
    )  # fmt: skip
    forget.description = f"{forget.description} Without --yes it shows what that touches, and ends with 1."
    forget.add_argument("what", metavar="ID|WORDS", nargs="+", help="the whole id of an entry, or its very words")
    forget.add_argument("--yes", action="store_true", help="do it; it cannot be taken back")
    check = add("check", "ask the content filter about a command or a prompt", 'clawpy check "rm -fr build"')
    check.description = f"{check.description} The exit code is 0 whatever the verdict is: read the verdict."
    check.add_argument("command", metavar="COMMAND", nargs="*")
    check.add_argument("--prompt", metavar="TEXT", help="words instead of a command")
    check.add_argument("--batch", metavar="FILE.jsonl", help='lines with "command" or "prompt"; - for standard input')
    simulate = add(
        "simulate",
        "live a made-up month with the real engine, in a throw-away home",
        "clawpy simulate --days 30 --seed 7",
    )
    simulate.add_argument("--days", type=int, default=30, metavar="N", help="from 1 to 366; 30 by default")
    simulate.add_argument(
        "--seed", type=int, default=1, metavar="N", help="the same seed, the same output; 1 by default"
    )
    top.verbs = verbs.choices
    return top


Add = Callable[..., argparse.ArgumentParser]


def _actions(
    parser: argparse.ArgumentParser, plain: dict[str, Any], *, required: bool = True
) -> Callable[..., argparse.ArgumentParser]:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=required, parser_class=_Parser)

    def add(name: str, says: str, example: str) -> argparse.ArgumentParser:
        return actions.add_parser(
            name, help=says, description=says[0].upper() + says[1:] + ".", epilog=f"for instance:\n  {example}", **plain
        )

    return add


def _agents_parser(add: Add, plain: dict[str, Any]) -> None:
    def build(options: argparse.Namespace, where: Where) -> dict[str, Any]:
        same = ("title", "archetype", "domain", "channel", "tier")
        named = {"id": "id", "reportsTo": "to"} | {name: name for name in same}
        given = {name: getattr(options, option, None) for name, option in named.items()}
        return {"action": options.action or "list"} | {n: value for n, value in given.items() if value is not None}

    says = "show and change the organisation; without an action, show it"
    action = _actions(add("agents", says, "clawpy agents", build), plain, required=False)
    action("list", "show the organisation", "clawpy agents list")
    action("show", "show one agent", "clawpy agents show cto").add_argument("id", metavar="AGENT")
    new = action("add", "add an agent", "clawpy agents add tester --to backend_lead --domain tests")
    new.add_argument("id", metavar="AGENT")
    new.add_argument("--to", required=True, metavar="LEADER", help="whom it reports to, or owner")
    new.add_argument("--title")
    new.add_argument("--archetype", help="decides its tier, for instance builder")
    new.add_argument("--domain", help="what it knows about, in a few words")
    move = action("move", "put an agent under another leader", "clawpy agents move tester --to cto")
    move.add_argument("id", metavar="AGENT")
    move.add_argument("--to", required=True, metavar="LEADER", help="whom it reports to, or owner")
    action("retire", "take an agent out; its folder is kept", "clawpy agents retire tester").add_argument(
        "id", metavar="AGENT"
    )
    tier = action("tier", "say which tier an agent is; auto lets the other rules decide", "clawpy agents tier cto 1")
    tier.add_argument("id", metavar="AGENT")
    tier.add_argument("tier", choices=("1", "2", "3", "4", "5", "auto"), metavar="1-5|auto")
    serve = action("serve", "have a coding agent of yours serve a channel", "clawpy agents serve koji-core claude")
    serve.add_argument("channel", metavar="CHANNEL")
    serve.add_argument("id", metavar="CODING-AGENT", help="one that `clawpy agents list` names")


def _wisdom_parsers(add: Add, plain: dict[str, Any]) -> None:
    def told(options: argparse.Namespace, where: Where) -> dict[str, Any]:
        return {"id": options.id} | ({"reportsTo": options.to} if options.to else {})

    def asked(options: argparse.Namespace, where: Where) -> dict[str, Any]:
        named = {name: getattr(options, name, None) for name in ("state", "agent")}
        return {"action": options.action or "list"} | {name: value for name, value in named.items() if value}

    says = "show what an agent's leaders tell it in its next prompt, and what was cut"
    guidance = add("guidance", says, "clawpy guidance backend_builder", told)
    guidance.add_argument("id", metavar="AGENT")
    guidance.add_argument("--to", metavar="LEADER", help="also what it would be told there")
    says = "show what agents found out and sent up, and which gate refused it"
    action = _actions(add("bubbles", says, "clawpy bubbles list --state refused", asked), plain, required=False)
    shown = action("list", "show learnings on their way up", "clawpy bubbles list --state queued")
    shown.add_argument("--state", choices=("queued", "refused", "flushed"))
    shown.add_argument("--agent", metavar="AGENT", help="those that it sent or receives")
    action("flush", "let what is queued become patterns of its leaders now", "clawpy bubbles flush")

    def here(options: argparse.Namespace, where: Where) -> dict[str, Any]:
        scope = where.scope(needed=True)
        if len(scope) > 1:
            raise WrongUse("learnings belong to one workspace; name one")
        return {"action": options.action or "list", "workspace": scope[0]}

    says = "show what was learnt in a workspace, or have it written into its AGENTS.md"
    action = _actions(add("learnings", says, "clawpy learnings list", here), plain, required=False)
    action("list", "show what was learnt here and counts, with who found it out", "clawpy learnings list")
    says = "make a card that writes it into one marked section of AGENTS.md; you land the diff"
    action("write", says, "clawpy learnings write")


def _tasks_parser(add: Add, plain: dict[str, Any]) -> None:
    says = "show and change the task board; without an action, show it"
    action = _actions(add("tasks", says, "clawpy tasks", _tasks), plain, required=False)
    shown = action("list", "show tasks", "clawpy tasks list --state open")
    shown.add_argument("--state", choices=("open", "running", "done", "failed"))
    new = action("add", "add a task", 'clawpy tasks add "cart rounding"')
    new.add_argument("title", nargs="+", metavar="TITLE")
    new.add_argument("--channel", help="the channel it concerns")
    new.add_argument("--needs", metavar="ID", action="append", help="a task to be done first; may be given again")
    action("done", "mark a task done", "clawpy tasks done 7k2m").add_argument("id", metavar="ID")


def _drafts_parser(add: Add, plain: dict[str, Any]) -> None:
    def build(options: argparse.Namespace, where: Where) -> dict[str, Any]:
        named = {name: getattr(options, name, None) for name in ("id", "edit")}
        return {"action": options.action or "list"} | {name: value for name, value in named.items() if value}

    says = "show the facts that wait for your word, keep or dismiss them"
    action = _actions(add("drafts", says, "clawpy drafts", build), plain, required=False)
    action("list", "show what waits, longest first", "clawpy drafts list")
    keep = action("promote", "keep one as a fact", 'clawpy drafts promote 7k2m --edit "the service listens on 8001"')
    keep.add_argument("id", metavar="ID", help="the draft's id, or its beginning")
    keep.add_argument("--edit", metavar="TEXT", help="in other words")
    turn = action("dismiss", "turn one down; the same words are not drafted again", "clawpy drafts dismiss 7k2m")
    turn.add_argument("id", metavar="ID", help="the draft's id, or its beginning")


def _permissions_parser(add: Add, plain: dict[str, Any]) -> None:
    def build(options: argparse.Namespace, where: Where) -> dict[str, Any]:
        if options.action in ("allow", "deny"):
            return {"action": options.action, "id": options.id, "session": options.session}
        return {"action": "list", "all": getattr(options, "all", False)}

    says = "show what sessions ask leave for, and answer"
    action = _actions(add("permissions", says, "clawpy permissions", build), plain, required=False)
    shown = action("list", "show what waits for an answer", "clawpy permissions list")
    shown.add_argument("--all", action="store_true", help="the latest requests, answered ones too")
    for name, says in (("allow", "let a session do what it asks for"), ("deny", "do not let it")):
        answer = action(name, says, f"clawpy permissions {name} 7k2m --session")
        answer.add_argument("id", metavar="ID", help="the request's id, or its beginning")
        answer.add_argument("--session", action="store_true", help="the same thing again, as long as the session runs")


def _config_parser(add: Add, plain: dict[str, Any]) -> None:
    def build(options: argparse.Namespace, where: Where) -> dict[str, Any]:
        # Without an action: all of them.
        found: dict[str, Any] = {"action": options.action or "get", "key": getattr(options, "key", None) or ""}
        return found | ({"value": options.value} if options.action == "set" else {})

    config = add("config", "show and change settings; without an action, show all", "clawpy config", build)
    action = _actions(config, plain, required=False)
    action("get", "show one setting or all", "clawpy config get console.theme").add_argument(
        "key", nargs="?", metavar="KEY"
    )
    examples = (
        "clawpy config set quietHoursStart 22\n  clawpy config set providers.ollama.model qwen3-coder:30b\n"
        "  clawpy config set channels.koji-core.model anthropic:claude-sonnet-5-5\n"
        "  clawpy config set channels.koji-core.runner acp:claude\n"
        "  clawpy config set channels.koji-core.fallback model"
    )
    change = action("set", "set a setting", examples)
    change.add_argument("key", metavar="KEY")
    change.add_argument("value", metavar="VALUE")
    action("unset", "bring a setting's default back", "clawpy config unset quietHoursStart").add_argument(
        "key", metavar="KEY"
    )


def _train_parser(add: Add, plain: dict[str, Any]) -> None:
    def build(options: argparse.Namespace, where: Where) -> dict[str, Any]:
        file = getattr(options, "file", None)
        return {"action": options.action or "status"} | ({"file": str(Path(file).resolve())} if file else {})

    says = "train a Twin model on your decisions at a provider; without an action, show how it stands"
    action = _actions(add("train", says, "clawpy train start", build), plain, required=False)
    action("status", "show runs, and bring on the one that is under way", "clawpy train status")
    action("start", "begin the next run", "clawpy train start")
    action("cancel", "end the run that is under way", "clawpy train cancel")
    action("adopt", "use the last model although it was not swapped in", "clawpy train adopt")
    says = "take in pairs that somebody made, in any of the shapes of export"
    action("import", says, "clawpy train import my.jsonl").add_argument("file", metavar="FILE.jsonl")


def _key_parser(add: Add, plain: dict[str, Any]) -> None:
    def build(options: argparse.Namespace, where: Where) -> dict[str, Any]:
        return {"action": options.action or "list"} | ({"name": options.name} if options.action else {})

    says = "keep, show and take out the keys of model providers; without an action, show"
    action = _actions(add("key", says, "clawpy key set openai", build), plain, required=False)
    keep = action("set", "keep a key; it is asked for, or read from standard input", "clawpy key set openai")
    keep.add_argument("name", metavar="NAME", help="openai, anthropic, together, twin, or one of your [providers]")
    keep.add_argument("never", nargs="*", help=argparse.SUPPRESS)
    keep.add_argument(
        "--store",
        choices=("keyring", "file"),
        default="keyring",
        help="where: the system's keyring, or a plain file that only you can read; the keyring by default",
    )
    action("list", "show which keys there are and where they come from", "clawpy key list").set_defaults(name="")
    action("delete", "take a key out", "clawpy key delete openai").add_argument("name", metavar="NAME")
    action("test", "ask a provider whether it takes its key", "clawpy key test openai").add_argument(
        "name", metavar="NAME"
    )
