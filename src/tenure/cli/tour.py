"""The tour by curl, with the service's real address: every line can be pasted as it is."""

_STOPS: tuple[tuple[str, str], ...] = (
    (
        "Enqueue a job",
        "curl -s {url}/jobs -H 'Content-Type: application/json'"
        """ -d '{{"kind": "demo.sleep", "payload": {{"duration_ms": 5000}}}}'""",
    ),
    ("See what there is", "curl -s '{url}/jobs?limit=5'"),
    (
        "Wait for one to finish",
        "curl -s {url}/jobs -H 'Content-Type: application/json' -H 'Prefer: wait=20'"
        """ -d '{{"kind": "demo.sleep", "payload": {{"duration_ms": 500}}}}'""",
    ),
    (
        "Let one die, and look at it",
        "curl -s {url}/jobs -H 'Content-Type: application/json' -H 'Prefer: wait=20'"
        """ -d '{{"kind": "demo.sleep", "max_attempts": 1, "payload": {{"duration_ms": 10, "fail": true}}}}';"""
        " curl -s {url}/dead",
    ),
    ("Retry it, with its id", "curl -s -X POST {url}/jobs/ID/retry"),
    ("Cancel one, with its id, and wait for the receipt", "curl -s -X POST {url}/jobs/ID/cancel -H 'Prefer: wait=10'"),
    ("Watch one as it goes", "curl -sN {url}/jobs/ID/events -H 'Accept: text/event-stream'"),
)


def tour(url: str) -> str:
    """The stops, each a comment and a line to paste."""
    lines = [f"[dim]# {title}[/dim]\n{line.format(url=url)}" for title, line in _STOPS]
    return "\n" + "\n\n".join(lines) + "\n"
