"""Which artifact store the settings mean."""

from pathlib import Path

from tenure.artifacts.local import LocalArtifactStore
from tenure.artifacts.s3 import S3ArtifactStore
from tenure.artifacts.store import ArtifactStore
from tenure.errors import ConfigurationError
from tenure.settings import ReportSettings


def open_artifact_store(settings: ReportSettings, data_dir: Path) -> ArtifactStore:
    """The store named by TENURE_ARTIFACT_STORE; without one, the directory ``artifacts`` in the data directory.

    Nothing is written and no connection is made before the first use. Raises ConfigurationError.
    """
    place = settings.artifact_store.strip()
    if not place:
        return LocalArtifactStore(data_dir / "artifacts")
    if place.startswith("s3://"):
        return S3ArtifactStore.open(settings)
    if "://" in place:
        raise ConfigurationError(
            f"TENURE_ARTIFACT_STORE={place.partition('://')[0]}://… is not supported: give a directory, or s3://bucket/prefix"
        )
    root = Path(place).expanduser()
    if root.exists() and not root.is_dir():
        raise ConfigurationError(f"TENURE_ARTIFACT_STORE={place}: this is a file, not a directory")
    return LocalArtifactStore(root)
