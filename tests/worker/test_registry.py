"""Registering handlers: what cannot work is refused at once, by name."""

import functools
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, field_validator

from tenure.errors import ConfigurationError, InvalidInput
from tenure.jobs.retry import RetryPolicy
from tenure.worker.context import JobContext
from tenure.worker.registry import JobRegistry, load_registry
from tests.worker import process_handlers


class Export(BaseModel):
    name: str = Field(max_length=10)
    rows: Annotated[int, Field(gt=0)] = 1
    format: Literal["csv", "jsonl"] = "csv"

    @field_validator("name")
    @classmethod
    def _no_secrets(cls, value: str) -> str:
        if value.startswith("secret"):
            raise ValueError(f"{value!r} is not allowed")
        return value


async def handler(context: JobContext, payload: Export) -> None: ...


def plain(context: JobContext) -> None: ...


class Callable_:
    async def __call__(self, context: JobContext, payload: "Export") -> None: ...

    def method(self, context: JobContext, payload: int) -> None: ...


async def three(context: JobContext, payload: Export, more: int) -> None: ...


async def named_only(context: JobContext, *, payload: Export) -> None: ...


def none() -> None: ...


def yields(context: JobContext) -> Iterator[int]:
    yield 1


async def yields_async(context: JobContext) -> AsyncIterator[int]:
    yield 1


async def unknown_name(context: JobContext, payload: "Missing") -> None: ...  # type: ignore[name-defined] # noqa: F821


async def not_a_type(context: JobContext, payload: 3) -> None: ...  # type: ignore[valid-type]


