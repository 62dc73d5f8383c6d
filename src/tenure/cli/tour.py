"""The tour by curl, with the service's real address: every line can be pasted as it is, from the first to the last."""

from rich.markup import escape

_JSON = "-H 'Content-Type: application/json'"
_ID = """python3 -c 'import json,sys; print(json.load(sys.stdin)["id"])'"""

_STOPS: tuple[tuple[str, str], ...] = (
    (
        "Enqueue a job; ID is its id",
        f"""ID=$(curl -s URL/jobs {_JSON} -d '{{"kind": "demo.sleep", "payload": {{"duration_ms": 3000}}}}' | {_ID})""",
    ),
    (
        "Watch it as it goes; the stream ends with the job",
        "curl -sN URL/jobs/$ID/events -H 'Accept: text/event-stream'",
    ),
    (
        "Wait for a result in the request itself",
        f"""curl -s URL/jobs {_JSON} -H 'Prefer: wait=20' -d '{{"kind": "demo.sleep", "payload": {{"duration_ms": 500}}}}'""",
    ),
    ("See what there is", "curl -s 'URL/jobs?limit=5'"),
    (
        "Let one die",
        f"""DEAD=$(curl -s URL/jobs {_JSON} -H 'Prefer: wait=20' -d '{{"kind": "demo.sleep", "max_attempts": 1, """
        f""""payload": {{"duration_ms": 10, "fail": true, "fail_times": 1}}}}' | {_ID})""",
    ),
    ("Look at the dead, and at what killed each", "curl -s URL/dead"),
    (
        "Retry it: this time it succeeds",
        "curl -s -X POST URL/jobs/$DEAD/retry; curl -s URL/jobs/$DEAD -H 'Prefer: wait=20'",
    ),
    (
        "Start a long one",
        f"""LONG=$(curl -s URL/jobs {_JSON} -d '{{"kind": "demo.sleep", "payload": {{"duration_ms": 60000}}}}' | {_ID})""",
    ),
    ("Cancel it, and wait for the receipt", "curl -s -X POST URL/jobs/$LONG/cancel -H 'Prefer: wait=10'"),
)


def tour(url: str) -> str:
    """The stops, each a comment and a line to paste; markup for a console."""
    stops = [f"[dim]# {title}[/dim]\n{escape(line.replace('URL', url))}" for title, line in _STOPS]
    return "\n" + "\n\n".join(stops) + "\n"
