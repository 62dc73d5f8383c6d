"""A stage for each story: an empty database of its own, and a folder."""

from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import asyncpg
import pytest

from tests.conftest import with_database
from tests.story.harness import Stage


@pytest.fixture
async def stage(server_url: str, tmp_path: Path) -> AsyncIterator[Stage]:
    name = f"tenure_story_{uuid4().hex[:12]}"
    raw = await asyncpg.connect(server_url)
    await raw.execute(f'CREATE DATABASE "{name}"')
    opened = Stage(database_url=with_database(server_url, name), folder=tmp_path)
    yield opened
    await opened.end()
    await raw.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
    await raw.close()
