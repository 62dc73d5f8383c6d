"""The few statements that a new server needs, by way of psql: no event loop, no driver."""

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlencode

from tenure.embedded.process import EmbeddedPostgresError, last_words, run

ROLE = "tenure"
PORT = "5432"

_LOOK = "SELECT count(*) FROM pg_database WHERE datname = :'name'"
_CREATE = 'CREATE DATABASE :"name" TEMPLATE :"template"'
# Plainly, and in a race with another creator.
_EXISTS = ("42P04", "23505")
_PASSING = ("the database system is", "No such file", "Connection refused", "server closed", "terminating connection")
_WRONG_PASSWORD = ("password authentication failed", "no password supplied")


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """How to reach a server: its programs, the folder of its socket, and the password."""

    bin_dir: Path
    socket_dir: Path
    password: str

    def url(self, database: str) -> str:
        """For asyncpg, psql and SQLAlchemy alike. The port is in it, because PGPORT would go before the default."""
        where = urlencode({"host": str(self.socket_dir), "port": PORT}, safe="/")
        return f"postgresql://{ROLE}:{quote(self.password, safe='')}@/{quote(database, safe='')}?{where}"

    def answers(self) -> bool:
        """Asks one question. False while the server comes up or goes down.

        Raises EmbeddedPostgresError when it will not talk to us.
        """
        done = self._psql("SELECT 1")
        if done.returncode == 0:
            return True
        if any(words in done.stderr for words in _PASSING):
            return False
        if any(words in done.stderr for words in _WRONG_PASSWORD):
            raise EmbeddedPostgresError(
                f"the kept password is not that of the role {ROLE!r}: restore the file 'password' beside the cluster, "
                "or choose another data directory"
            )
        raise EmbeddedPostgresError(f"the server refused a connection:\n{last_words(done)}")

    def create_database(self, name: str, *, template: str | None) -> None:
        """Makes a database unless it exists. Raises EmbeddedPostgresError."""
        values = {"name": name, "template": template or "template1"}
        done = self._psql(_LOOK, values)
        if done.returncode == 0 and done.stdout.strip() == "1":
            return
        done = self._psql(_CREATE, values)
        if done.returncode and not any(code in done.stderr for code in _EXISTS):
            raise EmbeddedPostgresError(f"database {name!r} could not be created:\n{last_words(done)}")

    def _psql(self, statement: str, values: Mapping[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
        options: list[str | Path] = ["-X", "-q", "-A", "-t", "-w", "-v", "ON_ERROR_STOP=1", "-v", "VERBOSITY=verbose"]
        for name, value in (values or {}).items():
            options += ["-v", f"{name}={value}"]
        where: list[str | Path] = ["-h", self.socket_dir, "-p", PORT, "-U", ROLE, "-d", "postgres"]
        return run(
            [self.bin_dir / "psql", *options, *where, "-f", "-"],
            env={"PGPASSWORD": self.password, "PGCLIENTENCODING": "UTF8", "PGCONNECT_TIMEOUT": "30"},
            stdin=statement,
        )
