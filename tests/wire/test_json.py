"""JSON in and out: what was sent comes back, or is refused by name."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.errors import InvalidInput, Malformed
from tenure.wire.json import MAX_DEPTH, canonical, dumps, parse, pointer

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x00"))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda children: st.lists(children) | st.dictionaries(TEXT, children),
    max_leaves=20,
)


@given(VALUES)
def test_every_json_value_comes_back(value: Any) -> None:
    assert parse(dumps(value)) == value
    assert parse(dumps(value).decode()) == value


@given(VALUES)
def test_canonical_form_is_the_same_for_equal_values(value: Any) -> None:
    assert canonical(parse(dumps(value))) == canonical(value)
    assert canonical({"b": value, "a": 10**40}) == canonical({"a": 10**40, "b": value})


@given(st.binary())
def test_any_bytes_are_a_value_or_a_named_refusal(data: bytes) -> None:
    with suppress(Malformed, InvalidInput):
        parse(data)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (b"", "column 0"),
        (b"\xef\xbb\xbf{}", "column 1"),
        (b'"\xff"', "column 2"),
        (b"{} {}", "column 4"),
        (b'{"a":1,"a":2}', '"a"'),
        (b"[NaN]", "column 2"),
        (b"[Infinity]", "column 2"),
        (b"{'a':1}", "column 2"),
        (b"1" * 5_000, "out of range"),
        (b'"a\x00b"', "column"),
    ],
)
def test_what_is_no_json_is_refused_with_its_position(text: bytes, where: str) -> None:
    with pytest.raises(Malformed, match=where):
        parse(text)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (rb'{"a":["\ud800"]}', "/a/0"),
        (rb'{"a":{"\udc00":1}}', "/a"),
        (rb'["\u0000"]', "/0"),
        (rb'{"a~/b":"\u0000"}', "/a~0~1b"),
        (rb'{"\u0000":1}', ""),
        (rb"[1,1e309]", "/1"),
        (rb"[-1E+999]", "/0"),
        (b"9" * 400 + b".0", ""),
    ],
)
def test_what_cannot_be_kept_is_refused_with_its_pointer(text: bytes, where: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        parse(text, at="/here")
    assert [error.pointer for error in refusal.value.errors] == [f"/here{where}"]


def test_text_that_only_looks_suspicious_is_taken() -> None:
    assert parse(rb'["\\u0000", "1e999", 1e-999]') == ["\\u0000", "1e999", 0.0]


@pytest.mark.parametrize("depth", [MAX_DEPTH, MAX_DEPTH + 1, 150, 10_000, 1_000_000])
def test_nesting_is_bounded(depth: int) -> None:
    for text in (b"[" * depth + b"]" * depth, b'{"a":' * depth + b"1" + b"}" * depth):
        if depth <= MAX_DEPTH:
            parse(text)
        else:
            with pytest.raises(InvalidInput, match="deeper than 100"):
                parse(text)


def test_wide_values_are_not_taken_for_deep_ones() -> None:
    assert len(parse(b"[" + b"[],{}," * 500 + b"1]")) == 1_001


def test_pointer_escapes() -> None:
    assert pointer("a/b", 3, "m~n") == "/a~1b/3/m~0n"
