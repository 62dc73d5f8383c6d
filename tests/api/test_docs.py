"""The reference page tells of every operation and every error code, and of no others."""

import inspect
import re
from pathlib import Path

from tenure import errors
from tenure.api.app import OPERATIONS
from tenure.errors import InternalError, TenureError

PAGE = (Path(__file__).parents[2] / "docs" / "http.md").read_text()


def test_every_operation_has_its_section() -> None:
    titles: set[str] = set()
    for title in re.findall(r"^### (.+)$", PAGE, re.MULTILINE):
        first, *others = (part.strip() for part in title.split(","))
        titles.add(first)
        for other in others:
            # "POST /a/b, /c" is short for "POST /a/b" and "POST /a/c"
            titles.add(other if " " in other else first.rpartition("/")[0] + other)
    assert titles == {f"{item.method} {item.path.replace(':uuid', '')}" for item in OPERATIONS}


def test_every_code_is_listed_under_its_status() -> None:
    rows = re.findall(r"^\| (\d{3}) \| (`[^|]+) \|", PAGE, re.MULTILINE)
    listed = {(int(status), code) for status, codes in rows for code in re.findall(r"`([a-z-]+)`", codes)}
    classes = [cls for _, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, TenureError)]
    assert listed == {(cls.status, cls.code) for cls in classes if cls is not TenureError}
    assert (InternalError.status, InternalError.code) in listed


def test_every_field_of_an_enqueue_is_told() -> None:
    operation = next(item for item in OPERATIONS if item.operation_id == "enqueue_job")
    assert operation.body is not None
    for name in operation.body.model.model_fields:
        assert f"`{name}`" in PAGE
