"""What there is to know without a service: settings, the API's description, where the database is."""

import os

from rich.markup import escape
from rich.table import Table

from tenure import __version__
from tenure.api.app import openapi_document
from tenure.cli.asking import JsonOption
from tenure.cli.configured import configured
from tenure.cli.output import out, print_json
from tenure.errors import DatabaseUnavailable
from tenure.server import embedded_postgres
from tenure.settings import PREFIX, fields, load, shown_value


def settings(json: JsonOption = False) -> None:
    """List every setting: its variable, default, value now, and what it is for."""
    current = configured()
    rows = [
        {
            "variable": PREFIX + str(field.alias),
            "default": shown_value(str(field.alias), field.default),
            "value": shown_value(str(field.alias), getattr(getattr(current, group), name)),
            "group": group,
            "description": field.description,
        }
        for group, name, field in fields()
    ]
    if json:
        print_json({"items": rows})
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("variable", "value", "description"):
        table.add_column(column, no_wrap=column == "variable")
    for row in rows:
        changed = row["value"] != row["default"]
        value = escape(str(row["value"]))
        table.add_row(
            str(row["variable"]), f"[bold]{value}[/bold]" if changed else value, escape(str(row["description"]))
        )
    out.print(table, soft_wrap=False)


def openapi() -> None:
    """Print the API's OpenAPI 3.1 document."""
    print_json(openapi_document())


def database_url() -> None:
    """Print the URL of the database in use (with its password: mind where it goes)."""
    current = load(os.environ)
    if current.database.url:
        print(current.database.url)  # noqa: T201 - for $(…)
        return
    server = embedded_postgres(current)
    if server.postmaster_pid is None:
        raise DatabaseUnavailable(
            f"the embedded PostgreSQL in {server.root} is not running, and is reached only while a service uses it: "
            "start one here with `tenure serve`, or set TENURE_DATABASE_URL"
        )
    with server:  # joins the one that runs, for as long as it takes to ask
        print(server.url())  # noqa: T201 - for $(…)


def version() -> None:
    """Print the version."""
    print(__version__)  # noqa: T201 - for $(…)
