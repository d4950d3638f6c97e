"""The decorator `frozen` for value classes. It makes dataclasses of the standard library, like `frozen` of attrs.

`dataclass` compiles the source of six methods for each class, and that delays the first frame. Here all classes share
these methods, which work as in a dataclass. Only `__init__` has a source of its own. It is compiled when the first
instance is made, and many classes have none before the first frame.

`group_pairs` is here because every package needs it, as it needs `frozen`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from operator import attrgetter
from typing import Any, NoReturn, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[T]) -> type[T]:
    """Make `cls` a dataclass whose instances cannot change and have no `__dict__`."""
    return _add_methods(dataclass(init=False, repr=False, eq=False, slots=True)(cls))


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def frozen_kw_only(cls: type[T]) -> type[T]:
    """Make `cls` such a dataclass, with keyword arguments. It is `cls` itself, so its instances have a `__dict__`."""
    return _add_methods(dataclass(init=False, repr=False, eq=False, kw_only=True)(cls))


def _add_methods(made: type[T]) -> type[T]:
    """Add the methods that a class does not define itself."""
    all_fields = fields(made)  # type: ignore[arg-type]
    compared = _make_value_getter(item for item in all_fields if item.compare)
    hashed = _make_value_getter(item for item in all_fields if (item.compare if item.hash is None else item.hash))

    def compile_and_init(self: T, *arguments: Any, **named_arguments: Any) -> None:
        _compile_init(made)
        made.__init__(self, *arguments, **named_arguments)

    def equals(self: T, other: object) -> bool:
        return compared(self) == compared(other) if other.__class__ is self.__class__ else NotImplemented

    def hash_values(self: T) -> int:
        return hash(hashed(self))

    own_methods = {"__init__": compile_and_init, "__eq__": equals, "__hash__": hash_values}
    for name, method in (own_methods | _SHARED_METHODS).items():
        if name not in made.__dict__:
            setattr(made, name, method)
    return made


def _make_value_getter(chosen_fields: Iterable[Field[Any]]) -> Callable[[object], object]:
    """The function that gives the values of these fields."""
    names = [item.name for item in chosen_fields]
    return attrgetter(*names) if names else lambda _: ()


def _compile_init(made: Any) -> None:
    """Compile the `__init__` of a class. It has the parameters that a dataclass gives it, and sets each field."""
    values: dict[str, Any] = {"MISSING": MISSING}
    parameters, keyword_parameters, lines = ["self"], list[str](), list[str]()
    has_slots = "__slots__" in made.__dict__
    for item in fields(made):
        name = item.name
        default, value = "", name
        if item.default_factory is not MISSING:
            values[f"make_{name}"] = item.default_factory
            default, value = "=MISSING", f"make_{name}() if {name} is MISSING else {name}"
        elif item.default is not MISSING:
            values[f"default_{name}"] = item.default
            default = f"=default_{name}"
        (keyword_parameters if item.kw_only else parameters).append(name + default)
        if has_slots:
            values[f"set_{name}"] = getattr(made, name).__set__
        lines.append(f" set_{name}(self, {value})" if has_slots else f" self.__dict__['{name}'] = {value}")
    if hasattr(made, "__post_init__"):
        lines.append(" self.__post_init__()")
    if keyword_parameters:
        parameters += ["*", *keyword_parameters]
    source = "\n".join([f"def __init__({', '.join(parameters)}):", *lines, " return"])
    exec(source, values)
    made.__init__ = values["__init__"]
    made.__init__.__qualname__ = f"{made.__qualname__}.__init__"  # errors about arguments name it


def _describe(self: Any) -> str:
    values = ", ".join(f"{item.name}={getattr(self, item.name)!r}" for item in fields(self) if item.repr)
    return f"{type(self).__qualname__}({values})"


def _refuse_assignment(_: object, name: str, value: object) -> NoReturn:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _collect_values_to_copy(self: Any) -> list[Any]:
    return [getattr(self, item.name) for item in fields(self)]


def _set_copied_values(self: Any, values: list[Any]) -> None:
    for item, value in zip(fields(self), values, strict=True):
        object.__setattr__(self, item.name, value)


_SHARED_METHODS: dict[str, Callable[..., Any]] = {
    "__repr__": _describe,
    "__setattr__": _refuse_assignment,
    "__getstate__": _collect_values_to_copy,
    "__setstate__": _set_copied_values,
}
"""The methods that are the same for every class. `copy` and `pickle` use the last two."""


# -- values by key

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def group_pairs(pairs: Iterable[tuple[_Key, _Value]]) -> dict[_Key, list[_Value]]:
    """The values of (key, value) pairs by key, in the order of the pairs."""
    groups: dict[_Key, list[_Value]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups
