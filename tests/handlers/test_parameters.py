"""What a parameter takes, and what it turns a value into."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from tenure.handlers.reports.parameters import BadValue, Parameter, ParameterSpec

ID = "3f2504e0-4f89-41d3-9a0c-0305e82c3301"


def parameter(**settings: Any) -> Parameter:
    return Parameter.of("it", ParameterSpec(**settings))


@pytest.mark.parametrize(
    ("settings", "given", "read"),
    [
        ({"type": "text"}, "Robert'); DROP TABLE orders; --", "Robert'); DROP TABLE orders; --"),
        ({"type": "text"}, "", ""),
        ({"type": "integer"}, -(2**63), -(2**63)),
        ({"type": "integer", "min": 1, "max": 1}, 1, 1),
        ({"type": "number"}, 0.1, Decimal("0.1")),
        ({"type": "number"}, 10**30, Decimal(10**30)),
        ({"type": "boolean"}, False, False),
        ({"type": "date"}, "2024-02-29", date(2024, 2, 29)),
        ({"type": "datetime"}, "2025-01-01T01:00:00.5+01:00", datetime(2025, 1, 1, 0, 0, 0, 500_000, UTC)),
        ({"type": "datetime"}, "2025-01-01t00:00:00z", datetime(2025, 1, 1, tzinfo=UTC)),
        ({"type": "uuid"}, ID.upper(), UUID(ID)),
        ({"type": "enum", "choices": ("a", "b")}, "b", "b"),
        ({"type": "list of integer"}, [1, 2], [1, 2]),
        ({"type": "list of enum", "choices": ("a", "b")}, ["a"], ["a"]),
        ({"type": "list of text"}, [], []),
    ],
)
def test_a_fitting_value_becomes_one_of_its_type(settings: dict[str, Any], given: Any, read: Any) -> None:
    found = parameter(**settings).read(given)
    assert (found, type(found)) == (read, type(read))


@pytest.mark.parametrize(
    ("settings", "given", "message"),
    [
        ({"type": "text"}, 1, "must be a text"),
        ({"type": "text"}, "a\x00b", "NUL"),
        ({"type": "text", "max_length": 3}, "abcd", "at most 3 characters, not 4"),
        ({"type": "integer"}, "1", "must be an integer"),
        ({"type": "integer"}, True, "must be an integer"),
        ({"type": "integer"}, 1.0, "must be an integer"),
        ({"type": "integer"}, 2**63, "64 bits"),
        ({"type": "integer", "min": 1}, 0, "at least 1"),
        ({"type": "number", "max": 2.5}, 2.6, r"at most 2\.5"),
        ({"type": "number"}, "1", "must be a number"),
        ({"type": "number"}, True, "must be a number"),
        ({"type": "boolean"}, 1, "true or false"),
        ({"type": "date"}, "2025-02-30", "no calendar has"),
        ({"type": "date"}, "20250101", "like 2026-01-31"),
        ({"type": "date"}, 1_700_000_000, "like 2026-01-31"),
        ({"type": "date", "min": "2025-01-01"}, "2024-12-31", "at least 2025-01-01"),
        ({"type": "datetime"}, "2025-01-01T00:00:00", "with its offset"),
        ({"type": "datetime"}, "2025-01-01", "with its offset"),
        ({"type": "datetime"}, "0001-01-01T00:00:00+10:00", "years 1 to 9999"),
        ({"type": "uuid"}, "{" + ID + "}", "must be a UUID"),
        ({"type": "enum", "choices": ("paid", "shipped")}, "payed", "one of paid, shipped; did you mean 'paid'"),
        ({"type": "list of text"}, "a", "must be a list of text"),
        ({"type": "list of text", "max_items": 1}, ["a", "b"], "at most 1 items, not 2"),
    ],
)
def test_a_value_that_does_not_fit_is_told_what_would(settings: dict[str, Any], given: Any, message: str) -> None:
    with pytest.raises(BadValue, match=message):
        parameter(**settings).read(given)


def test_a_bad_item_of_a_list_is_named_by_its_place() -> None:
    with pytest.raises(BadValue) as caught:
        parameter(type="list of date").read(["2025-01-01", "tomorrow"])
    assert caught.value.where == (1,)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"type": "strng"}, "is no type"),
        ({"type": "enum"}, "needs choices"),
        ({"type": "text", "choices": ("a",)}, "choices does not go with type 'text'"),
        ({"type": "text", "min": 1}, "min does not go"),
        ({"type": "integer", "max_length": 1}, "max_length does not go"),
        ({"type": "integer", "min": 2, "max": 1}, "min is above max"),
        ({"type": "integer", "min": "one"}, "min must be an integer"),
        ({"type": "integer", "max": 5, "default": 6}, "default must be at most 5"),
        ({"type": "date", "default": "soon"}, "default must be a date"),
        ({"type": "text", "required": True, "default": "x"}, "say one of the two"),
    ],
)
def test_a_declaration_that_cannot_work_is_refused(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parameter(**settings)
