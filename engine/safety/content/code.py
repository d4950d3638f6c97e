"""Program text handed to an interpreter, and SQL: calls that delete, and strings that are commands (SPEC 3.5)."""

from __future__ import annotations

import re

from engine.safety.content.calls import Call
from engine.safety.content.outputs import decode_base64
from engine.safety.content.patterns import ASK, BLOCK
from engine.safety.content.rule_files import Hit

_LOOKED_AT = 20_000

# Deletes trees, tables, everything.
_DELETES = re.compile(
    r"\brmtree\b|\bremove_tree\b|\bremovedirs\b|\brimraf\b|\bemptyDirSync\b|\bdel(ete)?Tree\b|"
    r"FileUtils\.(rm_rf|rm_r|remove_dir|remove_entry\w*|rmtree)\b|\bFile::Path\b|"
    r"\b(rm|rmdir|unlink|remove)(Sync)?\s*\([^)]{0,200}(recursive|force)|\bfs\b.{0,60}\b(rm|rmdir)(Sync)?\s*\(|"
    r"\bunlink\s+glob|\bremoveSync\b|\bDirectory\.Delete\b|\bremove_dir_all\b|\bos\.RemoveAll\b|"
    r"\bdelete_all\b|\bdestroy_all\b|\bobjects\.all\(\)\.delete\(|\bdrop_all\(|\bdropDatabase\b|\bdrop_database\b|"
    r"\bdrop_collection\b|\bdelete_many\(\s*\{\s*\}|\bdeleteMany\(\s*\{?\s*\}?\s*\)|\bflush(all|db)\b|"
    r"\bdelete_(bucket|db_instance|stack|table|cluster|objects?|namespace\w*)\s*\(|\bterminate_instances\s*\(",
    re.IGNORECASE,
)
# Deletes single files: a person looks.
_REMOVES = re.compile(
    r"\bos\.(remove|unlink|rmdir)\b|\.unlink(Sync)?\(|\b(Dir|File)\.(rmdir|delete|unlink)\b|FileUtils\.rm\b|"
    r"\bunlink\s*[('\"<$]|\brmdir\s*\(|\bDeno\.remove|\bfs\b.{0,60}\bunlink|\b(send2trash|Remove-Item)\b",
)
_RUNS = re.compile(
    r"\b(os\.system|os\.popen|os\.exec\w*|os\.execute|io\.popen|subprocess|popen|system|exec|execSync|execFile\w*|spawn\w*|"
    r"child_process|shell_exec|passthru|proc_open|qx|Kernel|IO\.popen|Open3|sh\.|do shell script|run|call|check_output|"
    r"eval|pty|Bun\.\$|Deno\.Command|compile)\b|`|\$\(shell|:!|^!",
)
_STRING = re.compile(
    r"'((?:[^'\\]|\\.){1,2000})'|\"((?:[^\"\\]|\\.){1,2000})\"|`([^`]{1,2000})`|%x[{(]([^})]{1,2000})[})]|"
    r"qx[{(/]([^})/]{1,2000})[})/]"
)
_LIST = re.compile(r"[\[(]((?:\s*[rbuf]?['\"][^'\"]{0,200}['\"]\s*,?){2,30})\s*[\])]")
_JOIN = re.compile(r"(['\"])\s*(?:\+|\.\.?)\s*[rbuf]?\1")
_BASE64 = re.compile(r"['\"]([A-Za-z0-9+/_-]{8,4000}={0,2})['\"]")

_SQL = re.compile(
    r"\bdrop\s+(table|database|schema|user|role|index|view|keyspace|collection|owned|tablespace|materialized|column|type|"
    r"function|trigger|sequence|extension|policy|stage|warehouse|stream|dataset|cluster|partition|publication|server)\b|"
    r"\btruncate\s+(table\s+)?[\w\"`.]+|\bdelete\s+from\s+[\w\"`.\[\]]+\s*(;|$|['\"]|--|\bwhere\s+(1\s*=\s*1|true|1)\b)|"
    r"\bupdate\s+[\w\"`.]+\s+set\s+(?:(?!\bwhere\b)[^;]){0,2000}($|;)|\balter\s+(table|type)\s+\S+\s+drop\b|"
    r"\balter\s+(database|user|role)\b.{0,200}\b(rename|nologin|connection\s+limit\s+0)\b|"
    r"\.(drop|dropDatabase|dropCollection|dropIndexes|dropUser|dropAllUsers\w*|dropAllRoles\w*)\(|\.remove\(\s*\{\s*\}|"
    r"\.(deleteMany|delete_many)\(\s*\{\s*\}|\bflush(all|db)\b|\bdetach\s+delete\b|\bshutdown\s+(immediate|abort|nosave)\b|"
    r"\bpg_terminate_backend\b|\breset\s+master\b|\bpurge\s+(binary|master)\s+logs\b",
    re.IGNORECASE,
)
_COMMENT = re.compile(r"/\*.{0,200}?\*/", re.DOTALL)
_CLIENTS_TEXT = """
    psql mysql mariadb sqlite3 sqlcmd mysqlsh duckdb clickhouse-client clickhouse cqlsh snowsql bq usql litecli
    pgcli mycli cockroach sqlplus isql influx trino presto beeline hive spark-sql redis-cli osql rqlite mongo
    mongosh valkey-cli keydb-cli cypher-shell arangosh impala-shell db2 vsql ksql surreal iredis mssql-cli tsql
    turso d1 libsql questdb psql.exe sql athenacli
"""
_CLIENTS = frozenset(_CLIENTS_TEXT.split())
"""Programs that take SQL or the like."""


def judge_code(source: str) -> Hit | None:
    """The objection to operations in program text that cannot be undone, None for none."""
    source = _JOIN.sub("", source[:_LOOKED_AT])
    if _DELETES.search(source):
        return BLOCK, "code-delete", "program text that deletes files or data"
    hit = judge_sql(source) if re.search(r"execute|query|sql|raw|connection", source, re.IGNORECASE) else None
    if hit is None and _REMOVES.search(source):
        return ASK, "code-delete", "program text that deletes a file"
    return hit


def commands_in(source: str) -> list[str]:
    """Strings in program text that it may run as commands; none when it runs nothing."""
    source = source[:_LOOKED_AT]
    if not _RUNS.search(source):
        return []
    source = _JOIN.sub("", source)
    texts = [next(group for group in match.groups() if group) for match in _STRING.finditer(source)]
    for match in _LIST.finditer(source):
        texts.append(" ".join(re.findall(r"['\"]([^'\"]*)['\"]", match[1])))
    return [text for text in texts[:40] if len(text) > 2]


def decoded_in(source: str) -> list[str]:
    """The decoded base64 texts in program text, at most 10."""
    texts = (decode_base64(match[1]) for match in list(_BASE64.finditer(source[:_LOOKED_AT]))[:10])
    return [text for text in texts if text and text.isprintable()]


def judge_statement(call: Call) -> Hit | None:
    """The objection to the statements that a call hands to a database, in its words or by a pipe."""
    if call.base not in _CLIENTS:
        return None
    source = call.simple.source
    input_text = call.simple.stdin or (" ".join(source.argv[1:]) if source is not None else "")
    return judge_sql(" ".join([*call.args, input_text]))


def judge_sql(text: str) -> Hit | None:
    """Statements that lose data, in SQL with its comments taken out."""
    if _SQL.search(_COMMENT.sub(" ", text[:12_000])):
        return BLOCK, "sql", "a statement that loses data"
    return None
