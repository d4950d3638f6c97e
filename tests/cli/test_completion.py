"""Completions in real shells (SPEC 9.8): bash, zsh and fish run the script that `clawpy completion` prints."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from clawpy_console.cli.main import main
from clawpy_console.cli.verbs import VERBS, Verb
from engine.api.offline import read_completion_names
from engine.home import Home
from engine.model import DismissReason
from engine.model.adaptation import CandidateStatus, CandidateType, RecordKind
from tests.support.programs import find_imported
from tests.support.repository import Repository

BASH = """
source /dev/stdin <<< "$(clawpy completion bash)"
COMP_LINE="$1" COMP_POINT=${#1} COMP_TYPE=9
_python_argcomplete clawpy
printf '%s\\n' "${COMPREPLY[@]}"
"""

ZSH = """
autoload -Uz compinit && compinit -u -d "$HOME/zcompdump"
source <(clawpy completion zsh)
_describe() { print -l -- "${(@P)2}" }
BUFFER=$1 CURSOR=${#1} words=(${(z)1})
_python_argcomplete
"""

FISH = """
clawpy completion fish | source
complete --do-complete $argv[1]
"""

SHELLS = {"bash": BASH, "zsh": ZSH, "fish": FISH}


def read_offers(shell: str, line: str, home: Home, tmp_path: Path) -> list[str]:
    """What the shell offers for a command line that ends where the cursor is, with the titles where it shows them."""
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {
        "PATH": path,
        "CLAWPY_HOME": str(home.root),
        "HOME": str(tmp_path),
        "TERM": "dumb",
        "LANG": "C.UTF-8",
    }
    argv = [program, "-c", SHELLS[shell], *([] if shell == "fish" else [shell]), line]
    done = subprocess.run(argv, capture_output=True, text=True, env=environment, check=False)
    assert done.stderr == ""
    return [splitline.strip() for splitline in done.stdout.splitlines() if splitline.strip()]


def read_choices(verb: Verb, name: str) -> set[str]:
    return next(set(argument.settings["choices"]) for argument in verb.arguments if argument.name == name)


@pytest.mark.long
@pytest.mark.parametrize("shell", SHELLS)
def test_verbs_options_and_choices_are_offered(shell: str, home: Home, tmp_path: Path):
    verbs = {item.split("\t")[0].split(":")[0] for item in read_offers(shell, "clawpy pr", home, tmp_path)}
    assert verbs == {"predict", "propose", "profile"}
    assert any("--without-sandbox" in item for item in read_offers(shell, "clawpy approve --w", home, tmp_path))
    assert any("never-here" in item for item in read_offers(shell, "clawpy dismiss x --reason nev", home, tmp_path))
    assert not home.cache.exists()  # Tab makes nothing


@pytest.mark.long
@pytest.mark.parametrize("shell", SHELLS)
def test_ids_are_offered_with_titles_and_flows_with_parameters(
    shell: str, home: Home, tmp_path: Path, shop: Repository
):
    assert main(["--home", str(home.root), "propose", "run_tests"]) == 0
    [(card, title)] = read_completion_names(home, "cards").items()
    [found] = read_offers(shell, f"clawpy approve {card[:8]}", home, tmp_path)
    assert found.startswith(card)
    assert shell == "bash" or title in found
    bare = card.partition("_")[2]
    assert read_offers(shell, f"clawpy approve {bare[:6]}", home, tmp_path)[0].startswith(bare)
    assert not any(
        card in item for item in read_offers(shell, "clawpy undo ", home, tmp_path)
    )  # nothing was decided yet
    assert read_offers(shell, "clawpy propose bisec", home, tmp_path)[0].startswith("bisect")
    assert read_offers(shell, "clawpy propose bisect goo", home, tmp_path)[0].startswith("good=")
    assert any("quietHoursEnd" in item for item in read_offers(shell, "clawpy config set quiet", home, tmp_path))
    assert any("koji-core" in item for item in read_offers(shell, "clawpy cards --channel k", home, tmp_path))


def test_nothing_heavy_is_imported_to_answer():
    assert not find_imported("import clawpy_console.cli.verbs", "engine.model", "rich", "textual")


def test_the_choices_of_the_verbs_are_the_engines():
    candidates = VERBS["candidates"].actions
    assert read_choices(VERBS["dismiss"], "--reason") == set(DismissReason)
    assert read_choices(candidates["list"], "--status") == set(CandidateStatus)
    assert read_choices(candidates["list"], "--type") == set(CandidateType)
    assert read_choices(candidates["records"], "--kind") == set(RecordKind)
