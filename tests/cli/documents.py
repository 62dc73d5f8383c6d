"""The client with answers as JSON values: what the command line prints can be compared with them."""

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from tenure import client


class Client:
    """See `tenure.Client`."""

    def __init__(self, url: str) -> None:
        self._client = client.Client(url)

    def close(self) -> None:
        self._client.close()

    def enqueue(self, kind: str, payload: Any = None, **fields: Any) -> dict[str, Any]:
        return _document(self._client.enqueue(kind, payload, **fields))

    def get(self, job_id: str, **fields: Any) -> dict[str, Any]:
        return _document(self._client.get(job_id, **fields))

    def cancel(self, job_id: str, **fields: Any) -> dict[str, Any]:
        return _document(self._client.cancel(job_id, **fields))

    def events(self, job_id: str) -> list[dict[str, Any]]:
        return [_document(event) for event in self._client.events(job_id)]

    def follow(self, job_id: str) -> Iterator[dict[str, Any]]:
        return (_document(item) for item in self._client.follow(job_id))


def _document(answer: BaseModel) -> dict[str, Any]:
    return answer.model_dump(mode="json", exclude_unset=True)
