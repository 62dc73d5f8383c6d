"""The statements themselves: what tables split over many nodes ask of them, and what the state machine does."""

import importlib
import pkgutil
import re

import pytest

import tenure.store
from tenure.jobs.lifecycle import EventType, sources_of
from tenure.store import prune

FORBIDDEN = ("clock_timestamp", "random(", "nextval", "MERGE", "gen_random_uuid", "CREATE TRIGGER")

STATEMENTS = {
    f"{module.name}.{name}": value
    for module in pkgutil.iter_modules(tenure.store.__path__)
    for name, value in vars(importlib.import_module(f"tenure.store.{module.name}")).items()
    if name.isupper() and isinstance(value, str) and re.search(r"tenure\.(jobs|events|artifacts)\b", value)
} | {f"prune.{state}": statement for state, statement in prune._STATEMENTS.items()}


def test_there_are_statements_to_judge() -> None:
    assert len(STATEMENTS) > 15


@pytest.mark.parametrize("name", STATEMENTS)
def test_every_table_that_hangs_on_a_job_is_met_within_one_part(name: str) -> None:
    statement = STATEMENTS[name]
    for table, alias in re.findall(r"(?:FROM|JOIN|UPDATE|USING) tenure\.(jobs|events|artifacts) AS (\w+)", statement):
        by_part = re.search(rf"\b{alias}\.part = (\$\d|\w+\.part)|\w+\.part = {alias}\.part|USING \(part, ", statement)
        assert by_part, f"{table} AS {alias} is not bound to a part"


@pytest.mark.parametrize("name", STATEMENTS)
def test_nothing_is_used_that_distributed_tables_refuse(name: str) -> None:
    for word in FORBIDDEN:
        assert word not in STATEMENTS[name]
    # NOTIFY inside a transition's transaction would serialise all commits of the server.
    assert "pg_notify" not in STATEMENTS[name]


@pytest.mark.parametrize("name", STATEMENTS)
def test_rows_to_be_taken_are_never_chosen_inside_in(name: str) -> None:
    assert not re.search(r"\bIN \(\s*SELECT", STATEMENTS[name])


@pytest.mark.parametrize(
    ("name", "event"),
    [
        ("claim._CLAIM", EventType.LEASED),
        ("settle._COMPLETE", EventType.SUCCEEDED),
        ("reap._EXPIRED", EventType.LEASE_EXPIRED),
    ],
)
def test_a_statement_that_writes_a_state_by_itself_guards_the_states_of_the_table(name: str, event: EventType) -> None:
    guards = set(re.findall(r"\bj\.state = '(\w+)'", STATEMENTS[name]))
    assert guards == {str(state) for state in sources_of(event)}
