"""Program text handed to an interpreter, and SQL: calls that delete, and strings that are commands (SPEC 3.5)."""

from __future__ import annotations

import re

from engine.safety.content.targets import Hit
from engine.values import Verdict

_DELETES = re.compile(
    r"\brmtree\b|\bremove_tree\b|\bos\.(remove|unlink|rmdir|removedirs)\b|\.unlink\(|"
    r"FileUtils\.(rm_rf|rm_r|remove_dir|remove_entry|rmtree|rm)\b|\b(Dir|File)\.(rmdir|delete|unlink)\b|"
    r"\b(rm|rmdir|unlink)(Sync)?\s*\([^)]*(recursive|force)|\bfs\b.{0,60}\b(rm|rmdir|unlink)(Sync)?\s*\(|"
    r"\bremoveSync\b|\brimraf\b|\bunlink\s+glob|\bunlink\s*[(<]|\bFile::Path\b|\brmdir\s*\(|\bDeno\.remove",
)
_RUNS = re.compile(
    r"\b(os\.system|os\.popen|os\.exec\w*|subprocess|popen|system|exec|execSync|execFile\w*|spawn\w*|child_process|"
    r"shell_exec|passthru|qx|Kernel|IO\.popen|Open3|sh\.|do shell script|run|call|check_output|eval)\b|"
    r"`|\$\(shell|:!|^!"
)
_STRING = re.compile(
    r"'((?:[^'\\]|\\.){1,2000})'|\"((?:[^\"\\]|\\.){1,2000})\"|`([^`]{1,2000})`|%x[{(]([^})]{1,2000})[})]|qx[{(/]([^})/]{1,2000})[})/]"
)
_LIST = re.compile(r"\[((?:\s*[rbu]?['\"][^'\"]{0,200}['\"]\s*,?){1,30})\s*\]")

_SQL = re.compile(
    r"\bdrop\s+(table|database|schema|user|role|index|view|keyspace|collection|owned|tablespace|materialized)\b|"
    r"\btruncate\s+(table\s+)?[\w\"`.]+|\bdelete\s+from\s+[\w\"`.\[\]]+\s*(;|$|--|\bwhere\s+(1\s*=\s*1|true)\b)|"
    r"\bupdate\s+[\w\"`.]+\s+set\s+(?:(?!\bwhere\b)[^;])*($|;)|\balter\s+table\s+\S+\s+drop\b|"
    r"\.drop(Database|Collection)?\(\s*\)|\bflush(all|db)\b|\bdelete\s+production\b",
    re.IGNORECASE,
)
_DATABASE_CLIENTS = frozenset(
    [
        "psql",
        "mysql",
        "mariadb",
        "sqlite3",
        "sqlcmd",
        "mysqlsh",
        "duckdb",
        "clickhouse-client",
        "cqlsh",
        "snowsql",
        "bq",
        "usql",
        "litecli",
        "pgcli",
        "cockroach",
        "sqlplus",
        "isql",
        "influx",
        "trino",
        "presto",
        "beeline",
        "hive",
        "spark-sql",
        "redis-cli",
        "osql",
        "rqlite",
    ]
)


def judge_code(source: str) -> Hit | None:
    """What program text does by itself that cannot be undone."""
    if _DELETES.search(source[:20_000]):
        return Verdict.BLOCK, "code-delete", "program text that deletes files"
    return judge_sql(source) if re.search(r"execute|query|sql", source[:20_000], re.IGNORECASE) else None


def commands_in(source: str) -> list[str]:
    """Strings in program text that it may run as commands; none when it runs nothing."""
    source = source[:20_000]
    if not _RUNS.search(source):
        return []
    found = [next(group for group in match.groups() if group) for match in _STRING.finditer(source)]
    for match in _LIST.finditer(source):
        found.append(" ".join(re.findall(r"['\"]([^'\"]*)['\"]", match[1])))
    return [text for text in found[:40] if len(text) > 2]


def is_database_client(program: str) -> bool:
    """Does this program take SQL?"""
    return program in _DATABASE_CLIENTS


def judge_sql(text: str) -> Hit | None:
    """Statements that lose data, in SQL with its comments taken out."""
    flat = re.sub(r"/\*.{0,200}?\*/", " ", text[:12_000], flags=re.DOTALL)
    if _SQL.search(flat):
        return Verdict.BLOCK, "sql", "a statement that loses data"
    return None
