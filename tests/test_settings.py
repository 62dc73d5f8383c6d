"""Settings: what holds when nothing is set, what is refused and how, and what is never shown."""

import re
from pathlib import Path
from typing import Any

import pytest

from tenure.errors import ConfigurationError
from tenure.settings import fields, load, shown_value, unknown_variables

DAY = 86_400
SECRET = "geheim"


def all_names() -> list[str]:
    return [f"TENURE_{field.alias}" for _, _, field in fields()]


def test_without_variables_the_promised_defaults_hold() -> None:
    settings = load({})
    jobs, workers, maintenance = settings.jobs, settings.workers, settings.maintenance
    assert (jobs.lease_seconds, jobs.max_attempts) == (30, 3)
    assert (jobs.backoff_base_seconds, jobs.backoff_factor, jobs.backoff_cap_seconds) == (1, 2, 600)
    assert (workers.slots, workers.shutdown_grace_seconds, settings.http.readiness_delay_seconds) == (10, 25, 0)
    assert maintenance.reap_seconds == 1
    assert (maintenance.keep_succeeded_seconds, maintenance.keep_canceled_seconds) == (7 * DAY, 7 * DAY)
    assert (maintenance.keep_failed_seconds, maintenance.keep_dead_seconds) == (30 * DAY, 90 * DAY)
    assert (settings.http.host, settings.http.port) == ("127.0.0.1", 8080)
    assert settings.process.data_dir == Path(".tenure")
    assert (settings.limits.payload_bytes, settings.limits.result_bytes) == (1_048_576, 1_048_576)
    assert settings.database.url == ""


def test_every_variable_is_one_of_its_own_and_is_described() -> None:
    assert len(set(all_names())) == len(all_names())
    for _, _, field in fields():
        assert re.fullmatch(r"[A-Z0-9_]+", str(field.alias))
        assert field.description


def test_an_empty_variable_is_as_good_as_none() -> None:
    assert load(dict.fromkeys(all_names(), "")) == load({})


def test_a_variable_sets_its_field_and_nothing_else() -> None:
    plain, changed = load({}), load({"TENURE_PORT": "9000", "PORT": "1", "OTHER_TENURE_PORT": "2"})
    assert changed.http.port == 9000
    assert changed.http.model_copy(update={"port": plain.http.port}) == plain.http
    assert changed.jobs == plain.jobs


def test_the_command_line_overrides_the_environment_where_it_says_something() -> None:
    environment = {"TENURE_HOST": "::1", "TENURE_PORT": "9000"}
    settings = load(environment, HOST="127.0.0.2", PORT=None)
    assert (settings.http.host, settings.http.port) == ("127.0.0.2", 9000)


def test_every_wrong_variable_is_named_at_once() -> None:
    wrong = {
        "TENURE_PORT": "http",
        "TENURE_LEASE_SECONDS": "0",
        "TENURE_MAX_ATTEMPTS": "1.5",
        "TENURE_LOG_LEVEL": "loud",
        "TENURE_DATABASE_URL": "mysql://here/db",
        "TENURE_DATABASE_SCHEMA": 'drop "it"',
        "TENURE_AUTO_MIGRATE": "perhaps",
        "TENURE_URL": "ftp://queue",
        "TENURE_WORKER_SLOTS": "nan",
    }
    with pytest.raises(ConfigurationError) as caught:
        load({**wrong, "TENURE_HOST": "127.0.0.1"})
    for name in wrong:
        assert f"{name}=" in str(caught.value)
    assert "TENURE_HOST" not in str(caught.value)
    assert "`tenure settings` lists them all" in str(caught.value)
    assert "Value error" not in str(caught.value)


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e999", "1e300", "-1", "thirty"])
@pytest.mark.parametrize(
    "name", [f"TENURE_{field.alias}" for _, _, field in fields() if field.annotation in (int, float)]
)
def test_no_number_takes_what_is_none(name: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=name):
        load({name: value})


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("postgresql://me@here/db", "postgresql://me@here/db"),
        ("postgres://me@here/db", "postgres://me@here/db"),
        ("postgresql+asyncpg://me@here/db", "postgresql://me@here/db"),
        ("postgres+asyncpg://me@here/db?x=1", "postgresql://me@here/db?x=1"),
        ("postgresql:///db?host=/run/pg", "postgresql:///db?host=/run/pg"),
    ],
)
def test_sqlalchemys_spelling_of_a_url_is_understood(given: str, used: str) -> None:
    assert load({"TENURE_DATABASE_URL": given}).database.url == used


