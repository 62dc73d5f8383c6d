"""What a conversation with the service is made of. Here is no I/O: the faces carry the steps out.

An operation is a generator (a *talk*): it yields steps, is sent what came of each, and returns its result. So the rules
of what is sent, read and repeated stand once, for callers that block and for those that await.
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """Send a request. Heard: its Reply, or the Failure. ``timeout_seconds`` bounds each silence, not the whole.

    ``stream``: a successful answer's body stays unread, and is heard by `More`.
    """

    method: str
    path: str
    timeout_seconds: float
    params: Sequence[tuple[str, str]] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None
    stream: bool = False


@dataclass(frozen=True, slots=True)
class More:
    """Read on in the streamed answer. Heard: its next bytes, None at its end, or the Failure."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Do nothing for that long. Heard: nothing."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Found(Generic[T]):
    """Hand this to the caller, who may take his time. Heard: nothing."""

    item: T


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer that came whole (or whose head came, of a stream). Names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """No answer. ``sent``: the service may have got the request. ``passing``: it may be better the next time."""

    words: str
    sent: bool
    passing: bool = True


Heard: TypeAlias = Reply | Failure | bytes | None
Step: TypeAlias = Send | More | Pause | Found[Any]
Talk: TypeAlias = Generator[Step, Heard, T]
Telling: TypeAlias = Generator[Send | More | Pause | Found[T], Heard, None]
"""A talk that hands out items on its way."""
