"""The reports an operator offers: a TOML file, read and compiled once, refused whole when anything in it is wrong."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tenure.errors import ConfigurationError
from tenure.handlers.reports.parameters import BadValue, Parameter, ParameterSpec, did_you_mean
from tenure.handlers.reports.placeholders import CompiledSql, SqlProblem, compile_sql
from tenure.handlers.reports.rows import Precision

_REPORT_NAME = re.compile(r"[a-z][a-z0-9_-]{0,99}\Z")
_PARAMETER_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}\Z")
_NUMERIC = re.compile(r"numeric\((\d{1,2}),\s*(\d{1,2})\)\Z")
_MAX_DIGITS = 38
"""As many as a 128-bit decimal of Arrow and Parquet holds."""


class _Spec(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SourceSpec(_Spec):
    url: str | None = None
    url_env: str | None = None
    statement_timeout_seconds: float = Field(300.0, gt=0, le=86_400)
    connect_timeout_seconds: float = Field(10.0, gt=0, le=300)


class ReportSpec(_Spec):
    title: str = ""
    source: str
    sql: str
    count_sql: str | None = None
    escape_formulas: bool = False
    columns: dict[str, str] = Field(default_factory=dict)
    parameters: dict[str, ParameterSpec] = Field(default_factory=dict)


class FileSpec(_Spec):
    sources: dict[str, SourceSpec] = Field(default_factory=dict)
    reports: dict[str, ReportSpec] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A database that reports may read. Its URL holds a password: it is in no repr, error or log."""

    name: str
    url: str = field(repr=False)
    statement_timeout_seconds: float
    connect_timeout_seconds: float


class ParametersRefused(ValueError):
    """Values that a report does not take: for each, the path below ``parameters`` and what it should be."""

    def __init__(self, problems: list[tuple[tuple[str | int, ...], str]]) -> None:
        super().__init__("; ".join(message for _, message in problems))
        self.problems = problems


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A report, compiled. ``precisions`` says which decimal columns have a fixed number of digits."""

    name: str
    title: str
    source: Source
    query: CompiledSql
    count_query: CompiledSql | None
    parameters: Mapping[str, Parameter]
    precisions: Mapping[str, Precision]
    escape_formulas: bool

    def read_parameters(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Every parameter's value, ready to be bound, defaults included. Raises ParametersRefused."""
        problems: list[tuple[tuple[str | int, ...], str]] = [
            ((name,), f"report {self.name!r} has no such parameter{did_you_mean(name, self.parameters)}")
            for name in given
            if name not in self.parameters
        ]
        values: dict[str, Any] = {}
        for name, parameter in self.parameters.items():
            value = given.get(name)
            if value is None:
                if parameter.required:
                    problems.append(((name,), f"is required: {parameter.description or parameter.summary}"))
                # An explicit null is a wish, too: only what is left out takes the default.
                values[name] = None if name in given else parameter.default
                continue
            try:
                values[name] = parameter.read(value)
            except BadValue as error:
                problems.append(((name, *error.where), error.message))
        if problems:
            raise ParametersRefused(problems)
        return values


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportCatalog:
    """All reports, by name."""

    reports: Mapping[str, Report]

    @classmethod
    def load(cls, path: Path, *, environment: Mapping[str, str]) -> "ReportCatalog":
        """Reads the file. ``environment`` is where a source's ``url_env`` is looked up.

        Raises ConfigurationError that names the file and every report, parameter or line that is wrong.
        """
        try:
            raw = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise ConfigurationError(f"the reports file {path} cannot be read: {reason} (TENURE_REPORTS)") from error
        except tomllib.TOMLDecodeError as error:
            raise ConfigurationError(f"{path} is not TOML: {error}") from None
        problems: list[str] = []
        try:
            spec = FileSpec.model_validate(raw)
        except ValidationError as error:
            problems = [_sentence(problem) for problem in error.errors(include_url=False)]
            raise _refused(path, problems) from None
        sources = {name: _source(name, source, environment, problems) for name, source in spec.sources.items()}
        reports = {name: _report(name, report, sources, problems) for name, report in spec.reports.items()}
        if problems:
            raise _refused(path, problems)
        return cls(reports=MappingProxyType({name: report for name, report in reports.items() if report is not None}))

    def nearest(self, name: str) -> str:
        """The end of a sentence about an unknown report: what is near, or all there are."""
        if not self.reports:
            return "; no report is defined"
        return did_you_mean(name, self.reports) or f"; there are {', '.join(sorted(self.reports)[:20])}"


