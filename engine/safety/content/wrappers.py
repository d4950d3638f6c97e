"""Programs that run other programs, as data: wrappers, runners, and those that carry a command in an argument."""

from __future__ import annotations

import re

_SHELLS_TEXT = """
    sh bash zsh dash ksh mksh ash fish csh tcsh rbash pwsh powershell cmd
"""
SHELLS = frozenset(_SHELLS_TEXT.split())
INTERPRETERS = {
    "python": ("-c",),
    "node": ("-e", "--eval", "-p", "--print", "-pe"),
    "deno": ("eval",),
    "bun": ("-e", "--eval"),
    "perl": ("-e", "-E", "-ne", "-pe"),
    "ruby": ("-e",),
    "php": ("-r",),
    "lua": ("-e",),
    "osascript": ("-e",),
    "rscript": ("-e",),
    "julia": ("-e", "--eval"),
    "groovy": ("-e",),
    "rails": ("runner", "r"),
    "elixir": ("-e", "--eval"),
    "tclsh": ("-c",),
    "ghc": ("-e",),
    "swift": ("-e",),
    "scala": ("-e",),
}
_CODE_ANYWHERE_TEXT = """
    awk gawk mawk nawk sed vim vi nvim ex emacs make gdb tclsh expect ed less irb pry rails gradle
"""
CODE_ANYWHERE = frozenset(_CODE_ANYWHERE_TEXT.split())
"""Programs any of whose arguments may be a program in a language of theirs that can run commands."""

# Wrappers: the options of theirs that take a value of its own, and how many plain words come before the command.
_WRAPPERS = {
    "sudo": ("-u -g -h -p -C -T -r -t -U -R -D --user --group --host --chdir --prompt --role --type", 0),
    "doas": ("-u -C", 0),
    "pkexec": ("--user", 0),
    "gosu": ("", 1),
    "su-exec": ("", 1),
    "setpriv": ("--reuid --regid --groups", 0),
    "env": ("-u -C -S --unset --chdir", 0),
    "command": ("", 0),
    "builtin": ("", 0),
    "exec": ("-a", 0),
    "noglob": ("", 0),
    "nocorrect": ("", 0),
    "nice": ("-n --adjustment", 0),
    "ionice": ("-c -n -p --class --classdata", 0),
    "chrt": ("-T -P -D", 1),
    "taskset": ("", 1),
    "numactl": ("-m -N -C --membind --cpunodebind", 0),
    "nohup": ("", 0),
    "time": ("-f -o", 0),
    "timeout": ("-k -s --kill-after --signal", 1),
    "stdbuf": ("-i -o -e", 0),
    "setsid": ("", 0),
    "setarch": ("", 1),
    "chroot": ("", 1),
    "unshare": ("", 0),
    "nsenter": ("-t --target", 0),
    "bwrap": ("--bind --ro-bind --dev --proc --tmpfs --chdir", 0),
    "fakeroot": ("", 0),
    "strace": ("-e -o -p -s", 0),
    "ltrace": ("-e -o -p -s", 0),
    "valgrind": ("", 0),
    "watch": ("-n --interval", 0),
    "busybox": ("", 0),
    "toybox": ("", 0),
    "xargs": ("-I -n -P -L -d -s -E -a --max-args --max-procs --replace --delimiter --arg-file --max-lines", 0),
    "parallel": ("-j -a -N --jobs --colsep -I --max-args --delay --timeout", 0),
    "flock": ("-w -E --timeout", 1),
    "caffeinate": ("-t -w", 0),
    "unbuffer": ("", 0),
    "rlwrap": ("", 0),
    "script": ("", 0),
    "proxychains": ("", 0),
    "proxychains4": ("-f", 0),
    "firejail": ("", 0),
    "systemd-run": ("-p -u --property --unit -M --machine", 0),
    "systemd-inhibit": ("--what --who --why --mode", 0),
    "dbus-run-session": ("", 0),
    "xvfb-run": ("-s -n -e", 0),
    "faketime": ("", 1),
    "torsocks": ("", 0),
    "dotenv": ("-f -e", 0),
    "envdir": ("", 1),
    "tini": ("", 0),
    "dumb-init": ("", 0),
    "catchsegv": ("", 0),
    "entr": ("", 0),
    "retry": ("-t -d", 0),
    "chronic": ("", 0),
    "ts": ("", 0),
    "rtk": ("", 0),
    "npx": ("-p --package", 0),
    "bunx": ("-p --package", 0),
    "pnpx": ("", 0),
    "uvx": ("--from --with -p", 0),
    "winpty": ("", 0),
    "wsl": ("-d -u --distribution --user", 0),
}
WRAPPERS = {program: (frozenset(options.split()), skipped) for program, (options, skipped) in _WRAPPERS.items()}

