"""Running PostgreSQL's programs: as whom, with what environment, and what is said when one of them fails."""

import contextlib
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

with contextlib.suppress(ImportError):  # on Windows, where `start` says so before any of this runs
    import pwd

# Those that the dynamic linker and the shell need. Nothing else is passed on: the server lives longer than the service
# and runs as another account, so it must not carry the service's secrets in its environment.
_PASSED_ON = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
_UNPRIVILEGED_ACCOUNTS = ("postgres", "nobody")


class EmbeddedPostgresError(Exception):
    """The embedded PostgreSQL cannot do what was asked; the message says what to do and is meant for the operator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The operating system account that the server runs as. ``name`` is for messages."""

    uid: int
    gid: int
    name: str

    @property
    def is_other(self) -> bool:
        """True when it is not our own, which only root can arrange."""
        return self.uid != os.geteuid()


def account_for(*folders: Path) -> Account:
    """Our own account; for root the owner of the first folder that has another owner, else ``postgres`` or ``nobody``.

    PostgreSQL refuses to run as root. An existing folder's owner goes first: no other could read its files.
    No account is ever created. Raises EmbeddedPostgresError when root finds none to use.
    """
    if os.geteuid() != 0:
        return Account(uid=os.geteuid(), gid=os.getegid(), name=_name_of(os.geteuid()))
    for folder in folders:
        if folder.exists() and (owner := folder.stat()).st_uid != 0:
            return Account(uid=owner.st_uid, gid=owner.st_gid, name=_name_of(owner.st_uid))
    for name in _UNPRIVILEGED_ACCOUNTS:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(uid=entry.pw_uid, gid=entry.pw_gid, name=name)
    raise EmbeddedPostgresError(
        "PostgreSQL does not run as root, and this machine has neither a user 'postgres' nor 'nobody' to run it as. "
        "Start Tenure as an ordinary user, or create the user: useradd --system postgres"
    )


def run(
    command: Sequence[str | Path],
    *,
    account: Account | None = None,
    env: Mapping[str, str] | None = None,
    stdin: str | None = None,
    keep_open: Sequence[int] = (),
    timeout: float = 600.0,
) -> subprocess.CompletedProcess[str]:
    """Runs one program to its end and captures what it says. ``timeout`` in seconds; the exit status is the caller's.

    ``account`` is whom to run it as (only root can choose another than its own). ``keep_open`` are descriptors that the
    program and its children inherit. It runs in a session of its own: Ctrl-C in the terminal is meant for the service,
    which drains first and needs its database for that. Raises EmbeddedPostgresError when it does not end in time.
    """
    identity: dict[str, Any] = {}
    if account is not None and account.is_other:
        identity = {"user": account.uid, "group": account.gid, "extra_groups": []}
    environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    # Messages are read by this package, so they must be English on every machine.
    environment |= {"LC_ALL": "C", **(env or {})}
    words = [str(word) for word in command]
    try:
        return subprocess.run(  # noqa: S603 - fixed programs with arguments of our own, and no shell
            words,
            check=False,
            capture_output=True,
            text=True,
            errors="replace",
            input=stdin if stdin is not None else "",
            env=environment,
            cwd="/",  # the caller's folder may be closed to the account
            umask=0o077,
            start_new_session=True,
            pass_fds=tuple(keep_open),
            timeout=timeout,
            **identity,
        )
    except subprocess.TimeoutExpired:
        raise EmbeddedPostgresError(f"{Path(words[0]).name} did not end within {timeout:.0f} seconds") from None


def first_unreachable(folder: Path, account: Account) -> Path | None:
    """The topmost of ``folder`` and its parents that the account may not enter, or None. Tried, not read from modes."""
    lineage = [str(part) for part in (*reversed(folder.parents), folder)]
    walk = 'for folder do cd -- "$folder" 2>/dev/null || { printf %s "$folder"; exit 1; }; done'
    done = run(["/bin/sh", "-c", walk, "sh", *lineage], account=account)
    return Path(done.stdout) if done.returncode else None


def last_words(done: subprocess.CompletedProcess[str], *, lines: int = 5) -> str:
    """The last lines a program said, for a message."""
    said = [line for line in f"{done.stdout}\n{done.stderr}".splitlines() if line.strip()]
    return "\n".join(said[-lines:]) or f"exit status {done.returncode}"


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
