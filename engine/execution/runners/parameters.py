"""A flow's parameters: checked, put into words, and edited by hand (SPEC 9.2). Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from engine.execution.runners.flow import Flow
from engine.execution.runners.flow_names import VALUE
from engine.model import Refusal, sanitise

PROSE = "prose"
"""The code of the refusal of an edit that is a sentence: nobody mistyped a parameter, something else is wanted."""


def validated(flow: type[Flow], values: Mapping[str, Any]) -> Flow:
    """The parameters as the flow takes them. Raises `Refusal` `bad_parameters` naming what is wrong and accepted."""
    unknown = [name for name in values if name not in flow.model_fields]
    if unknown:
        raise refused(flow, f"{flow.name} has no parameter {sanitise(', '.join(unknown))}")
    try:
        return flow.model_validate(dict(values))
    except ValidationError as error:
        if missing := [str(problem["loc"][0]) for problem in error.errors() if problem["type"] == "missing"]:
            raise refused(flow, _needs(flow, missing)) from error
        problems = "; ".join(
            f"{'.'.join(str(part) for part in problem['loc']) or 'parameters'}: {problem['msg']}"
            for problem in error.errors(include_url=False, include_context=False)[:5]
        )
        raise refused(flow, sanitise(problems)) from error


def refused(flow: type[Flow], problem: str, *, code: str = "bad_parameters", value: str = "") -> Refusal:
    """What is wrong, with everything that would be right and an example, of `value` where that is given."""
    fields = sorted(flow.model_fields.items(), key=lambda named: not named[1].is_required())
    accepted = "; ".join(_described(name, field) for name, field in fields)
    told = problem if problem.startswith(f"{flow.name} ") else f"{flow.name}: {problem}"
    if not fields:
        return Refusal(code, told, "it has no parameters")
    form = " ".join([flow.name, *(_formed(name, field) for name, field in fields)])
    example = " ".join(_sample(name, field, value) for name, field in fields if field.is_required()) or _sample(
        *next((pair for pair in fields if pair[0] != "project"), fields[0]), value
    )
    return Refusal(code, told, f"`{form}`, or a JSON object, for example `{flow.name} {example}`; {accepted}")


_SAMPLES = {"int": "3", "bool": "true", "list": "src/cart.py"}


def _sample(name: str, field: FieldInfo, value: str) -> str:
    """The parameter as somebody might give it."""
    sample = _SAMPLES.get(_kind(field), name.upper())
    return f"{name}={sample if _kind(field) in ('int', 'bool') else value or sample}"


def _formed(name: str, field: FieldInfo) -> str:
    return f"{name}=…" if field.is_required() else f"[{name}=…]"


def _needs(flow: type[Flow], missing: Sequence[str]) -> str:
    """What is missing, how it is given, and what each of it means."""
    names = " and ".join(filter(None, (", ".join(missing[:-1]), missing[-1])))
    form = " ".join([flow.name, *(f"{name}=…" for name in missing)])
    means = "; ".join(f"{name}: {flow.model_fields[name].description or 'a value'}" for name in missing)
    return f"{flow.name} needs {names}: `{form}` ({means})"


def edited(flow: type[Flow], present: Mapping[str, Any], edit: str) -> Flow:
    """The parameters after an edit: a JSON object, `key=value` pairs or `key: value` lines. What is not named stays.

    A list takes its items separated by commas or white space. Raises `Refusal` `bad_parameters`, and `PROSE` for a
    sentence.
    """
    text = edit.strip()
    if text.startswith("{"):
        try:
            changes = json.loads(text)
        except json.JSONDecodeError as error:
            raise refused(flow, f"the edit is not JSON: {error}") from error
    else:
        changes = _pairs(flow, text)
    return validated(flow, {**present, **changes})


def _pairs(flow: type[Flow], text: str) -> dict[str, Any]:
    names = "|".join(map(re.escape, flow.model_fields)) or "(?!)"
    pieces = re.split(rf"(?:^|(?<=[\s,;]))({names})[ \t]*[=:](?!:)", text)
    if stray := pieces[0].strip():
        typo = re.search(r"([A-Za-z_]\w*)=", stray)
        if typo:
            raise refused(flow, f"{flow.name} has no parameter {typo[1]}")
        if len(stray.split()) > 1 and not all(VALUE.fullmatch(word) for word in stray.split()):
            told = f"{flow.name} takes parameters, and no model or agent is configured for other text"
            raise refused(flow, told, code=PROSE)
        value = "" if " " in stray else sanitise(stray)[:80]
        raise refused(flow, f"which parameter is {sanitise(stray)[:80]!r}?", value=value)
    if len(pieces) < 3:
        raise refused(flow, "the edit contains no parameter")
    changes: dict[str, Any] = {}
    for name, value in zip(pieces[1::2], pieces[2::2], strict=True):
        typo = re.search(r"\s([a-z_]\w*)=", value)
        if typo:
            raise refused(flow, f"{flow.name} has no parameter {typo[1]}")
        changes[name] = _value(flow.model_fields[name], value.strip().rstrip(",;").rstrip())
    return changes


def _value(field: FieldInfo, text: str) -> Any:
    if get_origin(field.annotation) is list and not text.startswith("["):
        return [item for item in re.split(r"[,\s]+", text) if item]
    if text[:1] in '["{' or field.annotation is not str:
        try:
            return json.loads(text)
        except json.JSONDecodeError:
            return text  # the model says what is wrong with it
    return text


def _kind(field: FieldInfo) -> str:
    return "list" if get_origin(field.annotation) is list else getattr(field.annotation, "__name__", "text")


def _described(name: str, field: FieldInfo) -> str:
    kind = _kind(field)
    default = (
        "" if field.is_required() else f" = {json.dumps(field.get_default(call_default_factory=True), default=str)}"
    )
    note = f" ({field.description})" if field.description else ""
    return f"{name}: {'text' if kind == 'str' else kind}{default}{note}"
