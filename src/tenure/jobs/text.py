"""How times and names are written, everywhere that people and programs see them."""

import re
from datetime import UTC, datetime
from functools import lru_cache

NAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._:/-]*"
NAME_RULE = "takes letters, digits and . _ : / - and begins with a letter or a digit"
"""Names of kinds and queues go into URLs, log lines and metric labels, and are typed by people."""

MAX_NAME_CHARACTERS = 200
MAX_ATTEMPTS = 10_000
"""A job that is tried for weeks needs thousands; beyond this it is a mistake."""

MIN_PRIORITY, MAX_PRIORITY = -100, 100

_NAME = re.compile(NAME_PATTERN)


def is_name(text: str) -> bool:
    """Whether a kind or a queue can be called this (its length apart)."""
    return _NAME.fullmatch(text) is not None


# Writing a time costs as much as the rest of a small job; jobs that were accepted or claimed together share theirs.
@lru_cache(maxsize=4_096)
def rfc3339(moment: datetime) -> str:
    """RFC 3339, UTC, always with microseconds and ``Z``."""
    if moment.tzinfo is not UTC:
        moment = moment.astimezone(UTC)
    return f"{moment.isoformat(timespec='microseconds')[:-6]}Z"