# `poetry run CMD`, `npm exec -- CMD`: sub-command and how many plain words stand between it and the command.
RUNNERS: dict[str, dict[str, int]] = {
    "poetry": {"run": 0},
    "uv": {"run": 0},
    "pdm": {"run": 0},
    "rye": {"run": 0},
    "hatch": {"run": 0},
    "pipenv": {"run": 0},
    "conda": {"run": 0},
    "mamba": {"run": 0},
    "bundle": {"exec": 0},
    "npm": {"exec": 0, "x": 0},
    "pnpm": {"exec": 0, "dlx": 0},
    "yarn": {"exec": 0, "dlx": 0},
    "bun": {"x": 0},
    "mise": {"exec": 0, "x": 0},
    "asdf": {"exec": 1},
    "rbenv": {"exec": 0},
    "pyenv": {"exec": 0},
    "nvm": {"exec": 1},
    "direnv": {"exec": 1},
    "op": {"run": 0},
    "doppler": {"run": 0},
    "infisical": {"run": 0},
    "chamber": {"exec": 1},
    "aws-vault": {"exec": 1},
    "heroku": {"run": 0, "run:detached": 0},
    "adb": {"shell": 0},
    "screen": {"-dm": 0, "-dmS": 1, "-d": 0},
    "tmux": {},
    "dotnet": {"exec": 0},
    "git": {"run": 0},
}
_RUNNER_VALUES_TEXT = """
    -n --name -p --prefix -a --app --env-file --with --project -c --config --package -C --directory -e
"""
RUNNER_VALUES = frozenset(_RUNNER_VALUES_TEXT.split())
_SSH_VALUES_TEXT = """
    -p -i -l -o -F -L -R -D -J -b -c -e -m -S -W -w -Q -O -I -E -B
"""
SSH_VALUES = frozenset(_SSH_VALUES_TEXT.split())
_CONTAINER_VALUES_TEXT = """
    -u --user -w --workdir -e --env -v --volume -n --namespace -c --container --name -p --publish --network
    --entrypoint --env-file -l --label -m --memory --mount --cpus --context --platform --pull --add-host -h
    --hostname --device --cap-add --security-opt --gpus --ulimit --dns --index
"""
CONTAINER_VALUES = frozenset(_CONTAINER_VALUES_TEXT.split())

