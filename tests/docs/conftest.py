"""The stage of the stories, for what the documents and files of the project promise about processes."""

from tests.story.conftest import stage

__all__ = ["stage"]
