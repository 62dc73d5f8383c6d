"""Compiles a report's SQL once, at load: ``:name`` becomes ``CAST($n AS type)``, and nothing else is ever put into it.

The scanner knows enough of PostgreSQL's lexical rules to tell a placeholder from a colon within a literal, a quoted
name, a dollar-quoted text, a comment or a cast (``::``), and to see where a second statement would begin.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""
      (?P<comment>      --[^\n]* | /\* )
    | (?P<escape>       [eE]'(?:[^'\\]|\\.|'')*' )
    | (?P<literal>      '(?:[^']|'')*' )
    | (?P<quoted>       "(?:[^"]|"")*" )
    | (?P<dollar>       \$(?P<tag>[A-Za-z_\x80-\uffff][A-Za-z0-9_\x80-\uffff]*)?\$ )
    | (?P<positional>   \$[0-9]+ )
    | (?P<word>         [A-Za-z_\x80-\uffff][A-Za-z0-9_$\x80-\uffff]* )
    | (?P<number>       [0-9][0-9A-Za-z_.]* )
    | (?P<operator>     ::|:= )
    | (?P<placeholder>  :(?P<name>[A-Za-z_][A-Za-z0-9_]*) )
    | (?P<end>          ; )
    | (?P<unclosed>     ['"] )
    | (?P<other>        . )
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT_MARK = re.compile(r"/\*|\*/")
_READS = frozenset({"select", "with", "values", "table"})


class SqlProblem(ValueError):
    """Something in a report's SQL that cannot be compiled; the message names the line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledSql:
    """SQL with positional parameters; ``names[n - 1]`` is what ``$n`` is bound to."""

    sql: str
    names: tuple[str, ...]


def compile_sql(sql: str, types: Mapping[str, str]) -> CompiledSql:
    """Compiles one reading statement. ``types`` gives each parameter's PostgreSQL type.

    Raises SqlProblem for an unknown placeholder, a second statement, ``$n``, anything unclosed, and what does not read.
    """
    names: list[str] = []
    parts: list[str] = []
    first_word = ""
    ended = False
    for kind, text, line in _tokens(sql):
        if kind in {"comment", "space"}:
            parts.append(" " if kind == "comment" else text)
            continue
        if ended:
            raise SqlProblem(f"line {line} of its SQL begins a second statement: a report is one statement")
        if kind == "end":
            ended = True
        elif kind == "positional":
            raise SqlProblem(f"line {line} of its SQL has {text}: parameters are written :name")
        elif kind == "placeholder":
            name = text[1:]
            if name not in types:
                raise SqlProblem(
                    f"line {line} of its SQL uses :{name}, which is not one of its parameters"
                    " (in an array slice, put a space after the colon)"
                )
            if name not in names:
                names.append(name)
            # The cast gives NULL and lists their type, and makes the placeholder stand anywhere an expression may.
            parts.append(f"CAST(${names.index(name) + 1} AS {types[name]})")
        else:
            parts.append(text)
            if not first_word and text != "(":
                first_word = text.lower()
    if first_word not in _READS:
        raise SqlProblem("its SQL must be one SELECT (or WITH, VALUES, TABLE)")
    return CompiledSql(sql="".join(parts).strip(), names=tuple(names))


def _tokens(sql: str) -> Iterator[tuple[str, str, int]]:
    position, line = 0, 1
    while position < len(sql):
        match = _TOKEN.match(sql, position)
        assert match is not None, "`other` matches any character"
        kind, end = str(match.lastgroup), match.end()
        if kind == "dollar":
            end = _end_of_dollar_quote(sql, match, line)
            kind = "literal"
        elif kind == "comment" and match[0] == "/*":
            end = _end_of_comment(sql, match.end(), line)
        elif kind == "unclosed":
            raise SqlProblem(f"line {line} of its SQL opens {match[0]} and never closes it")
        elif kind == "other" and match[0].isspace():
            kind = "space"
        text = sql[position:end]
        yield kind, text, line
        line += text.count("\n")
        position = end


def _end_of_dollar_quote(sql: str, opening: re.Match[str], line: int) -> int:
    found = sql.find(opening[0], opening.end())
    if found < 0:
        raise SqlProblem(f"line {line} of its SQL opens {opening[0]} and never closes it")
    return found + len(opening[0])


def _end_of_comment(sql: str, position: int, line: int) -> int:
    """PostgreSQL's comments nest."""
    depth = 1
    for mark in _COMMENT_MARK.finditer(sql, position):
        depth += 1 if mark[0] == "/*" else -1
        if depth == 0:
            return mark.end()
    raise SqlProblem(f"line {line} of its SQL opens a comment and never closes it")
