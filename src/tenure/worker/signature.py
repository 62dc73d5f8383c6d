"""What a handler's signature says: whether it is async, whether it wants the payload, and as what."""

import functools
import inspect
import sys
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter
from pydantic.errors import PydanticUserError

from tenure.errors import ConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """What was read."""

    is_async: bool
    takes_payload: bool
    payload_adapter: TypeAdapter[Any]


def read_signature(function: Any, *, what: str, process: bool) -> Signature:
    """Reads it. Raises ConfigurationError, beginning with ``what``, for a function that cannot be a handler."""
    if not callable(function) or inspect.isclass(function):
        raise ConfigurationError(f"{what}: a handler is a function, not {type(function).__name__}")
    body = function if inspect.isroutine(function) or isinstance(function, functools.partial) else function.__call__
    if inspect.isasyncgenfunction(body) or inspect.isgeneratorfunction(body):
        raise ConfigurationError(f"{what}: it has a `yield`, so calling it would not run it; return the result instead")
    if process:
        _check_importable(function, what)
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"{what}: its parameters cannot be read ({error}); wrap it in a function") from None
    parameter = _payload_parameter(signature, what)
    annotation = inspect.Parameter.empty if parameter is None else parameter.annotation
    return Signature(
        is_async=inspect.iscoroutinefunction(body),
        takes_payload=parameter is not None,
        payload_adapter=_adapter(function, annotation, what),
    )


def _payload_parameter(signature: inspect.Signature, what: str) -> inspect.Parameter | None:
    """The second positional parameter, or None where there is but one."""
    positional: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        required = parameter.default is inspect.Parameter.empty
        if parameter.kind in {parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD}:
            if len(positional) >= 2 and required:
                break
            positional.append(parameter)
        elif parameter.kind is parameter.VAR_POSITIONAL:
            positional += [parameter.replace(annotation=parameter.empty)] * max(2 - len(positional), 0)
        elif parameter.kind is parameter.KEYWORD_ONLY and required:
            break
    else:
        if positional:
            return positional[1] if len(positional) > 1 else None
    raise ConfigurationError(f"{what}: it must take (context, payload) or (context), not {signature}")


def _adapter(function: Any, annotation: Any, what: str) -> TypeAdapter[Any]:
    if annotation is inspect.Parameter.empty:
        return TypeAdapter(Any)
    try:
        if isinstance(annotation, str):
            annotation = _resolved(function, annotation)
        return TypeAdapter(annotation)
    except NameError as error:
        raise ConfigurationError(
            f"{what}: its payload annotation {annotation!r} names what is not defined in its module ({error})"
        ) from error
    except (PydanticUserError, TypeError, SyntaxError) as error:
        raise ConfigurationError(f"{what}: no payload can be validated as {annotation!r}: {error}") from error


def _resolved(function: Any, annotation: str) -> Any:
    """The type behind an annotation that is text (`from __future__ import annotations`)."""
    plain = inspect.unwrap(function)
    while isinstance(plain, functools.partial):
        plain = plain.func
    if not inspect.isfunction(plain):
        plain = getattr(plain, "__func__", None) or getattr(type(plain).__call__, "__func__", type(plain).__call__)
    nonlocals = inspect.getclosurevars(plain).nonlocals if inspect.isfunction(plain) else {}
    # The other annotations are left alone: JobContext may be imported for type checking only.
    holder = types.SimpleNamespace(__annotations__={"payload": annotation})
    hints = typing.get_type_hints(
        typing.cast(Callable[..., Any], holder), getattr(plain, "__globals__", {}), dict(nonlocals), include_extras=True
    )
    return hints["payload"]


def _check_importable(function: Any, what: str) -> None:
    """A child process finds the handler by its module and name."""
    if sys.platform == "win32":
        raise ConfigurationError(f"{what}: process=True is not available on Windows")
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if not inspect.isfunction(function) or not module or not name or "<" in name:
        raise ConfigurationError(
            f"{what}: with process=True it must be a function at the top of a module, not {name or function!r}"
        )
    if module == "__main__":
        raise ConfigurationError(
            f"{what}: with process=True it must stand in a module that can be imported, not in the script itself"
        )
