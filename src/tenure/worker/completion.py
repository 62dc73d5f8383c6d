"""The handler's own writes and its job's success, in one transaction."""

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from types import TracebackType
from typing import Any, Protocol

from tenure.errors import DatabaseUnavailable, NotFound, TenureError
from tenure.jobs.ids import JobId
from tenure.jobs.model import State
from tenure.jobs.retry import RetryPolicy
from tenure.jobs.tokens import token_digest
from tenure.store.apply import lock
from tenure.store.artifacts import Artifact, register
from tenure.store.database import Connection, Database, translated_errors
from tenure.store.refusals import endings
from tenure.store.settle import Outcome, Settled, settle

logger = logging.getLogger(__name__)

_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 0.05, 1.0


class Completion(Protocol):
    """An async context manager over one completion.

    ``committed``: None before the commit was asked for; then whether it happened; None again while nobody knows.
    """

    @property
    def asked(self) -> bool:
        """Whether a commit was asked for, so that it may have happened even if the block raised."""

    @property
    def committed(self) -> bool | None: ...

    async def __aenter__(self) -> Any: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool: ...


class DatabaseCompletion:
    """A completion in Tenure's own database.

    What the block raises passes through as it is: an OSError of the handler's is none of the database's. When the
    answer to COMMIT is lost, the job's row tells: once it can be locked, either the job is still held by this token, and
    nothing was written, or the outcome stands in its history.
    """

    def __init__(
        self,
        database: Database,
        outcome: Outcome,
        artifacts: Sequence[Artifact],
        *,
        tenant: str | None,
        sealed: Callable[[], Any],
    ) -> None:
        self._database = database
        self._outcome = outcome
        self._artifacts = artifacts
        self._tenant = tenant
        self._sealed = sealed
        self._transaction: AbstractAsyncContextManager[Connection] = database.transaction()
        self._connection: Connection | None = None
        self.asked = False
        self.committed: bool | None = None

    async def __aenter__(self) -> Any:
        self._connection = await self._transaction.__aenter__()
        return self._connection.executor

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if error is not None:
            await self._roll_back()
            return False
        with self._sealed():
            await self._finish()
        return False

    async def _finish(self) -> None:
        assert self._connection is not None
        try:
            if await self._settle(self._connection):
                # An earlier block of this attempt had committed after all: what this one wrote must not count twice.
                await self._roll_back()
                self.asked, self.committed = True, True
                return
        except BaseException:
            await self._roll_back()
            raise
        self.asked = True
        try:
            await self._transaction.__aexit__(None, None, None)
        except DatabaseUnavailable as error:
            logger.warning("job %s: the answer to its commit was lost, looking it up", self._outcome.job_id)
            await self._look_up(error)
        except Exception:  # refused at commit, by a deferred constraint of the handler's own: nothing was written
            self.committed = False
            raise
        self.committed = True

    async def _settle(self, connection: Connection) -> bool:
        """Registers and completes within the transaction; true when this very outcome had been committed before."""
        async with translated_errors():
            if not self._in_transaction():
                raise RuntimeError("the block ended the transaction itself; leave commit and rollback to its end")
            if self._artifacts:
                await register(connection, self._outcome.job_id, self._artifacts)
            (answer,) = await settle(
                connection, [self._outcome], policy_of=_unused_policy, random=random.random, tenant=self._tenant
            )
        if isinstance(answer, TenureError):
            raise answer
        return isinstance(answer, Settled) and answer.replayed

    def _in_transaction(self) -> bool:
        assert self._connection is not None
        executor: Any = self._connection.executor
        # One that is closed is for the next statement to report.
        return bool(executor.is_closed() or executor.is_in_transaction())

    async def _look_up(self, cause: DatabaseUnavailable) -> None:
        """Returns when the commit happened; raises when it did not. Asks until the database answers."""
        wait = _FIRST_WAIT_SECONDS
        while True:
            try:
                verdict = await self._verdict()
            except DatabaseUnavailable:
                await asyncio.sleep(wait)
                wait = min(wait * 2, _LONGEST_WAIT_SECONDS)
                continue
            if verdict is None:
                return
            self.committed = False
            raise verdict from cause

    async def _verdict(self) -> TenureError | None:
        outcome = self._outcome
        digest = token_digest(outcome.token)
        async with self._database.transaction() as connection:
            # The lock waits for the lost transaction's own: what is read under it is final.
            standings, _ = await lock(connection, [outcome.job_id], tenant=self._tenant)
            job = standings.get(JobId(outcome.job_id))
            if job is not None and job.state is State.RUNNING and job.token_digest == digest:
                return DatabaseUnavailable("the commit did not happen: the connection broke; nothing was written")
            asked = [(outcome.job_id, digest, outcome.digest())]
            (ending,) = await endings(connection, asked, tenant=self._tenant)
        if ending is None:
            return NotFound(f"there is no job {outcome.job_id}")
        return ending.refusal

    async def _roll_back(self) -> None:
        with suppress(_RolledBack, DatabaseUnavailable):
            await self._transaction.__aexit__(_RolledBack, _RolledBack(), None)


class _RolledBack(Exception):
    """Ends the transaction without telling the pool what the handler raised: it would take an OSError for its own."""


def _unused_policy(_kind: str) -> RetryPolicy:
    return RetryPolicy()