def _source(name: str, spec: SourceSpec, environment: Mapping[str, str], problems: list[str]) -> Source | None:
    where = f"sources.{name}"
    url = spec.url
    if (spec.url is None) == (spec.url_env is None):
        problems.append(f"{where}: give either url or url_env")
        return None
    if spec.url_env is not None:
        url = environment.get(spec.url_env)
        if not url:
            problems.append(f"{where}.url_env: the environment has no {spec.url_env}")
            return None
    assert url is not None
    scheme, _, rest = url.partition("://")
    if scheme.removesuffix("+asyncpg") not in {"postgresql", "postgres"} or not rest:
        problems.append(f"{where}: the URL must begin with postgresql://")
        return None
    return Source(
        name=name,
        url=f"postgresql://{rest}",
        statement_timeout_seconds=spec.statement_timeout_seconds,
        connect_timeout_seconds=spec.connect_timeout_seconds,
    )


def _report(name: str, spec: ReportSpec, sources: Mapping[str, Source | None], problems: list[str]) -> Report | None:
    where = f"reports.{name}"
    before = len(problems)
    if not _REPORT_NAME.match(name):
        problems.append(f"{where}: a name has lower-case letters, digits, - and _, and begins with a letter")
    if spec.source not in sources:
        problems.append(f"{where}.source: there is no source {spec.source!r}{did_you_mean(spec.source, list(sources))}")
    parameters: dict[str, Parameter] = {}
    for parameter_name, parameter in spec.parameters.items():
        there = f"{where}.parameters.{parameter_name}"
        if not _PARAMETER_NAME.match(parameter_name):
            problems.append(f"{there}: a name has lower-case letters, digits and _, and begins with a letter")
            continue
        try:
            parameters[parameter_name] = Parameter.of(parameter_name, parameter)
        except ValueError as error:
            problems.append(f"{there}: {error}")
    precisions = _precisions(where, spec.columns, problems)
    # With a wrong parameter left out, its placeholder would be called unknown: one mistake, one complaint.
    if len(parameters) < len(spec.parameters):
        return None
    query = _compiled(f"{where}.sql", spec.sql, parameters, problems)
    count_query = (
        None if spec.count_sql is None else _compiled(f"{where}.count_sql", spec.count_sql, parameters, problems)
    )
    for unused in [] if query is None else sorted(parameters.keys() - set(query.names)):
        problems.append(f"{where}.parameters.{unused}: its SQL does not use :{unused}")
    source = sources.get(spec.source)
    if len(problems) > before or source is None or query is None:
        return None
    return Report(
        name=name,
        title=spec.title or name,
        source=source,
        query=query,
        count_query=count_query,
        parameters=MappingProxyType(parameters),
        precisions=MappingProxyType(precisions),
        escape_formulas=spec.escape_formulas,
    )


def _compiled(where: str, sql: str, parameters: Mapping[str, Parameter], problems: list[str]) -> CompiledSql | None:
    try:
        return compile_sql(sql, {name: parameter.postgres_type for name, parameter in parameters.items()})
    except SqlProblem as error:
        problems.append(f"{where}: {error}")
        return None


def _precisions(where: str, columns: Mapping[str, str], problems: list[str]) -> dict[str, Precision]:
    found: dict[str, Precision] = {}
    for name, declared in columns.items():
        match = _NUMERIC.match(declared)
        digits, scale = (int(match[1]), int(match[2])) if match else (0, 0)
        if not 1 <= digits <= _MAX_DIGITS or scale > digits:
            problems.append(f"{where}.columns.{name}: must be like 'numeric(12,2)', with at most {_MAX_DIGITS} digits")
        else:
            found[name] = Precision(digits=digits, scale=scale)
    return found


def _sentence(problem: Any) -> str:
    where = ".".join(str(step) for step in problem["loc"])
    if problem["type"] == "extra_forbidden":
        return f"{where}: there is no such setting{_nearest_setting(problem['loc'])}"
    message = "is missing" if problem["type"] == "missing" else problem["msg"].removeprefix("Value error, ")
    return f"{where}: {message}"


def _nearest_setting(location: tuple[int | str, ...]) -> str:
    models: dict[tuple[str, int], type[BaseModel]] = {
        ("sources", 3): SourceSpec,
        ("reports", 3): ReportSpec,
        ("reports", 5): ParameterSpec,
    }
    model = models.get((str(location[0]), len(location)), FileSpec)
    return did_you_mean(str(location[-1]), list(model.model_fields))


def _refused(path: Path, problems: list[str]) -> ConfigurationError:
    return ConfigurationError(f"{path} cannot be used:\n  " + "\n  ".join(problems))
