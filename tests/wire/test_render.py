"""What JSON shows of a job."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from tenure.wire import render
from tenure.wire.json import dumps


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (datetime(2030, 1, 31, 12, tzinfo=UTC), "2030-01-31T12:00:00.000000Z"),
        (datetime(2030, 1, 31, 12, 0, 0, 5, tzinfo=UTC), "2030-01-31T12:00:00.000005Z"),
        (datetime(2030, 1, 31, 13, tzinfo=timezone(timedelta(hours=1))), "2030-01-31T12:00:00.000000Z"),
        (datetime(1970, 1, 1, tzinfo=UTC), "1970-01-01T00:00:00.000000Z"),
        (datetime.max.replace(tzinfo=UTC), "9999-12-31T23:59:59.999999Z"),
        (None, None),
    ],
)
def test_times_are_utc_with_microseconds(moment: datetime | None, text: str | None) -> None:
    assert render.time(moment) == text


def test_stored_text_goes_through_untouched() -> None:
    assert dumps({"payload": render.json_text('{"a": 1.50,  "b":\n123456789012345678901234567890}')}) == (
        b'{"payload":{"a": 1.50,  "b":\n123456789012345678901234567890}}'
    )
    assert dumps(render.json_text(None)) == b"null"
