"""What Inductor's process may lack: folders, memory, a program that starts; and how it ends."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._inductor.exc import InvalidCxxCompiler

import stator
from background.slow import LONG
from stator import _background, stats
from stator._fx import compiler, process

X = torch.linspace(-1, 1, 24).view(6, 4)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    yield


def test_a_cache_that_cant_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.write_text("")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(file / "cache"))
    compiled = stator.compile(lambda x: x * 3, backend="inductor")
    compiled(X)
    assert stator.wait(timeout=LONG)
    with pytest.warns(stator.BackendFailedWarning, match="TORCHINDUCTOR_CACHE_DIR names") as given:
        for _ in range(3):
            assert torch.equal(compiled(X), X * 3)
    assert len(given) == 1 and f"its cache, {file / 'cache'}: Not a directory" in str(
        given[0].message
    )
    assert stats(compiled).tiers == ["failed"] and "its cache" in stats(compiled).why[0]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "its cache, .*: No space left on dev"),
        (OSError(errno.EROFS, os.strerror(errno.EROFS)), "its cache, .*: Read-only file system"),
        (RuntimeError("ld: a.so: No space left on device"), "its cache, .*: No space left on dev"),
        (InvalidCxxCompiler(), "no C.. compiler that works: install g.."),
    ],
)
def test_what_is_missing_in_words(error: Exception, words: str) -> None:
    wrapped = RuntimeError("LoweringException")
    wrapped.__cause__ = error
    for each in (error, wrapped):
        if each is error or isinstance(error, OSError | InvalidCxxCompiler):
            assert re.search(words, compiler._hopeless(each) or "")
    assert compiler._hopeless(RuntimeError("no kernel for this")) is None


def test_a_program_whose_cache_cant_be_made(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    program = "import stator; stator.compile(lambda x: x, backend='aot_eager')"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(file / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "BackendError: PyTorch's compilers can't make their cache folder" in done.stderr
    assert "TORCHINDUCTOR_CACHE_DIR names another" in done.stderr


def fails(match: str) -> None:
    """Inductor fails at what it needs: the program goes on, and is told once."""
    compiled = stator.compile(lambda x: x * 3, backend="inductor")
    compiled(X)
    assert stator.wait(timeout=LONG)
    with pytest.warns(stator.BackendFailedWarning, match=match) as given:
        for _ in range(2):
            assert torch.equal(compiled(X), X * 3)
    assert len(given) == 1


def test_no_folder_for_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**settings: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tempfile, "TemporaryDirectory", full)
    fails("No space left on device.*TMPDIR names another folder")


def test_no_process_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    fails("No process can be started for Inductor")


def test_a_library_that_this_program_cant_load(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As where files of the temporary folder may not be executed."""
    library = tmp_path / "library.so"
    library.write_text("none")
    monkeypatch.setenv("STATOR_CACHE", "off")
    monkeypatch.setattr(process, "_ask", lambda *order: process.Made([str(library)], [], [], []))
    fails("can't be loaded: .*TMPDIR names")


def test_modules_of_the_folder_that_the_program_is_in(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "pickletools.py").write_text("raise SystemExit(3)")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(process, "_PROGRAM", "import pickletools, sys; sys.stdin.buffer.read(1)")
    fails("its exit status is 0")


def test_a_process_that_is_killed() -> None:
    compiled = stator.compile(lambda x: x * 3, backend="inductor")
    compiled(X)
    thread = _background._queue.thread
    assert thread is not None
    end = time.monotonic() + LONG
    while not (children := _background._children("self", thread.native_id)):
        assert time.monotonic() < end
        time.sleep(0.01)
    os.kill(children[0], signal.SIGKILL)
    assert stator.wait(timeout=LONG)
    with pytest.warns(stator.BackendFailedWarning, match="it was killed by SIGKILL") as given:
        for _ in range(2):
            assert torch.equal(compiled(X), X * 3)
    assert len(given) == 1 and stats(compiled).tiers == ["failed"]