@pytest.mark.parametrize(
    ("function", "mode", "takes_payload"),
    [
        (handler, "async", True),
        (plain, "thread", False),
        (Callable_(), "async", True),
        (Callable_().method, "thread", True),
        (functools.partial(three, more=1), "async", True),
        (lambda context, payload: payload, "thread", True),
        (lambda *arguments: arguments, "thread", True),
        (lambda context, payload=None, *, flag=True: flag, "thread", True),
    ],
)
def test_the_mode_and_the_payload_are_read_from_the_function(function: Any, mode: str, takes_payload: bool) -> None:
    jobs = JobRegistry()
    assert jobs.handler("kind")(function) is function
    spec = jobs.get("kind")
    assert spec is not None
    assert (spec.mode, spec.takes_payload, spec.function) == (mode, takes_payload, function)


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (none, "(context, payload)"),
        (three, "(context, payload)"),
        (named_only, "(context, payload)"),
        (yields, "yield"),
        (yields_async, "yield"),
        (unknown_name, "Missing"),
        (not_a_type, "3"),
        (Export, "function"),
        ("handler", "function"),
        (None, "function"),
    ],
)
def test_what_cannot_be_a_handler_is_refused(function: Any, told: str) -> None:
    jobs = JobRegistry()
    with pytest.raises(ConfigurationError) as refused:
        jobs.handler("my.kind")(function)
    assert "my.kind" in str(refused.value)
    assert told in str(refused.value)
    assert jobs.kinds() == []


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"lease_seconds": 0.9}, "lease_seconds"),
        ({"lease_seconds": 86_401}, "lease_seconds"),
        ({"lease_seconds": float("nan")}, "lease_seconds"),
        ({"lease_seconds": True}, "lease_seconds"),
        ({"lease_seconds": "30"}, "lease_seconds"),
        ({"timeout_seconds": 0}, "timeout_seconds"),
        ({"timeout_seconds": float("inf")}, "timeout_seconds"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"max_attempts": 1.5}, "max_attempts"),
        ({"retry": 3}, "retry"),
        ({"schema_versions": []}, "schema_versions"),
        ({"schema_versions": [0]}, "schema_versions"),
        ({"schema_versions": 2}, "schema_versions"),
        ({"queue": ""}, "queue"),
        ({"queue": "a\nb"}, "queue"),
        ({"process": True}, "process=True"),
    ],
)
def test_terms_that_cannot_hold_are_refused(options: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        JobRegistry().handler("kind", **options)(lambda context: None)


@pytest.mark.parametrize("kind", ["", "two words", "x" * 201, "nul\x00", 7])
def test_a_kind_needs_a_name(kind: Any) -> None:
    with pytest.raises(ConfigurationError, match="kind"):
        JobRegistry().handler(kind)(plain)


def test_bounds_themselves_are_accepted() -> None:
    jobs = JobRegistry()
    for lease_seconds in (1, 86_400):
        jobs.handler(f"lease{lease_seconds}", lease_seconds=lease_seconds, max_attempts=1_000)(plain)
    assert [spec.lease_seconds for spec in jobs.kinds()] == [1, 86_400]


def test_a_kind_has_one_handler() -> None:
    jobs, other = JobRegistry(), JobRegistry()
    jobs.handler("kind")(plain)
    other.handler("kind")(handler)
    with pytest.raises(ConfigurationError, match="two handlers"):
        jobs.handler("kind")(handler)
    with pytest.raises(ConfigurationError, match="two handlers"):
        jobs.include(other)
    assert [spec.function for spec in jobs.kinds()] == [plain]


def test_a_process_handler_must_be_found_by_name() -> None:
    def nested(context: JobContext) -> None: ...

    for function in (nested, lambda context: None, functools.partial(plain), Callable_()):
        with pytest.raises(ConfigurationError, match="at the top of a module"):
            JobRegistry().handler("kind", process=True)(function)
    jobs = JobRegistry()
    jobs.handler("kind", process=True)(process_handlers.plain)
    spec = jobs.get("kind")
    assert spec is not None
    assert spec.mode == "process"


def test_policies_are_the_kind_s_own_or_the_default() -> None:
    own, default = RetryPolicy(base_seconds=5), RetryPolicy(base_seconds=7)
    jobs = JobRegistry()
    jobs.handler("own", retry=own)(plain)
    jobs.handler("plain")(plain)
    jobs.default_policy = default
    assert [jobs.policy_of(kind) for kind in ("own", "plain", "unknown")] == [own, default, default]


@pytest.mark.parametrize(
    ("payload", "pointers"),
    [
        ('{"name": "a-long-name-indeed"}', ["/payload/name"]),
        ('{"rows": 0}', ["/payload/name", "/payload/rows"]),
        ('{"name": "x", "format": "xls-file"}', ["/payload/format"]),
        ('{"name": "secret-1"}', ["/payload/name"]),
        ('["list-value"]', ["/payload"]),
        ("{", ["/payload"]),
    ],
)
def test_a_payload_that_does_not_fit_is_named_by_pointer_and_never_quoted(payload: str, pointers: list[str]) -> None:
    jobs = JobRegistry()
    jobs.handler("kind")(handler)
    spec = jobs.get("kind")
    assert spec is not None
    with pytest.raises(InvalidInput) as refused:
        spec.validate(payload)
    assert [error.pointer for error in refused.value.errors] == pointers
    told = str(refused.value) + "".join(error.message for error in refused.value.errors)
    for value in ("a-long-name-indeed", "xls-file", "secret-1", "list-value"):
        assert value not in told
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__


def test_pointers_escape_what_json_pointers_must() -> None:
    jobs = JobRegistry()

    @jobs.handler("kind")
    def handle(context: JobContext, payload: dict[str, list[int]]) -> None: ...

    spec = jobs.get("kind")
    assert spec is not None
    with pytest.raises(InvalidInput) as refused:
        spec.validate('{"a/b~c": [1, "two"]}')
    assert [error.pointer for error in refused.value.errors] == ["/payload/a~1b~0c/1"]


@pytest.mark.parametrize("payload", ["null", "[1, 2.5, {}]", '"text"', "123456789012345678901234567890"])
def test_without_an_annotation_any_json_is_taken(payload: str) -> None:
    jobs = JobRegistry()
    jobs.handler("kind")(lambda context, payload: payload)
    spec = jobs.get("kind")
    assert spec is not None
    assert spec.dump_result(spec.validate(payload)).replace(" ", "") == payload.replace(" ", "")


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("someones_")]:
        del sys.modules[name]


def test_an_app_is_loaded_from_the_current_directory(app: Path) -> None:
    (app / "someones_app.py").write_text(
        "from tenure.worker.registry import JobRegistry\nclass Holder:\n    jobs = JobRegistry()\njobs = Holder.jobs\n"
    )
    assert load_registry("someones_app:jobs") is load_registry(" someones_app:Holder.jobs ")


@pytest.mark.parametrize(
    ("target", "source", "told"),
    [
        ("someones_app", "", "module:registry"),
        (":jobs", "", "module:registry"),
        ("someones_missing:jobs", "", "there is no module 'someones_missing'"),
        ("someones_app:jobs", "", "has no 'jobs'"),
        ("someones_app:jobs", "jobs = 3", "not a JobRegistry"),
        ("someones_app:jobs", "1/0", "ZeroDivisionError"),
        ("someones_app:jobs", "import someones_dependency", "someones_dependency"),
        ("someones_app:jobs", "def f(:", "SyntaxError"),
    ],
)
def test_an_app_that_cannot_be_loaded_says_why(app: Path, target: str, source: str, told: str) -> None:
    (app / "someones_app.py").write_text(source)
    with pytest.raises(ConfigurationError) as refused:
        load_registry(target)
    assert told in str(refused.value)
