"""What a submitter asks of `report.export`, and what it answers."""

from collections.abc import Iterable
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo
from pydantic_core import InitErrorDetails, PydanticCustomError

from tenure.handlers.reports.catalog import ParametersRefused, ReportCatalog

Format = Literal["csv", "jsonl", "parquet"]


class ExportRequest(BaseModel):
    """A report by its name, and values for its parameters: never SQL."""

    model_config = ConfigDict(extra="forbid", frozen=True, title="ExportRequest")

    report: str = Field(max_length=100, description="name of a report that the operator defined")
    # Before `parameters`: their check needs to know the report, and fields are checked in this order.
    format: Format = Field("csv", description="what is written: CSV, JSON Lines or Parquet")
    parameters: dict[str, Any] = Field(
        default_factory=dict, validate_default=True, description="values for the report's parameters, by name"
    )


class ExportedArtifact(BaseModel):
    """A file that was written."""

    name: str
    bytes: int
    rows: int
    sha256: str
    content_type: str


class ExportResult(BaseModel):
    """The files of the export; each is at ``/jobs/{id}/artifacts/{name}``."""

    artifacts: list[ExportedArtifact]


def check_report(catalog: ReportCatalog, name: str) -> str:
    """For the model's `report` field. Raises Pydantic's ValidationError."""
    if name not in catalog.reports:
        raise _refusal([((), f"there is no such report{catalog.nearest(name)}")])
    return name


def check_parameters(catalog: ReportCatalog, given: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
    """For the model's `parameters` field: the values, read. Raises Pydantic's ValidationError."""
    report = catalog.reports.get(info.data.get("report", ""))
    if report is None:  # said already, of the field `report`
        return given
    try:
        return report.read_parameters(given)
    except ParametersRefused as error:
        raise _refusal(error.problems) from None


def _refusal(problems: Iterable[tuple[tuple[str | int, ...], str]]) -> ValidationError:
    """Pydantic puts the field's own place before these."""
    return ValidationError.from_exception_data(
        "ExportRequest",
        [
            # No input: the messages name what the operator defined, never what was sent, and so may be shown.
            InitErrorDetails(
                type=PydanticCustomError("report", "{message}", {"message": message}), loc=location, input=None
            )
            for location, message in problems
        ],
    )
