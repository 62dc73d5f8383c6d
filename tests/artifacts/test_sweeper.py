"""What the sweeper takes away, and what it leaves."""

from pathlib import Path
from uuid import uuid4

import pytest

from tenure.artifacts import ArtifactStore, artifact_key, open_artifact_store
from tenure.errors import Unavailable
from tenure.jobs.model import Job
from tenure.maintenance.sweeper import delete_locations, sweep
from tenure.settings import load
from tenure.store.artifacts import Artifact, register
from tenure.store.database import Database
from tenure.store.reap import reap_expired
from tests.artifacts.stores import contents_of, keys_of, put
from tests.factories import claimed, expire_lease, outcome, queued, running, settled


def artifact(key: str) -> Artifact:
    return Artifact(name="a.csv", location=key, bytes=1, rows=None, sha256="00", content_type="text/csv")


async def registered(database: Database, job: Job, key: str) -> None:
    async with database.transaction() as connection:
        await register(connection, job.id, [artifact(key)])


async def test_registered_objects_stay(database: Database, store: ArtifactStore) -> None:
    held = await running(database)
    key = artifact_key(held.job.id, held.job.version, "a.csv")
    await put(store, key, b"x")
    await registered(database, held.job, key)
    await settled(database, outcome(held))
    assert await sweep(database, store, older_than_seconds=-60) == 0
    assert await keys_of(store) == [key]


async def test_what_a_running_attempt_writes_stays(database: Database, store: ArtifactStore) -> None:
    held = await running(database)
    key = artifact_key(held.job.id, held.job.version, "a.csv")
    await put(store, key, b"x")
    assert await sweep(database, store, older_than_seconds=-60) == 0
    assert await keys_of(store) == [key]


async def test_what_an_attempt_left_that_lost_its_lease_goes(database: Database, store: ArtifactStore) -> None:
    dead = await running(database)
    left = artifact_key(dead.job.id, dead.job.version, "a.csv")
    await put(store, left, b"x")
    await expire_lease(database, dead.job)
    async with database.transaction() as connection:
        await reap_expired(connection)
    (successor,) = await claimed(database)
    kept = artifact_key(successor.job.id, successor.job.version, "a.csv")
    await put(store, kept, b"y")
    assert await sweep(database, store, older_than_seconds=-60) == 1
    assert await keys_of(store) == [kept]


async def test_what_a_finished_job_did_not_register_goes(database: Database, store: ArtifactStore) -> None:
    held = await running(database)
    key = artifact_key(held.job.id, held.job.version, "a.csv")
    await put(store, key, b"x")
    await settled(database, outcome(held))
    assert await sweep(database, store, older_than_seconds=-60) == 1
    assert await keys_of(store) == []


async def test_what_belongs_to_no_job_goes_in_bounded_steps(database: Database, store: ArtifactStore) -> None:
    for _ in range(5):
        await put(store, artifact_key(uuid4(), 2, "a.csv"), b"x")
    assert await sweep(database, store, older_than_seconds=-60, limit=2) == 2
    assert len(await keys_of(store)) == 3
    assert await sweep(database, store, older_than_seconds=-60) == 3


async def test_what_is_young_stays_whoever_left_it(database: Database, store: ArtifactStore) -> None:
    key = artifact_key(uuid4(), 2, "a.csv")
    await put(store, key, b"x")
    assert await sweep(database, store) == 0
    assert await keys_of(store) == [key]


async def test_a_queued_job_keeps_nothing_of_earlier_attempts(database: Database, store: ArtifactStore) -> None:
    job = await queued(database)
    await put(store, artifact_key(job.id, 2, "a.csv"), b"x")
    assert await sweep(database, store, older_than_seconds=-60) == 1


async def test_partial_files_of_the_dead_go_and_of_the_living_stay(
    database: Database, local_store: ArtifactStore, tmp_path: Path
) -> None:
    held = await running(database)
    living = tmp_path / "artifacts" / f"{artifact_key(held.job.id, held.job.version, 'a.csv')}.partial"
    dead = tmp_path / "artifacts" / f"{artifact_key(uuid4(), 2, 'a.csv')}.partial"
    for path in (living, dead):
        path.parent.mkdir(parents=True)
        path.write_bytes(b"half")
    assert await sweep(database, local_store, older_than_seconds=-60) == 1
    assert (living.exists(), dead.exists()) == (True, False)


async def test_what_tenure_did_not_write_stays(database: Database, local_store: ArtifactStore, tmp_path: Path) -> None:
    directory = tmp_path / "artifacts" / "photos" / "2024"
    directory.mkdir(parents=True)
    (directory / "holiday.jpg").write_bytes(b"x")
    assert await sweep(database, local_store, older_than_seconds=-60) == 0
    assert (directory / "holiday.jpg").exists()


async def test_the_locations_of_pruned_jobs_are_deleted_and_no_others(store: ArtifactStore) -> None:
    keys = [artifact_key(uuid4(), 2, "a.csv") for _ in range(3)]
    for key in keys:
        await put(store, key, b"x")
    await delete_locations(store, [*keys[:2], artifact_key(uuid4(), 2, "gone.csv")])
    assert await keys_of(store) == keys[2:]
    assert await contents_of(store, keys[2]) == b"x"


async def test_a_store_that_is_away_does_not_stop_the_pruning(database: Database, tmp_path: Path) -> None:
    settings = load(
        {
            "TENURE_ARTIFACT_STORE": "s3://bucket",
            "TENURE_S3_ENDPOINT": "http://127.0.0.1:9",
            "TENURE_S3_ALLOW_HTTP": "true",
            "TENURE_S3_ACCESS_KEY_ID": "test-key",
            "TENURE_S3_SECRET_ACCESS_KEY": "test-secret",
        }
    )
    store = open_artifact_store(settings.reports, tmp_path)
    await delete_locations(store, [artifact_key(uuid4(), 2, "a.csv")])
    with pytest.raises(Unavailable, match="cannot be reached"):
        await sweep(database, store)
