"""Settings: small frozen models, read from ``TENURE_…`` variables once, then passed on.

This module is the only reader of the environment. A wrong value is named, with the variable to mend; a name that is
close to a known one is pointed out.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic.fields import FieldInfo
from rapidfuzz import fuzz, process

from tenure.errors import ConfigurationError

PREFIX = "TENURE_"

DAY_SECONDS = 86_400.0
CENTURY_SECONDS = 36_525 * DAY_SECONDS
"""As good as for ever, and dates can still be counted with it."""


def _postgres_url(url: str) -> str:
    scheme = url.partition("://")[0]
    if scheme in {"postgresql+asyncpg", "postgres+asyncpg"}:  # SQLAlchemy's spelling of the same
        url = "postgresql://" + url.partition("://")[2]
    elif scheme not in {"postgresql", "postgres"}:
        raise ValueError("must be a postgresql:// URL")
    return url


def _list(value: Any) -> Any:
    return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value


class _Group(BaseModel):
    """A frozen group of settings; each field says which variable sets it."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class DatabaseSettings(_Group):
    """Where PostgreSQL is and how connections to it behave."""

    url: Annotated[str, AfterValidator(_postgres_url)] = Field(
        "", validate_default=False, alias="DATABASE_URL", description="PostgreSQL to use; without it, the embedded one"
    )
    schema_name: str = Field(
        "tenure",
        alias="DATABASE_SCHEMA",
        pattern=r"^[a-z_][a-z0-9_]{0,62}$",
        description="schema that holds the tables",
    )
    pool_size: int = Field(10, ge=1, le=1_000, alias="DATABASE_POOL_SIZE", description="most connections in the pool")
    acquire_timeout_seconds: float = Field(
        2.0, gt=0, le=60, alias="DATABASE_ACQUIRE_TIMEOUT_SECONDS", description="longest wait for a pooled connection"
    )
    connect_timeout_seconds: float = Field(
        3.0, gt=0, le=60, alias="DATABASE_CONNECT_TIMEOUT_SECONDS", description="longest wait for a new connection"
    )
    command_timeout_seconds: float = Field(
        30.0, gt=0, le=3_600, alias="DATABASE_COMMAND_TIMEOUT_SECONDS", description="longest wait for one statement"
    )
    lock_timeout_seconds: float = Field(
        3.0,
        gt=0,
        le=60,
        alias="DATABASE_LOCK_TIMEOUT_SECONDS",
        description="longest wait for a row somebody else locks",
    )
    statement_cache_size: int = Field(
        200, ge=0, le=10_000, alias="DATABASE_STATEMENT_CACHE_SIZE", description="0 behind PgBouncer older than 1.21"
    )
    session_settings: bool = Field(
        True,
        alias="DATABASE_SESSION_SETTINGS",
        description="send lock_timeout and the like at connect; false behind PgBouncer in transaction mode",
    )


class HttpSettings(_Group):
    """The HTTP listener."""

    host: str = Field("127.0.0.1", alias="HOST", description="address to listen on")
    port: int = Field(8080, ge=0, le=65_535, alias="PORT", description="port to listen on; 0 takes a free one")
    insecure_no_auth: bool = Field(
        False, alias="INSECURE_NO_AUTH", description="allow an address other machines reach although nobody signs in"
    )
    keep_alive_seconds: int = Field(
        75, ge=1, le=3_600, alias="KEEP_ALIVE_SECONDS", description="idle time of a kept connection; above your proxy's"
    )
    max_requests: int = Field(
        1_000, ge=1, le=100_000, alias="MAX_REQUESTS", description="most requests under way at once; beyond them, 503"
    )
    body_timeout_seconds: float = Field(
        30.0, gt=0, le=3_600, alias="BODY_TIMEOUT_SECONDS", description="longest time a request's body may take"
    )
    readiness_delay_seconds: float = Field(
        0.0,
        ge=0,
        le=600,
        alias="READINESS_DELAY_SECONDS",
        description="on SIGTERM, how long readiness is red before the listener closes",
    )


class LimitSettings(_Group):
    """How much a request may carry."""

    payload_bytes: int = Field(
        1_048_576, ge=64, le=67_108_864, alias="MAX_PAYLOAD_BYTES", description="largest payload, as JSON"
    )
    result_bytes: int = Field(
        1_048_576, ge=64, le=67_108_864, alias="MAX_RESULT_BYTES", description="largest result, as JSON"
    )
    batch_bytes: int = Field(
        67_108_864, ge=1_024, le=1_073_741_824, alias="MAX_BATCH_BYTES", description="largest body of a batch"
    )
    batch_jobs: int = Field(10_000, ge=1, le=10_000, alias="MAX_BATCH_JOBS", description="most jobs in a batch")


