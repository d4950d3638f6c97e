"""The parsers of verbs that have actions of their own, such as `clawpy agents move`."""

from __future__ import annotations

import argparse
import difflib
import os
import shlex
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn

from clawpy_console.cli.options import Where, WrongUse
from engine.values import DismissReason, sanitise
from engine.values.adaptation import CandidateStatus, CandidateType, RecordKind
from engine.values.secrets import redact


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, without what could be a key or an escape, and ends with 2 (SPEC 9.8)."""

    verbs: Mapping[str, argparse.ArgumentParser] = MappingProxyType({})
    """Those of the parser of everything."""

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        if self.verbs and args and not args[0].startswith("-") and args[0] not in self.verbs:
            self.error(_no_verb(args[0], self.verbs))
        known, left = self.parse_known_args(args, namespace)
        if left and hasattr(known, "never"):  # what may hold a secret is not said again, wherever it was given
            known.never, left = [*known.never, *left], []
        if left:  # argparse would name the help of everything, and not that of the verb
            of = self.verbs.get(getattr(known, "verb", None) or "", self)
            of.error(f"unrecognized arguments: {' '.join(left)}")
        return known

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {sanitise(redact(message))}\nsee `{self.prog} --help`\n")


def _no_verb(word: str, verbs: Collection[str]) -> str:
    """What is said of a first word that is none: argparse would list all verbs, and not what was meant."""
    if os.sep in word or Path(word).is_dir():
        return f"{word} is not a verb; a repository is named with --workspace: clawpy --workspace {shlex.quote(word)}"
    near = difflib.get_close_matches(word, verbs, 3)
    return f"unknown verb {word}" + (f"; did you mean {' or '.join(near)}?" if near else "")


Add = Callable[..., argparse.ArgumentParser]


def _actions(
    parser: argparse.ArgumentParser, plain: dict[str, Any], *, required: bool = True
) -> Callable[..., argparse.ArgumentParser]:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=required, parser_class=Parser)

    def add(name: str, says: str, example: str) -> argparse.ArgumentParser:
        return actions.add_parser(
            name, help=says, description=says[0].upper() + says[1:] + ".", epilog=f"for instance:\n  {example}", **plain
        )

    return add


def agents_parser(add: Add, plain: dict[str, Any]) -> None:
    def build(options: argparse.Namespace, where: Where) -> dict[str, Any]:
        same = ("title", "archetype", "domain", "channel", "tier")
        named = {"id": "id", "reportsTo": "to"} | {name: name for name in same}
        given = {name: getattr(options, option, None) for name, option in named.items()}
        return {"action": options.action or "list"} | {n: value for n, value in given.items() if value is not None}

    says = "show and change agents and channels; without an action, show them"
    action = _actions(add("agents", says, "clawpy agents", build), plain, required=False)
    action("list", "show the organisation, and the coding agents of this machine", "clawpy agents list")
    action("show", "show one agent", "clawpy agents show cto").add_argument("id", metavar="AGENT")
    new = action("add", "add an agent", "clawpy agents add tester --to backend_lead --domain tests")
    new.add_argument("id", metavar="AGENT")
    new.add_argument("--to", required=True, metavar="LEADER", help="its leader, or owner")
    new.add_argument("--title")
    new.add_argument("--archetype", help="decides its tier, for instance builder")
    new.add_argument("--domain", help="what it knows about, in a few words")
    move = action("move", "put an agent under another leader", "clawpy agents move tester --to cto")
    move.add_argument("id", metavar="AGENT")
    move.add_argument("--to", required=True, metavar="LEADER", help="its leader, or owner")
    action("retire", "retire an agent; its folder is kept", "clawpy agents retire tester").add_argument(
        "id", metavar="AGENT"
    )
    action("restore", "restore a retired agent", "clawpy agents restore tester").add_argument("id", metavar="AGENT")
    tier = action("tier", "set the tier of an agent; auto lets the rules decide", "clawpy agents tier cto 1")
    tier.add_argument("id", metavar="AGENT")
    tier.add_argument("tier", choices=("1", "2", "3", "4", "5", "auto"), metavar="1-5|auto")
    serve = action("serve", "let a coding agent serve a channel", "clawpy agents serve koji-core claude")
    serve.add_argument("channel", metavar="CHANNEL")
    serve.add_argument("id", metavar="CODING-AGENT", help="one that `clawpy agents list` names")


def _profile(options: argparse.Namespace, where: Where) -> dict[str, Any]:
    if options.undo and options.file is not None:
        raise WrongUse("--undo takes no file")
    if options.file is None:
        return {"id": options.id} | ({"undo": True} if options.undo else {})
    try:
        text = sys.stdin.read() if options.file == "-" else Path(options.file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise WrongUse(f"{options.file} cannot be read: {error}") from error
    return {"id": options.id, "text": text, "yes": options.yes}


def wisdom_parsers(add: Add, plain: dict[str, Any]) -> None:
    def told(options: argparse.Namespace, where: Where) -> dict[str, Any]:
        return {"id": options.id} | ({"reportsTo": options.to} if options.to else {})

    def asked(options: argparse.Namespace, where: Where) -> dict[str, Any]:
        named = {name: getattr(options, name, None) for name in ("state", "agent")}
        return {"action": options.action or "list"} | {name: value for name, value in named.items() if value}

    says = "show the guidance in an agent's next prompt, and what was left out"
    guidance = add("guidance", says, "clawpy guidance backend_builder", told)
    guidance.add_argument("id", metavar="AGENT")
    guidance.add_argument("--to", metavar="LEADER", help="also the guidance it would get under this leader")
    says = "show the guidance of a leader, preview and save an edited text, or undo the last save"
    profile = add("profile", says, "clawpy profile cto guidance-of-cto.md --yes", _profile)
    profile.add_argument("id", metavar="LEADER")
    profile.add_argument("file", nargs="?", metavar="FILE", help="the edited text; - for standard input")
    profile.add_argument("--yes", action="store_true", help="save it; without, only show which prompts change")
    profile.add_argument("--undo", action="store_true", help="undo the last save")
    says = "show findings of agents, and which gate refused them"
    action = _actions(add("bubbles", says, "clawpy bubbles list --state refused", asked), plain, required=False)
    shown = action("list", "show findings", "clawpy bubbles list --state queued")
    shown.add_argument("--state", choices=("queued", "refused", "flushed"))
    shown.add_argument("--agent", metavar="AGENT", help="findings that it sent or receives")
    action("flush", "send queued findings to their leaders now", "clawpy bubbles flush")
    approving = action(
        "approve", "approve a quoted finding (text from tools, files or agents)", "clawpy bubbles approve bub_4k2"
    )
    approving.add_argument("id", metavar="ID")


def _learnings(options: argparse.Namespace, where: Where) -> dict[str, Any]:
    action = options.action or "list"
    if action in ("show", "retract", "keep", "promote"):
        told = {"action": action, "id": options.id}
        return told | ({"reason": " ".join(options.reason)} if action == "retract" and options.reason else {})
    if action in ("scopes", "chain"):
        return {"action": action} | ({"judge": True} if action == "chain" and options.judge else {})
    names = ("scope", "kind", "session", "words", "limit")
    named = {name: value for name in names if (value := getattr(options, name, None)) is not None}
    everywhere = named.get("scope") == "global" or "session" in named
    scope = where.scope(needed=not everywhere)
    if len(scope) > 1:
        raise WrongUse("learnings belong to one workspace; name one")
    return {"action": action} | ({"workspace": scope[0]} if scope and not everywhere else {}) | named


def learnings_parser(add: Add, plain: dict[str, Any]) -> None:
    says = "show learnings and their sources, decide about them, or write them into AGENTS.md"
    action = _actions(add("learnings", says, "clawpy learnings list", _learnings), plain, required=False)
    shown = action("list", "show learnings of this workspace", "clawpy learnings list --scope session --words parser")
    shown.add_argument(
        "--scope", choices=("team", "session", "project", "global"), help="entries of one scope, of any status"
    )
    shown.add_argument("--kind", choices=("institutional", "task", "proxy"), help="about the house, the work, or you")
    shown.add_argument("--session", metavar="ID", help="what one session taught")
    shown.add_argument("--words", metavar="WORDS", help="those that have all of these")
    shown.add_argument("--limit", type=int, metavar="N", help="so many at most; 50 unless said")
    action(
        "scopes",
        "show all scopes with learnings, and unreadable files",
        "clawpy learnings scopes",
    )
    says = "show one, what it was promoted from and what came of it"
    action("show", says, "clawpy learnings show lrn_4k2").add_argument("id", metavar="ID")
    gone = action("retract", "say that one no longer valid", "clawpy learnings retract lrn_4k2 we use pip again")
    gone.add_argument("id", metavar="ID")
    gone.add_argument("reason", nargs="*", metavar="REASON", help="why; it is kept with the entry")
    says = "keep a learning although its source was retracted"
    action("keep", says, "clawpy learnings keep lrn_4k2").add_argument("id", metavar="ID")
    says = "apply a project's learning in all projects"
    action("promote", says, "clawpy learnings promote lrn_4k2").add_argument("id", metavar="ID")
    says = "run the promotion chain now: from sessions to their projects"
    action("chain", says, "clawpy learnings chain --judge").add_argument(
        "--judge", action="store_true", help="also from projects to all; the model of `[memory] model` decides"
    )
    says = "make a card that writes them into a marked section of AGENTS.md"
    action("write", says, "clawpy learnings write")


def _tasks(options: argparse.Namespace, where: Where) -> dict[str, Any]:
    scope = where.scope()
    here = {"workspace": scope[0]} if scope else {}
    if options.action == "add":
        new = {"action": "add", "title": " ".join(options.title), "channel": options.channel or ""}
        return new | here | ({"needs": options.needs} if options.needs else {})
    if options.action == "done":
        return {"action": "done", "id": options.id}
    return {"action": "list", "state": getattr(options, "state", None)} | here


def tasks_parser(add: Add, plain: dict[str, Any]) -> None:
    says = "show and change the task board; without an action, show it"
    action = _actions(add("tasks", says, "clawpy tasks", _tasks), plain, required=False)
    shown = action("list", "show tasks", "clawpy tasks list --state open")
    shown.add_argument("--state", choices=("open", "running", "done", "failed"))
    new = action("add", "add a task", 'clawpy tasks add "cart rounding"')
    new.add_argument("title", nargs="+", metavar="TITLE")
    new.add_argument("--channel", help="the channel it concerns")
    new.add_argument("--needs", metavar="ID", action="append", help="a task to be done first; may be given again")
    action("done", "mark a task done", "clawpy tasks done 7k2m").add_argument("id", metavar="ID")


def candidates_parser(add: Add, plain: dict[str, Any]) -> None:
    def build(options: argparse.Namespace, where: Where) -> dict[str, Any]:
        named = {name: getattr(options, name, None) for name in ("id", "status", "type", "kind", "reason", "limit")}
        return {"action": options.action or "list"} | {name: value for name, value in named.items() if value}

    says = "show proposed changes in how agents act, and decide"
    action = _actions(add("candidates", says, "clawpy candidates", build), plain, required=False)
    shown = action("list", "show candidates, the latest change first", "clawpy candidates list --status review")
    shown.add_argument("--status", choices=[one.value for one in CandidateStatus])
    shown.add_argument("--type", choices=[one.value for one in CandidateType])
    for name, says in (
        ("show", "show one: its evidence, what would change, what came of it"),
        ("approve", "promote it: make it active"),
        ("reject", "reject it; it is proposed again only if new evidence outweighs that"),
        ("rollback", "roll it back: remove its changes"),
        ("undo", "undo your last decision on it"),
    ):
        one = action(name, says, f"clawpy candidates {name} 7k2m")
        one.add_argument("id", metavar="ID", help="the candidate's id, or its beginning")
        if name in ("reject", "rollback"):
            one.add_argument("--reason", metavar="TEXT", help="why, for later")
    action("digest", "look for new ones now, instead of within ten minutes", "clawpy candidates digest")
    told = action("records", "show what happened and how it was weighed", "clawpy candidates records --kind failed_tdd")
    told.add_argument("--kind", choices=[one.value for one in RecordKind], metavar="KIND", help="one of the 15 kinds")


def drafts_parser(add: Add, plain: dict[str, Any]) -> None:
    def build(options: argparse.Namespace, where: Where) -> dict[str, Any]:
        named = {name: getattr(options, name, None) for name in ("id", "edit")}
        return {"action": options.action or "list"} | {name: value for name, value in named.items() if value}

    says = "show drafted facts; keep or dismiss them"
    action = _actions(add("drafts", says, "clawpy drafts", build), plain, required=False)
    action("list", "show drafts, oldest first", "clawpy drafts list")
    keep = action("promote", "keep one as a fact", 'clawpy drafts promote 7k2m --edit "the service listens on 8001"')
    keep.add_argument("id", metavar="ID", help="the draft's id, or its beginning")
    keep.add_argument("--edit", metavar="TEXT", help="in other words")
    turn = action("dismiss", "reject a draft; the same words are not drafted again", "clawpy drafts dismiss 7k2m")
    turn.add_argument("id", metavar="ID", help="the draft's id, or its beginning")


def permissions_parser(add: Add, plain: dict[str, Any]) -> None:
    def build(options: argparse.Namespace, where: Where) -> dict[str, Any]:
        if options.action in ("allow", "deny"):
            return {"action": options.action, "id": options.id, "session": options.session}
        return {"action": "list", "all": getattr(options, "all", False)}

    says = "show permission requests of sessions, and answer them"
    action = _actions(add("permissions", says, "clawpy permissions", build), plain, required=False)
    shown = action("list", "show open requests", "clawpy permissions list")
    shown.add_argument("--all", action="store_true", help="the latest requests, answered ones too")
    for name, says in (("allow", "allow a request"), ("deny", "deny a request")):
        answer = action(name, says, f"clawpy permissions {name} 7k2m --session")
        answer.add_argument("id", metavar="ID", help="the request's id, or its beginning")
        answer.add_argument("--session", action="store_true", help="the same thing again, as long as the session runs")


def config_parser(add: Add, plain: dict[str, Any]) -> None:
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
    action("unset", "restore a setting's default", "clawpy config unset quietHoursStart").add_argument(
        "key", metavar="KEY"
    )


def train_parser(add: Add, plain: dict[str, Any]) -> None:
    def build(options: argparse.Namespace, where: Where) -> dict[str, Any]:
        file = getattr(options, "file", None)
        return {"action": options.action or "status"} | ({"file": str(Path(file).resolve())} if file else {})

    says = "train a Twin model on your decisions at a provider; without an action, show how it stands"
    action = _actions(add("train", says, "clawpy train start", build), plain, required=False)
    action("status", "show runs, and continue the current one", "clawpy train status")
    action("start", "start the next run", "clawpy train start")
    action("cancel", "cancel the running training", "clawpy train cancel")
    action("adopt", "use the last model although it was not adopted", "clawpy train adopt")
    action("back", "go back to the previous model", "clawpy train back")
    says = "import pairs, in any export format"
    action("import", says, "clawpy train import my.jsonl").add_argument("file", metavar="FILE.jsonl")


def key_parser(add: Add, plain: dict[str, Any]) -> None:
    def build(options: argparse.Namespace, where: Where) -> dict[str, Any]:
        return {"action": options.action or "list"} | ({"name": options.name} if options.action else {})

    says = "set, show and delete keys of model providers; without an action, show"
    action = _actions(add("key", says, "clawpy key set openai", build), plain, required=False)
    keep = action("set", "set a key; it is asked for, or read from standard input", "clawpy key set openai")
    keep.add_argument("name", metavar="NAME", help="openai, anthropic, together, twin, or one of your [providers]")
    keep.add_argument("never", nargs="*", help=argparse.SUPPRESS)
    keep.add_argument(
        "--store",
        choices=("keyring", "file"),
        default="keyring",
        help="where: the system's keyring, or a plain file that only you can read; the keyring by default",
    )
    action("list", "show which keys there are and where they come from", "clawpy key list").set_defaults(name="")
    action("delete", "delete a key", "clawpy key delete openai").add_argument("name", metavar="NAME")
    action("test", "test a key with its provider", "clawpy key test openai").add_argument("name", metavar="NAME")


def muted_parsers(add: Add, with_id: Add, plain: dict[str, Any]) -> None:
    """Dismissing a card, and what stays away because of it."""
    reasons = [one.value for one in DismissReason]
    dismiss = with_id("dismiss", "dismiss a card, or say why", "clawpy dismiss 7k2m --reason wrong")
    dismiss.add_argument("--reason", choices=reasons, help="why: it teaches; never-… switches the kind of card off")
    dismiss.set_defaults(
        build=lambda options, where: {"id": options.id} | ({"reason": options.reason} if options.reason else {})
    )

    def build(options: argparse.Namespace, where: Where) -> dict[str, Any]:
        return {"action": options.action or "list"} | ({"id": options.id} if options.action == "lift" else {})

    says = "show muted cards (what, where, until when, why) and unmute them"
    action = _actions(add("muted", says, "clawpy muted", build), plain, required=False)
    action("list", "show it", "clawpy muted list")
    lift = action("lift", "unmute it", "clawpy muted lift mute_7k2m")
    lift.add_argument("id", metavar="ID", help="the id of what is muted, or its beginning")


def notify_parser(add: Add, plain: dict[str, Any]) -> None:
    def build(options: argparse.Namespace, where: Where) -> dict[str, Any]:
        surface = getattr(options, "surface", None)
        return {"action": options.action or "list"} | ({"surface": surface} if surface else {})

    says = "show, set and test notification addresses; retry what failed"
    examples = "clawpy notify set phone\n  clawpy config unset notify.phone.url"
    action = _actions(add("notify", says, "clawpy notify test phone", build), plain, required=False)
    keep = action("set", "set an address; it is asked for, or read from standard input", examples)
    keep.add_argument("surface", choices=SURFACES)
    keep.add_argument("never", nargs="*", help=argparse.SUPPRESS)
    keep.add_argument(
        "--store", choices=("keyring", "file"), default="keyring", help="where one that holds a secret is kept"
    )
    action("list", "show every surface", "clawpy notify list")
    for name, says in (
        ("test", "send a test notification"),
        ("retry", "retry what was not delivered"),
        ("dismiss", "dismiss what was not delivered"),
    ):
        action(name, says, f"clawpy notify {name} phone").add_argument("surface", nargs="?", choices=SURFACES)


SURFACES = ("phone", "watch", "glasses", "discord", "web", "desktop")


def serve_parser(add: Add, span: Callable[[str], int]) -> None:
    says = "run the engine without a screen, with the API for a phone, a script, another agent"
    serve = add("serve", says, "clawpy serve --port 8477")
    serve.add_argument(
        "--for", dest="seconds", metavar="SPAN", type=span, help="stop by itself after running work has finished"
    )
    serve.add_argument("--port", type=int, metavar="N", help="8477 unless the settings say another; 0 takes a free one")
    serve.add_argument("--host", metavar="ADDRESS", help="127.0.0.1 unless the settings say another")
    serve.add_argument("--certificate", metavar="FILE", help="PEM, needed where other machines reach the address")
    serve.add_argument("--certificate-key", metavar="FILE", help="PEM, where it is not in the same file")
    serve.add_argument("--tunnel", action="store_true", help="without a certificate: your own tunnel encrypts")
    serve.add_argument(
        "--store",
        choices=("keyring", "file"),
        default="keyring",
        help="where a token that is made now is kept; a plain file that only you can read, if there is no keyring",
    )


def token_parser(add: Add, plain: dict[str, Any]) -> None:
    says = "show the token of the API, or take another one"
    action = _actions(add("token", says, "clawpy token"), plain, required=False)
    action("show", "show it", 'curl -H "Authorization: Bearer $(clawpy token)" http://127.0.0.1:8477/api/v1/health')
    new = action("new", "another one; the old one is void within 15 s", "clawpy token new")
    new.add_argument(
        "--store",
        choices=("keyring", "file"),
        default="keyring",
        help="where: the system's keyring, or a plain file that only you can read; the keyring by default",
    )
