"""What holds for artifacts in a directory."""

import os
import stat
from pathlib import Path
from uuid import uuid4

import pytest

from tenure.artifacts import ArtifactStore, artifact_key
from tenure.artifacts.local import LocalArtifactStore
from tenure.errors import Unavailable
from tests.artifacts.stores import contents_of, keys_of, put


async def test_files_and_directories_are_private(local_store: ArtifactStore, tmp_path: Path) -> None:
    await put(local_store, artifact_key(uuid4(), 2, "a.csv"), b"x")
    root = tmp_path / "artifacts"
    for path in (root, *root.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)


async def test_nothing_is_created_before_the_first_write(local_store: ArtifactStore, tmp_path: Path) -> None:
    assert await keys_of(local_store) == []
    assert await local_store.stat(artifact_key(uuid4(), 2, "a.csv")) is None
    assert not (tmp_path / "artifacts").exists()


async def test_empty_directories_go_with_their_last_file(local_store: ArtifactStore, tmp_path: Path) -> None:
    job = uuid4()
    keys = [artifact_key(job, 2, "a.csv"), artifact_key(job, 3, "a.csv")]
    for key in keys:
        await put(local_store, key, b"x")
    await local_store.delete(keys[:1])
    assert [path.name for path in (tmp_path / "artifacts" / str(job)).iterdir()] == ["3"]
    await local_store.delete(keys[1:])
    assert list((tmp_path / "artifacts").iterdir()) == []


async def test_a_partial_file_is_listed_and_can_be_deleted(local_store: ArtifactStore, tmp_path: Path) -> None:
    key = artifact_key(uuid4(), 2, "a.csv")
    partial = tmp_path / "artifacts" / f"{key}.partial"
    partial.parent.mkdir(parents=True)
    partial.write_bytes(b"half")
    assert await keys_of(local_store) == [f"{key}.partial"]
    await local_store.delete([f"{key}.partial"])
    assert not partial.exists()


async def test_a_symbolic_link_is_neither_listed_nor_followed(local_store: ArtifactStore, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    key = artifact_key(uuid4(), 2, "a.csv")
    link = tmp_path / "artifacts" / key
    link.parent.mkdir(parents=True)
    link.symlink_to(secret)
    assert await keys_of(local_store) == []
    with pytest.raises(Unavailable):
        await contents_of(local_store, key)
    await local_store.delete([key])
    assert secret.read_bytes() == b"secret"


async def test_foreign_files_are_listed_only_where_keys_lie(local_store: ArtifactStore, tmp_path: Path) -> None:
    (tmp_path / "artifacts" / "lost+found").mkdir(parents=True)
    (tmp_path / "artifacts" / "README").write_text("not ours")
    assert await keys_of(local_store) == []


async def test_a_directory_that_cannot_be_used_is_unavailable_and_named_without_its_path(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    store = LocalArtifactStore(tmp_path / "file")
    with pytest.raises(Unavailable) as caught:
        await put(store, artifact_key(uuid4(), 2, "a.csv"), b"x")
    assert os.fspath(tmp_path) not in caught.value.detail


async def test_more_files_than_one_chunk_are_all_listed(local_store: ArtifactStore, tmp_path: Path) -> None:
    directory = tmp_path / "artifacts" / str(uuid4()) / "2"
    directory.mkdir(parents=True)
    for number in range(1_203):
        (directory / f"{number}.csv").touch()
    assert len(await keys_of(local_store)) == 1_203