class JobSettings(_Group):
    """What holds for a job that does not say otherwise, and whose kind does not."""

    max_attempts: int = Field(3, ge=1, le=10_000, alias="MAX_ATTEMPTS", description="attempts before a job is dead")
    lease_seconds: float = Field(30.0, ge=1, le=86_400, alias="LEASE_SECONDS", description="length of a lease")
    backoff_base_seconds: float = Field(
        1.0, gt=0, le=CENTURY_SECONDS, alias="BACKOFF_BASE_SECONDS", description="first backoff's ceiling"
    )
    backoff_factor: float = Field(2.0, ge=1, le=100, alias="BACKOFF_FACTOR", description="growth of the ceiling")
    backoff_cap_seconds: float = Field(
        600.0, gt=0, le=CENTURY_SECONDS, alias="BACKOFF_CAP_SECONDS", description="highest ceiling"
    )


class WorkerSettings(_Group):
    """The workers of this process."""

    slots: int = Field(10, ge=1, le=10_000, alias="WORKER_SLOTS", description="jobs run at once")
    queues: tuple[str, ...] = Field(
        (), alias="WORKER_QUEUES", description="queues served, by commas; none: those of the registered kinds"
    )
    worker_id: str = Field(
        "", alias="WORKER_ID", max_length=200, description="this worker's name; none: host, process and a random part"
    )
    poll_seconds: float = Field(
        1.0, gt=0, le=60, alias="WORKER_POLL_SECONDS", description="how often to look without a wake-up"
    )
    shutdown_grace_seconds: float = Field(
        25.0, ge=0, le=86_400, alias="SHUTDOWN_GRACE_SECONDS", description="time that running jobs get on SIGTERM"
    )
    app: str = Field("", alias="APP", description="module:registry with your handlers, besides those of Tenure")

    _split = field_validator("queues", mode="before")(_list)


class MaintenanceSettings(_Group):
    """What keeps the tables in order."""

    enabled: bool = Field(True, alias="MAINTENANCE", description="whether this process takes part")
    reap_seconds: float = Field(
        1.0, gt=0, le=60, alias="REAP_SECONDS", description="how often expired leases are ended"
    )
    prune_seconds: float = Field(60.0, gt=0, le=86_400, alias="PRUNE_SECONDS", description="how often old jobs go")
    keep_succeeded_seconds: float = Field(
        7 * DAY_SECONDS,
        ge=0,
        le=CENTURY_SECONDS,
        alias="KEEP_SUCCEEDED_SECONDS",
        description="how long succeeded jobs are kept",
    )
    keep_canceled_seconds: float = Field(
        7 * DAY_SECONDS,
        ge=0,
        le=CENTURY_SECONDS,
        alias="KEEP_CANCELED_SECONDS",
        description="how long canceled jobs are kept",
    )
    keep_failed_seconds: float = Field(
        30 * DAY_SECONDS,
        ge=0,
        le=CENTURY_SECONDS,
        alias="KEEP_FAILED_SECONDS",
        description="how long failed jobs are kept",
    )
    keep_dead_seconds: float = Field(
        90 * DAY_SECONDS, ge=0, le=CENTURY_SECONDS, alias="KEEP_DEAD_SECONDS", description="how long dead jobs are kept"
    )

    @property
    def shortest_retention(self) -> timedelta:
        """No event younger than this can belong to a job that is gone."""
        return timedelta(
            seconds=min(
                self.keep_succeeded_seconds,
                self.keep_canceled_seconds,
                self.keep_failed_seconds,
                self.keep_dead_seconds,
            )
        )


class ReportSettings(_Group):
    """`report.export`: what may be run, and where its files go."""

    reports_file: Path | None = Field(
        None, alias="REPORTS", description="TOML file of reports and the sources they read"
    )
    artifact_store: str = Field(
        "",
        alias="ARTIFACT_STORE",
        description="directory or s3://bucket/prefix; none: artifacts/ in the data directory",
    )
    s3_endpoint: str = Field("", alias="S3_ENDPOINT", description="S3-compatible endpoint, where it is not AWS itself")
    s3_region: str = Field("us-east-1", alias="S3_REGION", description="S3 region")
    s3_access_key_id: str = Field("", alias="S3_ACCESS_KEY_ID", description="none: the environment's AWS credentials")
    s3_secret_access_key: str = Field("", alias="S3_SECRET_ACCESS_KEY", repr=False, description="secret of that key")
    s3_allow_http: bool = Field(False, alias="S3_ALLOW_HTTP", description="allow an endpoint without TLS")


