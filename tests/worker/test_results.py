"""What a handler returns, as JSON text, or as a failure that says why not."""

import enum
import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel, field_serializer

from tenure.jobs.model import ErrorKind
from tenure.worker.outcome import Raised, Returned, returned
from tenure.worker.registry import JobRegistry
from tenure.worker.spec import HandlerSpec, UnstorableResult, dump_result


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Point:
    x: int


class Model(BaseModel):
    at: datetime
    points: list[Any] = []


class Breaks(BaseModel):
    x: int

    @field_serializer("x")
    def _never(self, value: int) -> int:
        raise RuntimeError("cannot be written")


ID = UUID("01890000-0000-7000-8000-000000000000")
LOOP: list[Any] = []
LOOP.append(LOOP)


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        ({"a": [1, True, None, "ü"]}, '{"a":[1,true,null,"ü"]}'),
        (10**30, "1" + "0" * 30),
        ("\\u0000", '"\\\\u0000"'),
        ({ID: Colour.RED}, f'{{"{ID}":"red"}}'),
        (Point(x=1), '{"x":1}'),
        (
            Model(at=datetime(2026, 1, 2, tzinfo=UTC), points=[Point(x=2)]),
            '{"at":"2026-01-02T00:00:00Z","points":[{"x":2}]}',
        ),
        ((1, 2), "[1,2]"),
        (nested(100), "[" * 100 + "1" + "]" * 100),
        ("[" * 500, '"' + "[" * 500 + '"'),
    ],
)
def test_what_can_be_json_is(value: Any, text: str) -> None:
    assert dump_result(value) == text


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (math.nan, "not JSON"),
        ([math.inf], "not JSON"),
        ("a\x00b", "NUL"),
        ({"a\x00b": 1}, "NUL"),
        ("\udfff", "surrogate"),
        ({"\ud800": 1}, "surrogate"),
        (object(), "not JSON"),
        (b"\xff", "not JSON"),
        ([10**5000], "not JSON"),
        (LOOP, "not JSON"),
        (nested(101), "100 levels"),
        (nested(100_000), "nested too deeply"),
    ],
)
def test_what_cannot_be_json_is_refused_by_name(value: Any, told: str) -> None:
    with pytest.raises(UnstorableResult, match=told):
        dump_result(value)


def spec() -> HandlerSpec:
    jobs = JobRegistry()
    jobs.handler("kind")(lambda context: None)
    found = jobs.get("kind")
    assert found is not None
    return found


@pytest.mark.parametrize(("size", "fits"), [(98, True), (99, False)])
def test_the_limit_is_in_bytes_of_json(size: int, fits: bool) -> None:
    for character in ("a", "ü"):
        width = len(character.encode())
        ended = returned(spec(), character * (size // width) + "a" * (size % width), max_result_bytes=100)
        assert isinstance(ended, Returned) is fits


@pytest.mark.parametrize("value", [Breaks(x=1), math.nan, "x" * 200])
def test_an_unstorable_result_is_a_permanent_failure(value: Any) -> None:
    ended = returned(spec(), value, max_result_bytes=100)
    assert isinstance(ended, Raised)
    assert (ended.error.kind, ended.meant) == (ErrorKind.PERMANENT, True)
    assert "the result" in ended.error.message
