"""Figures as tables: for the terminal, and as Markdown for the documentation."""

from collections.abc import Iterable, Mapping, Sequence

from rich.table import Table

from benchmarks.results import Figure, Row, Summary, advantage, summaries
from benchmarks.subjects import SUBJECTS, TENURE

MARK = "*"
"""Stands behind a figure that has a note."""


def number(value: float) -> str:
    """As many digits as mean something."""
    if abs(value) >= 1_000:
        return f"{float(f'{value:.3g}'):,.0f}"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def spread(summary: Summary) -> str:
    """Lowest and highest, where there were several rounds."""
    return f"{number(summary.low)}–{number(summary.high)}" if summary.rounds > 1 else ""


def subjects_of(rows: Mapping[Row, Mapping[str, Summary]]) -> list[str]:
    """Tenure first, then the others in their usual order."""
    measured = {subject for by_subject in rows.values() for subject in by_subject}
    return [name for name in SUBJECTS if name in measured]


def _own(summary: Summary) -> str:
    return f"{number(summary.median)}{MARK if summary.note else ''}"


def _beside(summary: Summary, tenure: Summary | None) -> str:
    ratio = advantage(tenure, summary) if tenure is not None else None
    return _own(summary) + (f" ({ratio:.2f}×)" if ratio is not None else "")


def _cells(by_subject: Mapping[str, Summary], subjects: Sequence[str]) -> list[str]:
    tenure = by_subject.get(TENURE)
    cells = []
    for name in subjects:
        summary = by_subject.get(name)
        if summary is None:
            cells.append("")
        elif name == TENURE:
            cells.append(" ".join(filter(None, [_own(summary), f"[{spread(summary)}]" if spread(summary) else ""])))
        else:
            cells.append(_beside(summary, tenure))
    return cells


def _labels(row: Row, by_subject: Mapping[str, Summary]) -> list[str]:
    mode, case, metric = row
    any_summary = next(iter(by_subject.values()))
    return [mode, case, f"{metric}, {any_summary.unit}" if metric != "rate" else any_summary.unit]


def markdown(figures: Iterable[Figure]) -> str:
    """One table: a line a metric, a column a subject."""
    rows = summaries(figures)
    subjects = subjects_of(rows)
    heads = ["mode", "case", "figure", *(SUBJECTS[name].title for name in subjects)]
    lines = ["| " + " | ".join(heads) + " |", "|---|---|---|" + "---:|" * len(subjects)]
    for row, by_subject in rows.items():
        lines.append("| " + " | ".join([*_labels(row, by_subject), *_cells(by_subject, subjects)]) + " |")
    return "\n".join(lines) + "\n\n" + _legend(rows) + "\n"


def _legend(rows: Mapping[Row, Mapping[str, Summary]]) -> str:
    rounds = max((one.rounds for by_subject in rows.values() for one in by_subject.values()), default=1)
    legend = (
        f"Medians of up to {rounds} rounds; Tenure's with lowest–highest. (2.00×): Tenure is twice as good as that one in "
        "this figure, whichever way it should go."
    )
    notes = {one.note for by_subject in rows.values() for one in by_subject.values() if one.note}
    return legend + (f" {MARK}: {'; '.join(sorted(notes))}." if notes else "")


def terminal(figures: Iterable[Figure], *, title: str) -> Table:
    """The same for a person at a terminal."""
    rows = summaries(figures)
    subjects = subjects_of(rows)
    table = Table(title=title, caption=_legend(rows), caption_justify="left")
    for head in ("mode", "case", "figure"):
        table.add_column(head)
    for name in subjects:
        table.add_column(SUBJECTS[name].title, justify="right")
    for row, by_subject in rows.items():
        table.add_row(*_labels(row, by_subject), *(cell.replace("[", "\\[") for cell in _cells(by_subject, subjects)))
    return table