@pytest.mark.parametrize("url", ["here/db", "mysql://here/db", "http://here", "sqlite://", "POSTGRES"])
def test_another_kind_of_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="must be a postgresql:// URL"):
        load({"TENURE_DATABASE_URL": url})


@pytest.mark.parametrize("url", ["http://here:99999", "http://", "here:8080", "ftp://here", "http://[x"])
def test_an_address_of_a_service_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="TENURE_URL"):
        load({"TENURE_URL": url})


def test_an_address_of_a_service_needs_no_slash() -> None:
    assert load({"TENURE_URL": "http://here:80/"}).client.url == "http://here:80"


def test_queues_are_listed_by_commas() -> None:
    assert load({"TENURE_WORKER_QUEUES": "a, b,,c "}).workers.queues == ("a", "b", "c")


def test_no_error_shows_a_secret() -> None:
    wrong: dict[str, Any] = {
        "TENURE_DATABASE_URL": f"mysql://me:{SECRET}@here/db",
        "TENURE_URL": f"ftp://me:{SECRET}@here",
        "TENURE_PORT": "x",
    }
    with pytest.raises(ConfigurationError) as caught:
        load(wrong)
    assert SECRET not in str(caught.value)
    assert SECRET not in repr(caught.value.__cause__)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DATABASE_URL", f"postgresql://me:{SECRET}@here/db"),
        ("URL", f"http://me:{SECRET}@here"),
        ("S3_ENDPOINT_URL", f"http://me:{SECRET}@here"),
        ("S3_SECRET_ACCESS_KEY", SECRET),
        ("S3_ACCESS_KEY_ID", SECRET),
    ],
)
def test_a_secret_is_not_shown(name: str, value: str) -> None:
    assert shown_value(name, value) == "[hidden]"


def test_what_is_no_secret_is_shown() -> None:
    assert shown_value("URL", "http://here:80") == "http://here:80"
    assert shown_value("S3_SECRET_ACCESS_KEY", "") == ""
    assert shown_value("PORT", 8080) == 8080
    assert shown_value("WORKER_QUEUES", ("a", "b")) == "a,b"


def test_settings_do_not_show_the_s3_secret_when_printed() -> None:
    settings = load({"TENURE_S3_SECRET_ACCESS_KEY": SECRET, "MY_PASSWORD": "other"})
    assert SECRET not in repr(settings)
    assert "other" not in repr(settings)
    assert settings.environment["MY_PASSWORD"] == "other"


def test_settings_cannot_be_changed() -> None:
    settings = load({})
    with pytest.raises(ValueError, match="frozen"):
        settings.http.port = 1  # type: ignore[misc]


def test_an_unknown_variable_is_pointed_out_with_the_nearest() -> None:
    said = unknown_variables({"TENURE_PROT": "1", "TENURE_PORT": "1", "TENURE_WHATEVER_ELSE_THERE_IS": "", "PATH": ""})
    assert said == [
        "TENURE_PROT is not a setting; did you mean TENURE_PORT?",
        "TENURE_WHATEVER_ELSE_THERE_IS is not a setting and is ignored",
    ]


def test_the_test_suites_own_variable_is_no_mistake() -> None:
    assert unknown_variables({"TENURE_TEST_DATABASE_URL": "postgresql://here"}) == []
