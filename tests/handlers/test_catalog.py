"""The reports file: what it may say, and what is said of it when it is wrong."""

from datetime import date
from pathlib import Path

import pytest

from tenure.errors import ConfigurationError
from tenure.handlers.reports.catalog import ParametersRefused, Report, ReportCatalog
from tenure.handlers.reports.parameters import POSTGRES_TYPES

SOURCE = '[sources.main]\nurl = "postgresql://reader:hush@db/orders"\n'
REPORT = SOURCE + '[reports.it]\nsource = "main"\nsql = "SELECT 1"\n'
EXAMPLES = Path(__file__).parents[2] / "examples" / "reports.toml"


def load(directory: Path, text: str, **environment: str) -> ReportCatalog:
    path = directory / "reports.toml"
    path.write_text(text, encoding="utf-8")
    return ReportCatalog.load(path, environment=environment)


def test_the_example_loads() -> None:
    catalog = ReportCatalog.load(EXAMPLES, environment={"ORDERS_DATABASE_URL": "postgresql://x/y"})
    assert set(catalog.reports) == {"orders", "revenue-by-month", "customer-orders"}


def test_a_source_takes_its_url_from_the_environment_it_is_given(tmp_path: Path) -> None:
    text = REPORT.replace('url = "postgresql://reader:hush@db/orders"', 'url_env = "ORDERS"')
    catalog = load(tmp_path, text, ORDERS="postgresql+asyncpg://elsewhere/orders")
    assert catalog.reports["it"].source.url == "postgresql://elsewhere/orders"
    with pytest.raises(ConfigurationError, match=r"sources\.main\.url_env: the environment has no ORDERS"):
        load(tmp_path, text)


def test_a_url_is_in_no_repr_and_no_error(tmp_path: Path) -> None:
    assert "hush" not in repr(load(tmp_path, REPORT))
    with pytest.raises(ConfigurationError) as caught:
        load(tmp_path, REPORT.replace("postgresql://", "mysql://"))
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[reports]\n\nx = nonsense", "is not TOML: .*line 3"),
        (REPORT + "sqll = 1", r"reports\.it\.sqll: there is no such setting; did you mean 'sql'"),
        (SOURCE + '[reports.it]\nsource = "main"', r"reports\.it\.sql: is missing"),
        (SOURCE + '[reports.it]\nsource = "mian"\nsql = "SELECT 1"', r"no source 'mian'; did you mean 'main'"),
        (SOURCE + '[reports."It is"]\nsource = "main"\nsql = "SELECT 1"', "a name has lower-case letters"),
        (REPORT + '[reports.it.parameters.x]\ntype = "text"', r"reports\.it\.parameters\.x: its SQL does not use :x"),
        (REPORT + '[reports.it.parameters.X]\ntype = "text"', r"reports\.it\.parameters\.X: a name has lower-case"),
        (
            REPORT + '[reports.it.parameters.x]\ntype = "dat"',
            r"reports\.it\.parameters\.x\.type: 'dat' is no type; did",
        ),
        (REPORT + '[reports.it.parameters.x]\ntyp = "date"', r"parameters\.x\.typ: there is no such setting; did you"),
        (REPORT + '[reports.it.parameters.x]\ntype = "enum"', r"reports\.it\.parameters\.x: type 'enum' needs choices"),
        (REPORT + 'count_sql = "SELECT :y"', r"reports\.it\.count_sql: line 1 of its SQL uses :y"),
        (REPORT.replace("SELECT 1", "DELETE FROM x"), r"reports\.it\.sql: its SQL must be one SELECT"),
        (REPORT + '[reports.it.columns]\nx = "numeric(50,2)"', r"reports\.it\.columns\.x: must be like 'numeric"),
        (REPORT + '[reports.it.columns]\nx = "numeric(2,5)"', r"reports\.it\.columns\.x: must be like 'numeric"),
        (SOURCE + 'url_env = "X"', "give either url or url_env"),
        ("[sources.main]", "give either url or url_env"),
        (SOURCE + "statement_timeout_seconds = 0", r"sources\.main\.statement_timeout_seconds: .*greater than 0"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        load(tmp_path, text)


def test_all_that_is_wrong_is_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(
            tmp_path,
            SOURCE + '[reports.a]\nsource = "x"\nsql = "DROP"\n[reports.b]\nsource = "main"\nsql = "SELECT :c"',
        )
    assert str(caught.value).count("\n") == 3


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"missing\.toml cannot be read: No such file"):
        ReportCatalog.load(tmp_path / "missing.toml", environment={})


@pytest.fixture
def report(tmp_path: Path) -> Report:
    return load(
        tmp_path,
        SOURCE
        + """
        [reports.it]
        source = "main"
        sql = "SELECT :since, :until, :status"
        [reports.it.parameters]
        since = { type = "date" }
        until = { type = "date", required = false }
        status = { type = "enum", choices = ["paid"], default = "paid" }
        """,
    ).reports["it"]


def test_defaults_and_nulls_stand_in_for_what_is_left_out(report: Report) -> None:
    since = date(2025, 1, 1)
    assert report.read_parameters({"since": "2025-01-01"}) == {"since": since, "until": None, "status": "paid"}
    given = {"since": "2025-01-01", "until": None, "status": None}
    assert report.read_parameters(given) == {"since": since, "until": None, "status": None}


def test_every_wrong_parameter_is_named(report: Report) -> None:
    with pytest.raises(ParametersRefused) as caught:
        report.read_parameters({"sinse": "2025-01-01", "until": 5})
    problems = dict(caught.value.problems)
    assert problems.keys() == {("sinse",), ("since",), ("until",)}
    assert "did you mean 'since'" in problems["sinse",]
    assert "is required" in problems["since",]


def test_the_documented_example_loads_and_the_documented_types_are_all_there_are(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "exports.md").read_text(encoding="utf-8")
    example = page.partition("```toml\n")[2].partition("```")[0]
    assert set(load(tmp_path, example, ORDERS_DATABASE_URL="postgresql://x/y").reports) == {"orders"}
    table = page.partition("### Parameters")[2].partition("A parameter is required")[0]
    assert {name for name in POSTGRES_TYPES if f"| `{name}` |" in table} == set(POSTGRES_TYPES)
