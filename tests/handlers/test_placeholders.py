"""How a report's SQL is compiled."""

import pytest

from tenure.handlers.reports.placeholders import SqlProblem, compile_sql

TYPES = {"a": "text", "b": "bigint", "since": "date"}


@pytest.mark.parametrize(
    ("sql", "compiled", "names"),
    [
        ("SELECT :a", "SELECT CAST($1 AS text)", ("a",)),
        ("select :b, :a, :b", "select CAST($1 AS bigint), CAST($2 AS text), CAST($1 AS bigint)", ("b", "a")),
        ("SELECT x::text, :a::text", "SELECT x::text, CAST($1 AS text)::text", ("a",)),
        ("SELECT ':a', E'\\':a', 'it''s :a'", "SELECT ':a', E'\\':a', 'it''s :a'", ()),
        ('SELECT ":a", "say "":a"""', 'SELECT ":a", "say "":a"""', ()),
        ("SELECT $$ :a $$, $t$ $$ :a $t$", "SELECT $$ :a $$, $t$ $$ :a $t$", ()),
        ("SELECT 1 -- :a ; '\n, :a", "SELECT 1  \n, CAST($1 AS text)", ("a",)),
        ("SELECT 1 /* :a /* nested ; */ ' */, :a", "SELECT 1  , CAST($1 AS text)", ("a",)),
        ("SELECT items[1:2], items[b : c]", "SELECT items[1:2], items[b : c]", ()),
        ("SELECT f(x := 1)", "SELECT f(x := 1)", ()),
        ("SELECT a$b$c, :a", "SELECT a$b$c, CAST($1 AS text)", ("a",)),
        ("  WITH x AS (SELECT 1) TABLE x ;\n-- the end\n", "WITH x AS (SELECT 1) TABLE x", ()),
        ("(SELECT 1) UNION (SELECT 2)", "(SELECT 1) UNION (SELECT 2)", ()),
        ("VALUES (:since)", "VALUES (CAST($1 AS date))", ("since",)),
        ("SELECT 'C:\\', :a", "SELECT 'C:\\', CAST($1 AS text)", ("a",)),
        ("SELECT tabelle.größe, :a", "SELECT tabelle.größe, CAST($1 AS text)", ("a",)),
    ],
)
def test_names_become_typed_positions_and_nothing_else_changes(sql: str, compiled: str, names: tuple[str, ...]) -> None:
    found = compile_sql(sql, TYPES)
    assert (found.sql.rstrip(), found.names) == (compiled, names)


@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        ("SELECT\n:unknown", "line 2 of its SQL uses :unknown"),
        ("SELECT 1; SELECT 2", "line 1 of its SQL begins a second statement"),
        ("SELECT 1;\n\nDROP TABLE x", "line 3 of its SQL begins a second statement"),
        ("SELECT 1;;", "second statement"),
        ("SELECT $1", r"\$1: parameters are written :name"),
        ("SELECT 'open", "line 1 of its SQL opens ' and never closes it"),
        ('SELECT 1,\n"open', 'line 2 of its SQL opens " and never closes it'),
        ("SELECT $x$ open $y$", r"opens \$x\$ and never closes it"),
        ("SELECT /* /* open */", "opens a comment and never closes it"),
        ("DELETE FROM x", "must be one SELECT"),
        ("COMMIT", "must be one SELECT"),
        ("", "must be one SELECT"),
        ("-- nothing", "must be one SELECT"),
        ("EXPLAIN ANALYZE SELECT 1", "must be one SELECT"),
    ],
)
def test_what_is_not_one_reading_statement_is_refused(sql: str, problem: str) -> None:
    with pytest.raises(SqlProblem, match=problem):
        compile_sql(sql, TYPES)
