"""JSON as Tenure reads and writes it: what was sent comes back, or is refused by name.

Refused are what PostgreSQL cannot store or another program could not read again: lone surrogates, NUL, numbers beyond a
double, NaN, nesting deeper than `MAX_DEPTH`, duplicate keys, a byte-order mark, invalid UTF-8. Integers of any usual
length stay exact.
"""

import json
import math
import re
from typing import Any

import jiter
import orjson

from tenure.errors import InvalidInput, Malformed

MAX_DEPTH = 100
"""Far above what people nest, far below where the recursion of any JSON library ends."""

# What may make the walk necessary: an escaped NUL, an exponent of three digits, an endless number. Text in strings can
# look like it, too; then the walk finds nothing.
_SUSPICIOUS = re.compile(rb"\\u0000|[eE]\+?\d{3}|\d{200}")
_SURROGATE = re.compile("[\ud800-\udfff]")

_Path = tuple["_Path", str | int] | None


def parse(data: bytes | str, *, at: str = "") -> Any:
    """The value that the text stands for. ``at`` is the pointer of the whole, for a part of a larger body.

    Raises Malformed when it is no JSON (with the position), InvalidInput (with the pointer) for a value that is JSON
    but cannot be kept.
    """
    raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    try:
        value = jiter.from_json(raw, allow_inf_nan=False, catch_duplicate_keys=True, cache_mode="keys")
    except ValueError as error:
        raise _refusal(raw, str(error), at) from None
    if _SUSPICIOUS.search(raw) or raw.count(b"[") + raw.count(b"{") > MAX_DEPTH:
        _check(value, at)
    return value


def dumps(value: Any) -> bytes:
    """Compact JSON. Integers beyond 64 bits are written in full."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def canonical(value: Any) -> bytes:
    """The same bytes for values that are JSON-equal: keys in order, no spaces."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True).encode()


def pointer(*parts: str | int) -> str:
    """A JSON pointer (RFC 6901)."""
    return "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in parts)


def _refusal(raw: bytes, message: str, at: str) -> Malformed | InvalidInput:
    if "recursion limit" in message:
        return InvalidInput.of(at, f"is nested deeper than {MAX_DEPTH} levels")
    if b"\\u" in raw:
        # The standard library reads lone surrogates; so it is JSON, and a field can be named.
        try:
            value = json.loads(raw)
        except (ValueError, RecursionError):
            pass
        else:
            try:
                _check(value, at)
            except InvalidInput as refusal:
                return refusal
    where = f"{at}: " if at else ""
    return Malformed(f"{where}this is not JSON: {message}")


def _check(value: Any, at: str) -> None:
    stack: list[tuple[Any, _Path, int]] = [(value, None, 1)]
    while stack:
        item, path, depth = stack.pop()
        if isinstance(item, str):
            if problem := _problem_of_text(item):
                raise InvalidInput.of(at + _pointer_of(path), problem)
        elif isinstance(item, float):
            if not math.isfinite(item):
                raise InvalidInput.of(at + _pointer_of(path), "is a number beyond the range of a double")
        elif isinstance(item, dict):
            _check_depth(depth, at, path)
            for key, child in item.items():
                if problem := _problem_of_text(key):
                    raise InvalidInput.of(at + _pointer_of(path), f"has a key that {problem}")
                stack.append((child, (path, key), depth + 1))
        elif isinstance(item, list):
            _check_depth(depth, at, path)
            stack.extend((child, (path, index), depth + 1) for index, child in enumerate(item))


def _check_depth(depth: int, at: str, path: _Path) -> None:
    if depth > MAX_DEPTH:
        raise InvalidInput.of(at + _pointer_of(path), f"is nested deeper than {MAX_DEPTH} levels")


def _problem_of_text(text: str) -> str | None:
    if "\x00" in text:
        return "contains NUL (\\u0000), which cannot be stored; leave it out"
    if not text.isascii() and _SURROGATE.search(text):
        return "contains half of a surrogate pair, which is no character; send both halves, or U+FFFD"
    return None


def _pointer_of(path: _Path) -> str:
    parts: list[str | int] = []
    while path is not None:
        path, part = path
        parts.append(part)
    return pointer(*reversed(parts))
