"""Where finished files lie: a directory, or an S3-compatible store. Which of them are visible, the database decides."""

from tenure.artifacts.opening import open_artifact_store
from tenure.artifacts.store import (
    PARTIAL_SUFFIX,
    ArtifactKey,
    ArtifactStore,
    ArtifactWriter,
    ObjectInfo,
    artifact_key,
    parse_key,
)

__all__ = [
    "PARTIAL_SUFFIX",
    "ArtifactKey",
    "ArtifactStore",
    "ArtifactWriter",
    "ObjectInfo",
    "artifact_key",
    "open_artifact_store",
    "parse_key",
]