# Options whose value is a shell command, by program.
_CARRYING = {
    "man": ("-P", "--pager"),
    "rsync": ("-e", "--rsh", "--rsync-path"),
    "tar": ("--to-command", "--checkpoint-action=exec", "-I", "--use-compress-program", "-F", "--info-script"),
    "git": ("-x", "--exec", "--tree-filter", "--index-filter", "--msg-filter", "--env-filter", "--upload-pack"),
    "script": ("-c", "--command"),
    "vagrant": ("-c", "--command"),
    "gcloud": ("--command",),
    "fly": ("-C", "--command"),
    "flyctl": ("-C", "--command"),
    "nix-shell": ("--run", "--command"),
    "nix": ("-c", "--command"),
    "ansible": ("-a", "--args"),
    "salt": (),
    "zip": ("-TT",),
    "nc": ("-e", "-c"),
    "ncat": ("-e", "-c", "--exec", "--sh-exec"),
    "entr": ("-s",),
    "inotifywait": (),
    "nodemon": ("-x", "--exec"),
    "watchexec": (),
    "hyperfine": ("-p", "--prepare", "--cleanup", "--setup", "-c", "-s"),
    "su": (),
    "gdb": ("-ex",),
    "xterm": ("-e",),
    "gnome-terminal": ("-e",),
    "osascript": (),
    "kitty": (),
    "sbatch": ("--wrap",),
    "az": ("--scripts", "--command"),
}
_COMMAND_VARIABLES = re.compile(
    r"(GIT_)?(SSH_COMMAND|SSH|PAGER|EDITOR|SEQUENCE_EDITOR|ASKPASS|EXTERNAL_DIFF|PROXY_COMMAND)|VISUAL|BROWSER|"
    r"BASH_ENV|ENV|PROMPT_COMMAND|PS[0-4]|LESSOPEN|MANPAGER|SHELL|TERMINAL"
)
_CRON_LINE = re.compile(r"^\s*(?:@\w+|(?:[\d*/,-]+\s+){5})\s*", re.MULTILINE)
_SEND_KEYS = frozenset({"Enter", "C-m", "C-c", "Space", "Escape", "C-l", "Tab"})
_GIT_COMMAND = re.compile(
    r"(?:[a-z]+\.)?[\w.-]+=!(.+)|(?:core|diff|merge|credential|sequence|gpg)\.[\w.]+=(.+)|!(.+)", re.S
)


def carried(base: str, args: list[str], assigned: dict[str, str], stdin: str | None) -> list[str]:
    """The shell commands that a call carries in its arguments, variables or standard input; at most 30."""
    texts = [value for name, value in assigned.items() if _COMMAND_VARIABLES.fullmatch(name)]
    options = _CARRYING.get(base, ())
    for place, word in enumerate(args):
        if word in options and place + 1 < len(args):
            texts.append(args[place + 1])
        for option in options:
            if option[:2] == "--" and word.startswith(option + "="):
                texts.append(word[len(option) + 1 :])
    if base == "git":
        texts += _git(args)
    elif base == "tmux":
        texts += _tmux(args)
    elif base in ("vim", "vi", "nvim", "ex", "less", "man"):
        texts += [word.lstrip(":+")[1:] for word in args if word.lstrip(":+").startswith("!")]
    elif base == "sed":
        texts += [match[1] for word in args for match in re.finditer(r"(?:^|[;}\d/])e\s+([^\n]+)", word)]
    elif base in ("at", "batch") and stdin:
        texts.append(stdin)
    elif base == "crontab" and stdin:
        texts.append(_CRON_LINE.sub("", stdin))
    elif base == "make" and stdin:
        texts.append(re.sub(r"^[^\n:]*:", "", stdin).replace("\t", " "))
    return texts[:30]


def _git(args: list[str]) -> list[str]:
    """Aliases and settings that are commands, `submodule foreach`, `bisect run`."""
    texts = [
        next(group for group in match.groups() if group) for word in args if (match := _GIT_COMMAND.fullmatch(word))
    ]
    for first, second in (("submodule", "foreach"), ("bisect", "run")):
        if first in args and second in args:
            texts.append(" ".join(word for word in args[args.index(second) + 1 :] if word != "--recursive"))
    return texts


def _tmux(args: list[str]) -> list[str]:
    """What is typed into a pane, and the command of a new window."""
    if any(word in ("send-keys", "send") for word in args):
        return [" ".join(word for word in args[1:] if word not in _SEND_KEYS and not word.startswith("-"))]
    return [word for word in args if " " in word]
