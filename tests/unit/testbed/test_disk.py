"""A full disk is told from other faults, whoever met it."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from testbed import disk
from testbed.errors import DiskFull


def test_a_full_disk_is_known_by_number_by_words_and_by_cause(tmp_path):
    full = OSError(errno.ENOSPC, "No space left on device")
    assert disk.is_full(full, tmp_path)
    assert disk.is_full(OSError(errno.EDQUOT, "Disk quota exceeded"), tmp_path)
    assert disk.is_full(RuntimeError("worker 1 ended; its last lines:\nOSError: [Errno 28] No space left on device"), tmp_path)
    caused = RuntimeError("could not write")
    caused.__cause__ = full
    assert disk.is_full(caused, tmp_path)
    assert not disk.is_full(RuntimeError("worker 1 was killed"), tmp_path)
    assert not disk.is_full(OSError(errno.EIO, "Input/output error"), tmp_path)


def test_a_fault_where_nothing_is_free_is_a_full_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(disk, "free_bytes", lambda folder: 4096)
    assert disk.is_full(RuntimeError("the workers ended without a complete record"), tmp_path)


def test_the_sentence_names_the_folder_and_what_is_free(tmp_path, monkeypatch):
    folder = tmp_path / "results" / "not yet"
    assert disk.free_bytes(folder) > 0
    monkeypatch.setattr(disk, "free_bytes", lambda folder: 1_500_000)
    with pytest.raises(DiskFull) as caught, disk.watched(folder):
        Path("/dev/full").write_text("x")
    assert len(str(caught.value).splitlines()) == 1
    assert str(folder) in str(caught.value)
    assert "1.5 MB free" in str(caught.value)


def test_other_faults_pass_unchanged(tmp_path):
    with pytest.raises(FileNotFoundError), disk.watched(tmp_path):
        (tmp_path / "missing").read_text()
