"""Which store the settings open, and what is said of settings that open none."""

from pathlib import Path
from uuid import uuid4

import pytest

from tenure.artifacts import artifact_key, open_artifact_store, parse_key
from tenure.artifacts.local import LocalArtifactStore
from tenure.artifacts.s3 import S3ArtifactStore
from tenure.errors import ConfigurationError
from tenure.settings import load


def opened(data_dir: Path, **variables: str) -> object:
    settings = load({f"TENURE_{name}": value for name, value in variables.items()})
    return open_artifact_store(settings.reports, data_dir)


def test_without_a_setting_artifacts_lie_in_the_data_directory(tmp_path: Path) -> None:
    store = opened(tmp_path)
    assert isinstance(store, LocalArtifactStore)
    assert store.root == tmp_path / "artifacts"


def test_a_directory_and_an_s3_url_open_their_stores(tmp_path: Path) -> None:
    local = opened(tmp_path, ARTIFACT_STORE=str(tmp_path / "elsewhere"))
    assert isinstance(local, LocalArtifactStore)
    assert local.root == tmp_path / "elsewhere"
    assert isinstance(opened(tmp_path, ARTIFACT_STORE="s3://bucket/prefix"), S3ArtifactStore)


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({"ARTIFACT_STORE": "gs://bucket"}, "TENURE_ARTIFACT_STORE"),
        ({"ARTIFACT_STORE": "s3://"}, "TENURE_ARTIFACT_STORE"),
        ({"ARTIFACT_STORE": "s3://bucket?region=x"}, "TENURE_ARTIFACT_STORE"),
        ({"ARTIFACT_STORE": "s3://bucket", "S3_ACCESS_KEY_ID": "only-half"}, "TENURE_S3_SECRET_ACCESS_KEY"),
        ({"ARTIFACT_STORE": "s3://bucket", "S3_ENDPOINT": "http://127.0.0.1:1"}, "TENURE_S3_ALLOW_HTTP"),
    ],
)
def test_settings_that_open_nothing_are_named(tmp_path: Path, variables: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        opened(tmp_path, **variables)


def test_a_file_in_the_place_of_the_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="a file, not a directory"):
        opened(tmp_path, ARTIFACT_STORE=str(tmp_path / "file"))


def test_a_key_says_what_it_was_made_of() -> None:
    job = uuid4()
    found = parse_key(artifact_key(job, 17, "Orders_2025-01.csv"))
    assert found is not None
    assert (found.job_id, found.attempt_version, found.name) == (job, 17, "Orders_2025-01.csv")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\\b", "ä.csv", "a b", "a.partial", "-rf", "a" * 201, "a\n"])
def test_a_name_that_is_no_file_name_everywhere_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="cannot name an artifact"):
        artifact_key(uuid4(), 1, name)


@pytest.mark.parametrize(
    "key", ["{job}/01/a", "{job}/1/a.partial.partial/b", "{upper}/1/a", "{job}/1/", "x/1/a", "{job}//a"]
)
def test_what_is_not_a_key_is_not_read_as_one(key: str) -> None:
    job = "3f2504e0-4f89-41d3-9a0c-0305e82c3301"
    assert parse_key(key.format(job=job, upper=job.upper())) is None
