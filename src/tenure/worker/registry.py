"""Which function handles which kind of job, and under what terms."""

import importlib
import math
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from tenure.errors import ConfigurationError
from tenure.jobs.model import DEFAULT_QUEUE
from tenure.jobs.retry import MAX_DELAY_SECONDS, RetryPolicy
from tenure.jobs.text import MAX_ATTEMPTS, MAX_NAME_CHARACTERS, NAME_RULE, is_name
from tenure.worker.signature import read_signature
from tenure.worker.spec import HandlerSpec, Mode

__all__ = ["HandlerSpec", "JobRegistry", "Mode", "load_registry"]

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

MIN_LEASE_SECONDS, MAX_LEASE_SECONDS = 1.0, 86_400.0


class JobRegistry:
    """The kinds that a process knows, each with its handler.

    ``default_policy`` holds for kinds that bring no retry policy of their own, and for kinds that are not known here.
    """

    def __init__(self, *, default_policy: RetryPolicy | None = None) -> None:
        self.default_policy = default_policy or RetryPolicy()
        self._specs: dict[str, HandlerSpec] = {}

    def handler(
        self,
        kind: str,
        *,
        queue: str = DEFAULT_QUEUE,
        max_attempts: int | None = None,
        timeout_seconds: float | None = None,
        lease_seconds: float | None = None,
        retry: RetryPolicy | None = None,
        schema_versions: Sequence[int] | None = None,
        process: bool = False,
        cancel_when_caller_leaves: bool = False,
    ) -> Callable[[FunctionT], FunctionT]:
        """Registers the decorated function and returns it unchanged.

        The function takes ``(context, payload)`` or only ``(context)``. An ``async def`` runs on the worker's event
        loop, a plain ``def`` in a thread of its own, and either in a child process with ``process=True``. The
        annotation of ``payload`` (a Pydantic model, or any type Pydantic can validate) is what every payload must fit.

        queue: where jobs of this kind go unless they name a queue. max_attempts: 1 … 10,000. timeout_seconds: per
        attempt. lease_seconds: 1 … 86,400. schema_versions: the only ones this handler is given; none means all.
        None leaves a value to the service's settings. Raises ConfigurationError for what cannot work, naming it.
        """

        def register(function: FunctionT) -> FunctionT:
            what = f"handler for {kind!r}"
            _check_name("kind", kind)
            _check_name(f"{what}: queue", queue)
            _check_number(f"{what}: timeout_seconds", timeout_seconds, 0.001, MAX_DELAY_SECONDS)
            _check_number(f"{what}: lease_seconds", lease_seconds, MIN_LEASE_SECONDS, MAX_LEASE_SECONDS)
            _check_integer(f"{what}: max_attempts", max_attempts, 1, MAX_ATTEMPTS)
            if retry is not None and not isinstance(retry, RetryPolicy):
                raise ConfigurationError(f"{what}: retry must be a RetryPolicy, not {type(retry).__name__}")
            signature = read_signature(function, what=what, process=process)
            self._add(
                HandlerSpec(
                    kind=kind,
                    queue=queue,
                    function=function,
                    mode=Mode.PROCESS if process else Mode.ASYNC if signature.is_async else Mode.THREAD,
                    max_attempts=max_attempts,
                    timeout_seconds=timeout_seconds,
                    lease_seconds=lease_seconds,
                    retry=retry,
                    schema_versions=_checked_versions(what, schema_versions),
                    cancel_when_caller_leaves=cancel_when_caller_leaves,
                    takes_payload=signature.takes_payload,
                    is_async=signature.is_async,
                    payload_adapter=signature.payload_adapter,
                )
            )
            return function

        return register

    def get(self, kind: str) -> HandlerSpec | None:
        """The kind's handler, or None where it is not known here."""
        return self._specs.get(kind)

    def kinds(self) -> list[HandlerSpec]:
        """All handlers, in the order of their registration."""
        return list(self._specs.values())

    def include(self, other: "JobRegistry") -> None:
        """Takes over the other registry's handlers. Raises ConfigurationError for a kind that both have."""
        for spec in other.kinds():
            self._add(spec)

    def policy_of(self, kind: str) -> RetryPolicy:
        """The kind's own retry policy, else the default."""
        spec = self._specs.get(kind)
        return spec.retry if spec is not None and spec.retry is not None else self.default_policy

    def _add(self, spec: HandlerSpec) -> None:
        if spec.kind in self._specs:
            raise ConfigurationError(
                f"kind {spec.kind!r} has two handlers: {_name_of(self._specs[spec.kind].function)} and "
                f"{_name_of(spec.function)}; give one of them another kind"
            )
        self._specs[spec.kind] = spec


def load_registry(target: str) -> JobRegistry:
    """The registry that ``module:attribute`` names, as ``--app`` and ``TENURE_APP`` take it.

    The current directory counts as importable, as it does for ``python -m``. Raises ConfigurationError that says
    whether the module, the attribute or its type is wrong.
    """
    module_name, separator, attribute = target.strip().partition(":")
    if not separator or not module_name or not attribute:
        raise ConfigurationError(
            f"{target!r} does not name a registry; write it as module:registry, like app.jobs:jobs"
        )
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise ConfigurationError(
                f"there is no module {module_name!r} (of {target!r}); looked in {here} and the installed packages"
            ) from error
        raise ConfigurationError(f"module {module_name!r} cannot be imported: {error}") from error
    except ConfigurationError:
        raise
    except Exception as error:
        raise ConfigurationError(
            f"module {module_name!r} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    for name in attribute.split("."):
        if not hasattr(found, name):
            raise ConfigurationError(f"module {module_name!r} has no {attribute!r} (of {target!r})")
        found = getattr(found, name)
    if not isinstance(found, JobRegistry):
        raise ConfigurationError(f"{target!r} is a {type(found).__name__}, not a JobRegistry")
    return found


def _name_of(function: Callable[..., Any]) -> str:
    return f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', type(function).__qualname__)}"


def _check_name(what: str, value: Any) -> None:
    if not isinstance(value, str) or not value:
        raise ConfigurationError(f"{what} must be a name, not {value!r}")
    if len(value) > MAX_NAME_CHARACTERS:
        raise ConfigurationError(f"{what} must have at most {MAX_NAME_CHARACTERS} characters, not {len(value)}")
    if not is_name(value):
        raise ConfigurationError(f"{what} {NAME_RULE}, unlike {value!r}")


def _check_number(what: str, value: Any, low: float, high: float) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value) or not low <= value <= high:
        raise ConfigurationError(f"{what} must be a number from {low:g} to {high:,.0f}, not {value!r}")


def _check_integer(what: str, value: Any, low: int, high: int) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ConfigurationError(f"{what} must be a whole number from {low} to {high:,}, not {value!r}")


def _checked_versions(what: str, versions: Iterable[int] | None) -> tuple[int, ...]:
    if versions is None:
        return ()
    checked = tuple(versions) if isinstance(versions, Iterable) else ()
    if not checked:
        raise ConfigurationError(f"{what}: schema_versions must name at least one version; leave it out to take all")
    for version in checked:
        _check_integer(f"{what}: schema_versions", version, 1, 2_147_483_647)
    return checked
