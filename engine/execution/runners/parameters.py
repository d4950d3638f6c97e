"""A flow's parameters: checked, put into words, and edited by hand (SPEC 9.2). Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from engine.values import Refusal, sanitise


def validated(flow: str, model: type[BaseModel], values: Mapping[str, Any]) -> BaseModel:
    """The parameters as the flow takes them. Raises `Refusal` `bad_parameters` naming what is wrong and accepted."""
    unknown = [name for name in values if name not in model.model_fields]
    if unknown:
        raise refused(flow, model, f"{flow} has no parameter {sanitise(', '.join(unknown))}")
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        if missing := [str(problem["loc"][0]) for problem in error.errors() if problem["type"] == "missing"]:
            raise refused(flow, model, _needs(flow, model, missing)) from error
        problems = "; ".join(
            f"{'.'.join(str(part) for part in problem['loc']) or 'parameters'}: {problem['msg']}"
            for problem in error.errors(include_url=False, include_context=False)[:5]
        )
        raise refused(flow, model, sanitise(problems)) from error


def refused(flow: str, model: type[BaseModel], problem: str) -> Refusal:
    """What is wrong, with everything that would be right."""
    fields = sorted(model.model_fields.items(), key=lambda named: not named[1].is_required())
    accepted = "; ".join(_described(name, field) for name, field in fields)
    told = problem if problem.startswith(f"{flow} ") else f"{flow}: {problem}"
    form = " ".join([flow, *(_formed(name, field) for name, field in fields)])
    return Refusal("bad_parameters", told, f"`{form}`, or a JSON object; {accepted or 'it has no parameters'}")


def _formed(name: str, field: FieldInfo) -> str:
    return f"{name}=…" if field.is_required() else f"[{name}=…]"


def _needs(flow: str, model: type[BaseModel], missing: Sequence[str]) -> str:
    """What is missing, how it is given, and what each of it means."""
    names = " and ".join(filter(None, (", ".join(missing[:-1]), missing[-1])))
    form = " ".join([flow, *(f"{name}=…" for name in missing)])
    means = "; ".join(f"{name}: {model.model_fields[name].description or 'a value'}" for name in missing)
    return f"{flow} needs {names}: `{form}` ({means})"


def edited(flow: str, model: type[BaseModel], present: Mapping[str, Any], edit: str) -> BaseModel:
    """The parameters after an edit: a JSON object, `key=value` pairs or `key: value` lines. What is not named stays.

    A list takes its items separated by commas or white space. Raises `Refusal` `bad_parameters`.
    """
    text = edit.strip()
    if text.startswith("{"):
        try:
            changes = json.loads(text)
        except json.JSONDecodeError as error:
            raise refused(flow, model, f"the edit is not JSON: {error}") from error
    else:
        changes = _pairs(flow, model, text)
    return validated(flow, model, {**present, **changes})


def _pairs(flow: str, model: type[BaseModel], text: str) -> dict[str, Any]:
    names = "|".join(map(re.escape, model.model_fields)) or "(?!)"
    pieces = re.split(rf"(?:^|(?<=[\s,;]))({names})[ \t]*[=:](?!:)", text)
    if pieces[0].strip() or len(pieces) < 3:
        raise refused(flow, model, f"{sanitise(pieces[0].strip())[:80]!r} is not a parameter and its value")
    changes: dict[str, Any] = {}
    for name, value in zip(pieces[1::2], pieces[2::2], strict=True):
        stray = re.search(r"\s([a-z_]\w*)=", value)
        if stray:
            raise refused(flow, model, f"{flow} has no parameter {stray[1]}")
        changes[name] = _value(model.model_fields[name], value.strip().rstrip(",;").rstrip())
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


def _described(name: str, field: FieldInfo) -> str:
    kind = "list" if get_origin(field.annotation) is list else getattr(field.annotation, "__name__", "text")
    default = (
        "" if field.is_required() else f" = {json.dumps(field.get_default(call_default_factory=True), default=str)}"
    )
    note = f" ({field.description})" if field.description else ""
    return f"{name}: {'text' if kind == 'str' else kind}{default}{note}"