class ProcessSettings(_Group):
    """The process itself."""

    processes: int = Field(
        1, ge=1, le=256, alias="PROCESSES", description="processes that serve, or work, under one parent"
    )
    data_dir: Path = Field(
        Path(".tenure"), alias="DATA_DIR", description="directory of the embedded database and of artifacts"
    )
    postgres_bin: Path | None = Field(
        None, alias="POSTGRES_BIN", description="PostgreSQL binaries for the embedded database; none: found by itself"
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", alias="LOG_LEVEL", description="least level that is logged"
    )
    log_format: Literal["text", "json"] = Field("text", alias="LOG_FORMAT", description="lines for people or programs")
    auto_migrate: bool = Field(
        True, alias="AUTO_MIGRATE", description="bring the schema up to date at start; false: refuse an old one"
    )


class ClientSettings(_Group):
    """The command line as a client of a service."""

    url: str = Field("http://127.0.0.1:8080", alias="URL", description="service that jobs, dead, retry, cancel ask")

    @field_validator("url")
    @classmethod
    def _http(cls, value: str) -> str:
        parts = urlsplit(value)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError("must be an http:// or https:// URL")
        _ = parts.port  # raises ValueError for what is none
        return value.rstrip("/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings of a process, in groups."""

    database: DatabaseSettings
    http: HttpSettings
    limits: LimitSettings
    jobs: JobSettings
    workers: WorkerSettings
    maintenance: MaintenanceSettings
    reports: ReportSettings
    process: ProcessSettings
    client: ClientSettings
    environment: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    """What the operator's own files may refer to (``url_env`` of a report's source); Tenure's variables are above."""


GROUPS: dict[str, type[_Group]] = {
    "database": DatabaseSettings,
    "http": HttpSettings,
    "limits": LimitSettings,
    "jobs": JobSettings,
    "workers": WorkerSettings,
    "maintenance": MaintenanceSettings,
    "reports": ReportSettings,
    "process": ProcessSettings,
    "client": ClientSettings,
}

READ_ELSEWHERE = frozenset({"TENURE_TEST_DATABASE_URL", "TENURE_QUEUE", "TENURE_KIND"})
"""Variables of the test suite and of workers that are scripts: no settings, and no mistakes either."""

GroupT = TypeVar("GroupT", bound=_Group)


def load(environment: Mapping[str, str], **overrides: Any) -> Settings:
    """Builds the settings. ``overrides`` are variables without their prefix (``HOST="::1"``), as the command line gives.

    Raises ConfigurationError that names every wrong variable, what it holds and what it may hold.
    """
    values: dict[str, Any] = {
        # An empty variable is as good as none: that is how compose files and shells pass on what is not set.
        name.removeprefix(PREFIX): value
        for name, value in environment.items()
        if name.startswith(PREFIX) and value
    }
    values |= {name: value for name, value in overrides.items() if value is not None}
    problems: list[str] = []
    groups: dict[str, Any] = {}
    for name, group in GROUPS.items():
        aliases = {one.alias for one in group.model_fields.values()}
        try:
            groups[name] = group.model_validate({key: value for key, value in values.items() if key in aliases})
        except ValidationError as error:
            problems += [
                f"{PREFIX}{problem['loc'][0]}={_shown(str(problem['loc'][0]), problem['input'])}: "
                + problem["msg"].removeprefix("Value error, ")
                for problem in error.errors()
            ]
    if problems:
        raise ConfigurationError("wrong settings:\n  " + "\n  ".join(problems) + "\n`tenure settings` lists them all.")
    return Settings(**groups, environment=dict(environment))


def unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """A sentence for each ``TENURE_…`` variable that is no setting, with the nearest that is.

    Not an error: Kubernetes puts variables of this form into every container beside a service called "tenure".
    """
    known = [PREFIX + str(one.alias) for _, _, one in fields()]
    sentences = []
    for name in sorted(environment):
        if not name.startswith(PREFIX) or name in known or name in READ_ELSEWHERE:
            continue
        near = process.extractOne(name, known, scorer=fuzz.ratio, score_cutoff=80)
        sentences.append(f"{name} is not a setting" + (f"; did you mean {near[0]}?" if near else " and is ignored"))
    return sentences


def fields() -> Iterator[tuple[str, str, FieldInfo]]:
    """Every setting in order: its group's name, its own name, and the field."""
    for group_name, group in GROUPS.items():
        for name, one in group.model_fields.items():
            yield group_name, name, one


def shown_value(name: str, value: Any) -> Any:
    """A setting's value as it may be shown: secrets, and URLs that may hold a password, are not."""
    if isinstance(value, tuple):
        value = ",".join(map(str, value))
    secret = any(word in name for word in ("SECRET", "ACCESS_KEY")) or ("URL" in name and "@" in str(value))
    return "[hidden]" if secret and value else value if isinstance(value, int | float) else str(value)


def _shown(name: str, value: Any) -> str:
    return "[hidden]" if any(word in name for word in ("SECRET", "KEY", "URL", "PASSWORD")) else repr(str(value))
