"""The content filter (SPEC 3.5): destructive commands, messages to the outside, money, unregistered channels.

To judge a command, `shell` splits its text into simple commands, and `calls` finds the programs that really run.
`outputs` finds what a pipe feeds into them, and `carried_commands` finds commands in their arguments. Then the rules
are applied: `rulebook` has the built-in rules, `operator_rules` the operator's own. `targets` and `deletions` judge the
files and devices that a program changes, `leaks` judges secrets that are sent and packages of unknown origin, and
`program_text` judges code and SQL. To judge a prompt, `prose` reads its sentences; commands in it are judged as above.
Rules that are only data are in the folder `rules`.

A verdict depends on the text and the operator's rules only, and takes at most 50 ms. If a text cannot be judged, for
instance because a program's name is computed, the verdict is `ask`. May import engine.model only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator
from functools import lru_cache

from engine.frozen import frozen
from engine.model import Assignment, PromptPart, RailVerdict, Trust, Verdict
from engine.safety.content import leaks, rulebook, targets
from engine.safety.content.calls import Call, Unwrapped, unwrap
from engine.safety.content.operator_rules import NO_RULES, OwnRules, own_rules
from engine.safety.content.outputs import decode_base64
from engine.safety.content.program_text import commands_in, decoded_in, judge_code, judge_statement
from engine.safety.content.prose import Clause, judge_clause, split_clauses
from engine.safety.content.rules import ASK, BLOCK, INTERPRETERS, Hit
from engine.safety.content.shell import MAX_LENGTH, fold

__all__ = [
    "RAIL",
    "ContentFacts",
    "OwnRules",
    "check_assignment",
    "check_command",
    "check_prompt",
    "decide_content",
    "own_rules",
    "programs_of",
]

RAIL = "content"
MAX_PROMPT_LENGTH = 24_000
_CLEAN = RailVerdict(RAIL, Verdict.ALLOW, "nothing found")


@frozen
class ContentFacts:
    """The conditions of the content rail for one digest: `acknowledged` if the operator saw its `ask`, `allowed_once`
    if the operator allowed what it blocks for one run."""

    by_operator: bool
    acknowledged: bool
    allowed_once: bool


def decide_content(verdict: RailVerdict, facts: ContentFacts) -> RailVerdict:
    """The verdict of the rail. An `ask` passes if the operator saw it. A `block` passes after *allow once* only."""
    if verdict.verdict is Verdict.ASK and facts.by_operator and facts.acknowledged:
        return RailVerdict(RAIL, Verdict.ALLOW, f"you saw it: {verdict.reason}", verdict.rule)
    if verdict.verdict is Verdict.BLOCK and facts.by_operator and facts.allowed_once:
        return RailVerdict(RAIL, Verdict.ALLOW, f"allowed once: {verdict.reason}", verdict.rule)
    return verdict


def check_command(text: str, *, own: OwnRules = NO_RULES) -> RailVerdict:
    """The verdict on a shell command; its `rule` names the rule that it breaks. `own` are the operator's rules. Never
    raises."""
    folded = fold(text[: MAX_LENGTH + 1])
    hit = judge_command(folded, 0, own)
    if hit is None and len(text) > MAX_LENGTH:
        hit = (Verdict.ASK, "too-long", f"longer than {MAX_LENGTH} characters: it needs your decision")
    return _verdict(hit)


def programs_of(text: str) -> list[str]:
    """The programs that a shell command runs, each with its arguments, as far as the text shows them. Never raises."""
    return [" ".join([call.base, *call.args]) for call in unwrap(fold(text[: MAX_LENGTH + 1])).calls]


def check_prompt(text: str, *, own: OwnRules = NO_RULES) -> RailVerdict:
    """The verdict on a prompt: on its requests, and on the commands and encoded texts in it. Never raises."""
    hit = judge_prompt(fold(text[: MAX_PROMPT_LENGTH + 1]), own)
    if hit is None and len(text) > MAX_PROMPT_LENGTH:
        hit = (Verdict.ASK, "too-long", f"longer than {MAX_PROMPT_LENGTH} characters: it needs your decision")
    return _verdict(hit)


_checked = lru_cache(256)(check_prompt)
"""A card is judged each time that it is shown, with the same verdict."""


def check_assignment(assignment: Assignment, channels: Container[str], *, own: OwnRules = NO_RULES) -> RailVerdict:
    """The verdict on a whole assignment: its channel, its prompt, and every text in its parameters."""
    if assignment.channel not in channels:
        return RailVerdict(
            RAIL, Verdict.BLOCK, f"{assignment.channel!r} is not a registered channel", "unregistered-channel"
        )
    worst = _checked(assignment.prompt, own=own)
    for value in assignment.parameters.values():
        for text in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(text, str) and text:
                worst = max(worst, _checked(text, own=own), key=lambda verdict: RANK[verdict.verdict])
    return worst


def _verdict(hit: Hit | None) -> RailVerdict:
    return _CLEAN if hit is None else RailVerdict(RAIL, hit[0], hit[2], hit[1])


def objection(text: str, check: Callable[[str], RailVerdict]) -> str:
    """The objection of the content filter to text that would guide agents, "" for none."""
    verdict = check(text) if text.strip() else None
    if verdict is None or verdict.verdict is Verdict.ALLOW or verdict.rule == "unresolved":
        return ""  # this text is read, not run, so an unresolved `*` in quoted code does no harm
    return verdict.reason


def line_objections(part: PromptPart, check: Callable[[str], RailVerdict]) -> list[str]:
    """The objection of the content filter to each line of a part, "" for none."""
    if part.role == "assistant":
        return [""] * len(part.lines)
    return [objection(line.text, check) if line.source.trust is Trust.QUOTED else "" for line in part.lines]


RANK = {Verdict.ALLOW: 0, Verdict.ASK: 1, Verdict.BLOCK: 2}
_FORK_BOMB = re.compile(r"([\w:.]{1,40})\s*\(\)\s*\{[^}]{0,200}?\1\s*\|\s*\1\s*&")
_TOO_DEEP: Hit = (ASK, "unreadable", "nested too deeply to be checked")


def strongest(hits: Iterable[Hit | None]) -> Hit | None:
    """The hit with the strictest verdict; of several, the first."""
    return max(filter(None, hits), key=lambda hit: RANK[hit[0]], default=None)


def judge_command(text: str, depth: int, own: OwnRules = NO_RULES) -> Hit | None:
    """The objection to a command after `fold`, None for none. `depth` is the number of texts that it is nested in."""
    if _FORK_BOMB.search(text[:4000]):
        return BLOCK, "fork-bomb", "starts processes endlessly"
    unwrapped = unwrap(text)
    return strongest(
        [
            *(_judge_call(call, own) for call in unwrapped.calls),
            *_judge_code(unwrapped, depth, own),
            *_judge_whole(unwrapped),
        ]
    )


def _judge_whole(unwrapped: Unwrapped) -> Iterator[Hit]:
    """The objections to the text as a whole."""
    if unwrapped.downloads_to_shell:
        yield BLOCK, "download-run", "runs what it downloads, unseen"
    if _pushes_to_new_remote(unwrapped.calls):
        yield ASK, "push-elsewhere", "pushes to a remote that the command names itself"
    if unwrapped.unresolved:
        yield ASK, "unresolved", f"runs something that the text does not contain: {unwrapped.unresolved[:80]}"
    if unwrapped.unreadable:
        yield ASK, "unreadable", unwrapped.unreadable


def _pushes_to_new_remote(calls: list[Call]) -> bool:
    git = [call.args for call in calls if call.base == "git"]
    return any("remote" in args and {"add", "set-url"} & set(args) for args in git) and any(
        "push" in args for args in git
    )


def _judge_call(call: Call, own: OwnRules) -> Hit | None:
    blocked = own.blocks(call)
    if blocked is not None:
        return blocked
    if own.allows(call):
        return targets.judge_redirects(call)
    return strongest(
        [
            None if _only_shows_help(call) else rulebook.judge(call),
            targets.judge(call),
            leaks.judge_leak(call),
            leaks.judge_index(call),
            judge_statement(call),
        ]
    )


def _only_shows_help(call: Call) -> bool:
    """`prog … --help` and `--version` do nothing."""
    return "--help" in call.args or call.args in (["--version"], ["help"])


def _judge_code(unwrapped: Unwrapped, depth: int, own: OwnRules) -> Iterator[Hit | None]:
    for interpreter, source in unwrapped.code:
        if interpreter in INTERPRETERS:
            yield judge_code(source)
        if depth > 3:
            yield _TOO_DEEP
            continue
        decoded = decoded_in(source)
        yield from map(judge_code, decoded)
        texts = [text for program_text in (source, *decoded) for text in commands_in(program_text)] + decoded
        for text in texts[:60]:
            yield judge_command(text, depth + 1, own)


# Prompts: the requests in their clauses, commands, and encoded texts


MAX_COMMAND_TEXT = 12_000
"""Maximum number of characters of commands in one prompt that are judged; if there are more, the verdict is `ask`."""

_PLAIN_PROGRAMS = (
    r"rm|sudo|git|dd|mkfs\S*|curl|wget|chmod|chown|kubectl|oc|docker|podman|docker-compose|terraform|tofu|pulumi|helm"
    r"|aws|"
    r"gcloud|gsutil|psql|mysql|mongo|mongosh|sqlite3|redis-cli|dropdb|npm|npx|yarn|pnpm|pip|cargo|gh|glab|rsync"
    r"|rclone|restic|"
    r"borg|systemctl|iptables|wipefs|fdisk|parted|zpool|zfs|lvremove|crontab|userdel|bash|zsh|sh|python3?|perl|ruby|"
    r"eval|xargs|heroku|flyctl|kafka-topics|rabbitmqctl|etcdctl|nomad|consul|vagrant|ansible|twine|unlink|rmdir|rimraf|"
    r"launchctl|diskutil|hdfs|doppler|wrangler|az|env|nohup|ssh|xxd|base64"
)
# These are also English words. They are commands only if options or paths follow, which no sentence has.
_ENGLISH_PROGRAMS = (
    r"find|kill|killall|shred|format|shutdown|reboot|halt|make|vault|cd|echo|cat|node|op|truncate|mv|cp|tee|nats|del|rd"
)
_AT_START = re.compile(
    rf"^(?:(?:run|execute|type|do|use|call|invoke|launch|issue|try|enter"
    rf"|paste)\s+)?(?:\$\s+)?((?:\S{{0,60}}/)?(?:{_PLAIN_PROGRAMS}|"
    rf"{_ENGLISH_PROGRAMS})\s+[^\n]{{1,4000}})",
    re.IGNORECASE,
)
_WITHIN = re.compile(rf"(?:^|[\s(=:|&])((?:/\S{{0,60}}/)?(?:{_PLAIN_PROGRAMS}|find|kill|vault)\s+[^\n]{{1,4000}})")
_SHAPED = re.compile(r"(?:^|\s)(?:-{1,2}\w|[/~.*$][\w/*.{(]|[/~*]$|[/~*]\s|\w+=)|://|[|;`]|\S:\w|\w:$")
_SENTENCE_WORDS = re.compile(
    r"\b(?:fails?|failing|failed|is|are|was|were|does|doesn't|takes|took|hangs?|broke|breaks|step|steps|errors?"
    r"|should|because|"
    r"when|why|instead|could|would|history|command|docs)\b",
    re.IGNORECASE,
)
_STARTS_AS_ENGLISH = re.compile(rf"^(?:{_ENGLISH_PROGRAMS})\b", re.IGNORECASE)
_ENCODED = re.compile(r"\b[A-Za-z0-9+/]{12,4000}={0,2}")


def judge_prompt(text: str, own: OwnRules = NO_RULES, depth: int = 0) -> Hit | None:
    """The objection to a prompt after `fold`, None for none."""
    hits = [own.blocks_prompt(text)]
    words_allowed = own.allows_prompt(text)
    pieces: dict[str, None] = {}
    if _AT_START.match(text.strip()) and _SHAPED.search(text[:4000]):
        pieces[text.strip()[:MAX_LENGTH]] = None
    prompt_clauses, complete = split_clauses(text)
    if not complete:
        hits.append((ASK, "too-long", "more sentences than can be checked: it needs your decision"))
    for clause in prompt_clauses:
        hits.append(None if words_allowed else judge_clause(clause))
        if not clause.asks or clause.negated_from >= 0:
            continue
        for text_within in (*clause.code, *clause.quoted):
            command = bool(_AT_START.match(text_within))
            if command or text_within in clause.code:
                pieces[text_within] = None
            if not command and clause.carries and depth == 0:
                hits.append(judge_prompt(text_within, own, 1))
        pieces.update(dict.fromkeys(_find_bare_commands(clause)))
    for match in list(_ENCODED.finditer(text))[:10]:
        decoded = decode_base64(match[0])
        if decoded and decoded.isprintable():
            pieces[decoded] = None
    remaining = MAX_COMMAND_TEXT
    for piece in pieces:
        remaining -= len(piece) + 20
        if remaining < 0:
            hits.append((ASK, "too-long", "more commands than can be checked: it needs your decision"))
            break
        hits.append(judge_command(piece, 1, own))
    return strongest(hits)


def _find_bare_commands(clause: Clause) -> list[str]:
    """Commands among the words of a clause: at its beginning, or later if they have options or paths, which no sentence
    has."""
    start = _AT_START.match(clause.text)
    if start is not None:
        shaped = bool(_SHAPED.search(start[1]))
        english = bool(_STARTS_AS_ENGLISH.match(start[1]))
        if shaped or not (english or _SENTENCE_WORDS.search(start[1])):
            return [start[1]]
        return []
    within = _WITHIN.search(clause.text)
    if within is not None and _SHAPED.search(within[1]):
        return [within[1]]
    return []
