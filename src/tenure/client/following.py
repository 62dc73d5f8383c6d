"""What comes piece by piece: a job's live events, and the bytes of an artifact. Both go on where they broke off."""

from collections.abc import Generator, Sequence
from uuid import UUID

from pydantic import ValidationError

from tenure.client.operations import artifact_path, job_path, read
from tenure.client.rules import Rules, ServiceUnreachable, Trouble, judge, not_tenure
from tenure.client.steps import Failure, Found, Heard, More, Pause, Reply, Send, Step, Telling
from tenure.errors import TenureError
from tenure.jobs.model import TERMINAL_STATES
from tenure.wire import json
from tenure.wire.jobs import Event, Job, Progress

_QUIET_SECONDS = 45.0
"""The service sends a comment at least every fifteen seconds: three missed ones mean that the connection is dead."""


def follow(rules: Rules, job_id: str | UUID) -> Telling[Event | Progress]:
    """Events as they happen, each once and in order, and progress between them, until the job has finished."""
    seen = 0
    patience = _Patience(rules)
    path = job_path(job_id)
    while True:
        lines = _Lines()
        headers = {"Accept": "text/event-stream", **({"Last-Event-ID": str(seen)} if seen else {})}
        reply = yield from _opened(f"{path}/events", headers, rules)
        trouble: Trouble | None
        if isinstance(reply, Trouble):
            trouble = reply
        elif reply.status != 204 and not reply.headers.get("content-type", "").startswith("text/event-stream"):
            raise not_tenure(reply, rules)
        else:
            trouble = None
            while reply.status != 204 and (data := (yield More())) is not None:
                if isinstance(data, Failure):
                    trouble = _broken(data)
                    break
                assert isinstance(data, bytes)
                patience.renew()
                for kind, text in lines.of(data):
                    item = _item(kind, text, reply, rules)
                    seen = item.version if isinstance(item, Event) else seen
                    yield Found(item)
                    patience.renew()  # the caller may have taken his time
        if trouble is None:
            # The stream ends when the job has finished, and when the service stops: only the job itself can tell.
            asked = yield Send(method="GET", path=path, timeout_seconds=rules.timeout_seconds)
            judged = judge(asked, rules)
            if isinstance(judged, Reply):
                job = read(Job, judged, rules)
                if job.state in TERMINAL_STATES and job.version <= seen:
                    return
                trouble = _again(rules)
            else:
                trouble = judged
        yield Pause(patience.pause(trouble))


def download(rules: Rules, job_id: str | UUID, name: str) -> Telling[bytes]:
    """An artifact's bytes. After a break it asks for the rest, of the very same content."""
    patience = _Patience(rules)
    path = artifact_path(job_id, name)
    had, tag = 0, ""
    while True:
        headers = {"Accept-Encoding": "identity"}
        if had:
            headers |= {"Range": f"bytes={had}-", "If-Range": tag}
        reply = yield from _opened(path, headers, rules)
        trouble: Trouble
        if isinstance(reply, Trouble):
            trouble = reply
        elif had and reply.status != 206:
            raise ServiceUnreachable(f"{name!r} broke off after {had:,} bytes, and the rest cannot be had: start again")
        else:
            tag = reply.headers.get("etag", "")
            while (data := (yield More())) is not None:
                if isinstance(data, Failure):
                    trouble = _broken(data)
                    break
                assert isinstance(data, bytes)
                had += len(data)
                yield Found(data)
                patience.renew()
            else:
                return
            if not tag:
                raise trouble.error
        yield Pause(patience.pause(trouble))


class _Patience:
    """How long trouble is borne: a call's budget until the first bytes came, then the patience of a stream."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._good_at = rules.clock()
        self._begun = False
        self._tries = 0

    def renew(self) -> None:
        self._good_at = self._rules.clock()
        self._begun = True
        self._tries = 0

    def pause(self, trouble: Trouble) -> float:
        """Seconds until the next try. Raises the trouble's error when there is none."""
        rules = self._rules
        self._tries += 1
        bears = rules.patience_seconds if self._begun else rules.retry_for_seconds
        seconds = rules.pause(self._tries, trouble, until=self._good_at + bears) if trouble.passing else None
        if seconds is None:
            raise trouble.error
        return seconds


def _opened(path: str, headers: dict[str, str], rules: Rules) -> Generator[Step, Heard, Reply | Trouble]:
    send = Send(method="GET", path=path, headers=headers, timeout_seconds=_QUIET_SECONDS, stream=True)
    return judge((yield send), rules, streamed=True)


def _broken(failure: Failure) -> Trouble:
    return Trouble(error=ServiceUnreachable(failure.words), passing=True)


def _again(rules: Rules) -> Trouble:
    return Trouble(error=ServiceUnreachable(f"{rules.url} ends the stream of events again and again"), passing=True)


def _item(kind: str, text: str, reply: Reply, rules: Rules) -> Event | Progress:
    try:
        value = json.parse(text)
        return Progress.model_validate(value) if kind == "progress" else Event.model_validate(value)
    except (ValidationError, TenureError):
        raise not_tenure(reply, rules) from None


class _Lines:
    """Server-sent events out of bytes. Lines end by LF alone: texts may hold what Unicode takes for the end of a line."""

    def __init__(self) -> None:
        self._rest = b""
        self._fields: dict[str, str] = {}

    def of(self, data: bytes) -> Sequence[tuple[str, str]]:
        """The events that these bytes make whole: type and data."""
        found: list[tuple[str, str]] = []
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            name, _, value = line.decode("utf-8", "replace").partition(":")
            if not line and "data" in self._fields:
                found.append((self._fields.get("event", "message"), self._fields["data"]))
            if not line:
                self._fields = {}
            elif name in {"event", "data"}:
                self._fields[name] = value.removeprefix(" ")
        return found
