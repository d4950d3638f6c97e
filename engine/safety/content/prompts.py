"""A prompt judged: what its clauses ask for, the commands in them, encoded payloads (SPEC 3.5)."""

from __future__ import annotations

import re

from engine.safety.content.judging import judge_command, strongest
from engine.safety.content.outputs import decode_base64
from engine.safety.content.own import NO_RULES, OwnRules
from engine.safety.content.patterns import ASK
from engine.safety.content.prose import judge_clause
from engine.safety.content.rule_files import Hit
from engine.safety.content.sentences import Clause, clauses
from engine.safety.content.shell import MAX_LENGTH

MAX_COMMAND_TEXT = 12_000
"""Characters of commands in one prompt that are judged; more is asked about."""

_PLAIN_PROGRAMS = (
    r"rm|sudo|git|dd|mkfs\S*|curl|wget|chmod|chown|kubectl|oc|docker|podman|docker-compose|terraform|tofu|pulumi|helm"
    r"|aws|"
    r"gcloud|gsutil|psql|mysql|mongo|mongosh|sqlite3|redis-cli|dropdb|npm|npx|yarn|pnpm|pip|cargo|gh|glab|rsync"
    r"|rclone|restic|"
    r"borg|systemctl|iptables|wipefs|fdisk|parted|zpool|zfs|lvremove|crontab|userdel|bash|zsh|sh|python3?|perl|ruby|"
    r"eval|xargs|heroku|flyctl|kafka-topics|rabbitmqctl|etcdctl|nomad|consul|vagrant|ansible|twine|unlink|rmdir|rimraf|"
    r"launchctl|diskutil|hdfs|doppler|wrangler|az|env|nohup|ssh|xxd|base64"
)
# These are words of English too: a command only with something after them that no sentence has.
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
    """The objection to a folded prompt, None for none."""
    hits = [own.blocks_prompt(text)]
    words_allowed = own.allows_prompt(text)
    pieces: dict[str, None] = {}
    if _AT_START.match(text.strip()) and _SHAPED.search(text[:4000]):
        pieces[text.strip()[:MAX_LENGTH]] = None
    prompt_clauses, complete = clauses(text)
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
        pieces.update(dict.fromkeys(_bare_commands(clause)))
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


def _bare_commands(clause: Clause) -> list[str]:
    """Commands in a clause's words: at its beginning, or further on with options or paths that no sentence has."""
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
