"""Compiled code that the next start finds: what is stored, what isn't used, what a name says."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import subprocess
import sys
import textwrap
import time
import types
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._inductor.config as inductor
import torch.fx

from background.slow import LONG
from stator import _kept
from stator._fx import beside, libraries, process, store
from stator._fx.libraries import Libraries, Made
from stator._fx.modes import Modes
from stator._kept import Store

KEY = "0123abcd"


def text(path: str) -> str:
    return Path(path).read_text()


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """What a compiler has written."""
    path = tmp_path / "library.so"
    path.write_text("code")
    return path


@pytest.fixture
def stored(tmp_path: Path, made: Path) -> Store:
    there = Store(tmp_path / "deep" / "folder")
    there.keep(KEY, str(made))
    return there


def test_what_is_stored_is_found(stored: Store) -> None:
    assert stored.find(KEY, text) == "code"
    assert Store(stored.folder).find(KEY, text) == "code"
    assert stored.find("another", text) is None
    assert not stored.is_empty() and Store(stored.folder / "none").is_empty()
    assert sorted(path.name for path in stored.folder.iterdir()) == [KEY, "secret"]
    assert {path.stat().st_mode & 0o777 for path in stored.folder.iterdir()} == {0o600}
    assert stored.folder.stat().st_mode & 0o777 == 0o700


def foreign(path: Path) -> None:
    """Written by somebody who doesn't know the secret."""
    other = Store(path.parent.parent / "other")
    library = path.parent.parent / "theirs"
    library.write_text("theirs")
    other.keep(KEY, str(library))
    path.write_bytes((other.folder / KEY).read_bytes())


def renamed(path: Path) -> None:
    """Another graph's."""
    library = path.parent.parent / "theirs"
    library.write_text("theirs")
    Store(path.parent).keep("another", str(library))
    path.write_bytes((path.parent / "another").read_bytes())


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.write_bytes(path.read_bytes()[:7]),
        lambda path: path.write_bytes(path.read_bytes() + b"\0"),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes()[:-1] + b"x"),
        lambda path: path.write_bytes(b"x" + path.read_bytes()[1:]),
        lambda path: (path.parent / "secret").write_bytes(b"short"),
        lambda path: (path.parent / "secret").unlink(),
        foreign,
        renamed,
    ],
)
def test_what_isnt_as_it_was_stored_is_replaced(
    damage: Callable[[Path], Any], stored: Store, made: Path, caplog: pytest.LogCaptureFixture
) -> None:
    damage(stored.folder / KEY)
    assert stored.find(KEY, text) is None
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    stored.keep(KEY, str(made))
    assert stored.find(KEY, text) == "code"
    assert len(caplog.records) == 1


@pytest.mark.parametrize("kind", ["no bundle", "no facts", "no library"])
def test_what_is_no_bundle(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "bundle"
    path.write_bytes(b"code")
    if kind != "no bundle":
        facts = Made(["0.so"], [], [], []) if kind == "no library" else None
        with zipfile.ZipFile(path, "w") as bundle:
            if facts is not None:
                text = json.dumps({"kind": "Made", **dataclasses.asdict(facts)})
                bundle.writestr("facts.json", text)
                bundle.writestr("0.so", "code")
    with pytest.raises((RuntimeError, OSError)):
        process._load(str(path))


def test_a_library_that_cant_be_loaded(stored: Store, caplog: pytest.LogCaptureFixture) -> None:
    assert stored.find(KEY, process._load) is None
    assert "made again" in caplog.text


def open_to_others(folder: Path) -> None:
    folder.chmod(0o755)


def anothers(folder: Path) -> None:
    os.chown(folder, 12345, -1)


def linked(folder: Path) -> None:
    folder.rename(folder.with_name("real"))
    folder.symlink_to(folder.with_name("real"))


def within_what_all_may_write(folder: Path) -> None:
    folder.parent.chmod(0o777)


def no_folder(folder: Path) -> None:
    folder.rename(folder.with_name("real"))
    folder.write_text("")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (open_to_others, "chmod 700"),
        pytest.param(
            anothers,
            "another user",
            marks=pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away"),
        ),
        (linked, "no folder"),
        (within_what_all_may_write, "all users may write"),
        (no_folder, "File exists"),
    ],
)
def test_a_folder_that_isnt_the_users_alone(
    change: Callable[[Path], None],
    why: str,
    stored: Store,
    made: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    change(stored.folder)
    assert stored.find(KEY, text) is None
    caplog.clear()
    for _ in range(3):
        stored.keep(KEY, str(made))
    assert len(caplog.records) == 1 and why in caplog.text


def test_a_full_disk(
    stored: Store, made: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Full:
        def __init__(self, descriptor: int, mode: str) -> None:
            self.descriptor = descriptor

        def __enter__(self) -> Full:
            return self

        def __exit__(self, *args: object) -> None:
            os.close(self.descriptor)

        def write(self, content: bytes) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "new-file")

    before = sorted(stored.folder.iterdir())
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdopen", Full)
        for key in ("one", "two"):
            stored.keep(key, str(made))
    assert caplog.text.count("No space left on device") == 1
    assert sorted(stored.folder.iterdir()) == before
    assert stored.find(KEY, text) == "code"


def test_a_file_system_without_links(
    stored: Store, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*paths: Any) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refuses)
    other = Store(stored.folder.parent / "other")
    other.keep("key", str(made))
    assert other.find("key", lambda path: Path(path).read_bytes()) == made.read_bytes()
    assert sorted(path.name for path in other.folder.iterdir()) == ["key", "secret"]


def test_what_nobody_uses_goes_first(tmp_path: Path, made: Path) -> None:
    small = Store(tmp_path / "small", bound=3 * (32 + len("code")))
    for key in "abc":
        small.keep(key, str(made))
        os.utime(small.folder / key, (time.time() - 100 + ord(key),) * 2)
    assert small.find("a", text) == "code"
    small.keep("d", str(made))
    assert [small.find(key, text) for key in "abcd"] == ["code", None, "code", "code"]
    # One that is larger than all that is allowed is kept until the next.
    made.write_text("x" * 1000)
    small.keep("e", str(made))
    assert [path.name for path in small._kept()] == ["e"]


def test_what_killed_processes_have_left_goes(stored: Store, made: Path) -> None:
    old, new = stored.folder / "new-old", stored.folder / "new-new"
    for path in (old, new):
        path.write_text("half")
    os.utime(old, (1, 1))
    stored.keep("another", str(made))
    assert not old.exists() and new.exists()


def test_many_begin_at_once(tmp_path: Path, made: Path) -> None:
    program = """
        import sys, time
        from pathlib import Path
        from stator._kept import Store
        stored, go, made, own = Store(Path(sys.argv[1])), *sys.argv[2:]
        print("ready", flush=True)
        while not Path(go).exists():
            time.sleep(0.001)
        for _ in range(20):
            stored.keep(own, made)
            stored.keep("shared", made)
            for key in (own, "shared"):
                assert stored.find(key, lambda path: Path(path).read_text()) == "code", key
    """
    go = tmp_path / "go"
    arguments = [str(tmp_path / "folder"), str(go), str(made)]
    running = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(program), *arguments, f"own{number}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(3)
    ]
    for each in running:
        assert each.stdout is not None and each.stdout.readline() == "ready\n"
    go.touch()
    for each in running:
        _, said = each.communicate(timeout=LONG)
        assert (each.returncode, said) == (0, "")


def test_where(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def folder() -> Path | None:
        found = _kept.store()
        return None if found is None else found.folder

    monkeypatch.setenv("STATOR_CACHE", "off")
    assert folder() is None
    monkeypatch.setenv("STATOR_CACHE", str(tmp_path))
    assert folder() == tmp_path
    monkeypatch.delenv("STATOR_CACHE")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert folder() == tmp_path / ".cache" / "stator"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert folder() == tmp_path / "xdg" / "stator"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert folder() == tmp_path / "Library" / "Caches" / "stator"


# What a name says.

X = torch.zeros(2, 3)


def graph(
    target: Callable[..., Any] = torch.add, other: Any = 1, method: str | None = None
) -> torch.fx.GraphModule:
    made = torch.fx.Graph()
    root = torch.nn.Module()
    x = made.placeholder("x")
    if isinstance(other, torch.Tensor):
        root.constant = other
        other = made.get_attr("constant")
    out = made.call_function(target, (x, other))
    made.output(made.call_method(method, (out,)) if method else out)
    return torch.fx.GraphModule(root, made)


class Given:
    """Stands for the process; says under which name its work would be stored."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.keys: list[str | None] = []

        def key_of(order: object, module: torch.fx.GraphModule) -> str | None:
            self.keys.append(store.key_of(order, module))
            return self.keys[-1]

        monkeypatch.setenv("STATOR_CACHE", str(folder))
        monkeypatch.setattr(process, "key_of", key_of)
        made = Made([os.devnull], [], [], [])
        monkeypatch.setattr(process, "_ask", lambda order, folder: made)
        monkeypatch.setattr(process, "_load", lambda bundle: (made, Libraries(made, [None])))

    def __call__(
        self,
        module: torch.fx.GraphModule | None = None,
        look: torch.Tensor = X,
        settings: dict[str, Any] | None = None,
        modes: Modes | None = None,
        sizes: tuple[str | None, ...] = (),
        is_training: bool = False,
    ) -> str | None:
        looks = [libraries.look(look)]
        changed = beside.changed_settings()
        modes = modes or Modes.here()
        process.compile_in_process(
            module or graph(), looks, [sizes], modes, settings or {}, changed, is_training
        )
        return self.keys[-1]


@pytest.fixture
def name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Given:
    return Given(monkeypatch, tmp_path)


def test_other_work_has_another_name(name: Given, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [
        name(),
        name(graph(torch.sub)),
        name(graph(other=2)),
        name(graph(other=2.0)),
        name(graph(other=torch.ones(3))),
        name(graph(other=torch.zeros(3))),
        name(graph(other=torch.zeros(3, dtype=torch.int32))),
        name(graph(other=torch.zeros(1, 3))),
        name(graph(other=torch.ones(3).expand(2, 3))),
        name(graph(method="sum")),
        name(graph(method="mean")),
        name(look=torch.zeros(3, 2)),
        name(look=torch.zeros(3, 2).t()),
        name(look=torch.zeros(2, 3, dtype=torch.float64)),
        name(settings={"config_patches": {"max_autotune": True}}),
    ]
    names += [name(sizes=("s0", None)), name(sizes=(None, "s0")), name(is_training=True)]
    names.append(name(look=torch.zeros(2, 3, requires_grad=True)))
    with torch.no_grad():
        names.append(name())
    with torch.autocast("cpu"):
        names.append(name())
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    names.append(name())
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(True)
    names.append(name())
    torch.use_deterministic_algorithms(False)
    for variable in ("CXX", "TORCHINDUCTOR_MAX_AUTOTUNE"):
        with monkeypatch.context() as patch:
            patch.setenv(variable, "1")
            names.append(name())
    with inductor.patch(epilogue_fusion=not inductor.epilogue_fusion):
        names.append(name())
    assert None not in names and len(set(names)) == len(names)


def test_equal_work_has_one_name(name: Given) -> None:
    assert name() == name() is not None
    assert name(graph(other=torch.ones(3))) == name(graph(other=torch.ones(3)))


@pytest.mark.parametrize(
    "part", ["_processor", "torch.__version__", "sys.version", "__version__", "library"]
)
def test_other_machines_and_versions_have_other_names(
    part: str, name: Given, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = name()
    if part == "_processor":
        monkeypatch.setattr(store, part, lambda: ["another processor"])
    elif part == "library":
        monkeypatch.setattr(store, "FOLDER", tmp_path)
    elif part == "__version__":
        monkeypatch.setattr(store, part, "0")
    else:
        module, _, attribute = part.partition(".")
        monkeypatch.setattr(sys.modules[module], attribute, "0")
    store._of_this_process.cache_clear()
    try:
        after = name()
    finally:
        store._of_this_process.cache_clear()
    assert after is not None and after != before


def own(x: torch.Tensor, other: Any) -> torch.Tensor:
    return x


def test_what_a_name_doesnt_tell_isnt_stored() -> None:
    # Only what the digest is made of is asked here: such a graph goes to no process.
    assert store.key_of(None, graph(own)) is None


@pytest.mark.parametrize(
    "other",
    [
        torch.nn.Parameter(torch.ones(3)),
        torch.ones(3, requires_grad=True),
        torch.ones(3).to_sparse(),
        torch.ones(3, device="meta"),
        torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
    ],
)
def test_what_isnt_a_plain_tensor_isnt_stored(other: torch.Tensor) -> None:
    assert store.key_of(None, graph(other=other)) is None


def test_functions_of_pytorchs_own_are_told() -> None:
    assert store.key_of(None, graph(torch.nn.functional.mse_loss)) is not None


def test_each_process_gives_the_same_name(tmp_path: Path) -> None:
    # Two interpreters that order their sets otherwise.
    program = """
        import sys, torch
        from background import test_store  # It imports Inductor's settings.
        from stator._fx import process, store
        from pathlib import Path
        import pytest
        with pytest.MonkeyPatch.context() as patch:
            print(test_store.Given(patch, Path(sys.argv[1]))(test_store.graph(other=torch.ones(3))))
    """
    names = [
        subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program), str(tmp_path)],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
        ).stdout.strip()
        for seed in ("1", "2")
    ]
    assert names[0] == names[1] and len(names[0]) == 40


def test_settings_that_nobody_has_imported(name: Given, monkeypatch: pytest.MonkeyPatch) -> None:
    unchanged = types.SimpleNamespace(_get_dict=lambda skip_default: {})
    monkeypatch.setitem(sys.modules, "torch._inductor.config", unchanged)
    before = name()
    monkeypatch.delitem(sys.modules, "torch._inductor.config")
    assert name() == before


def test_settings_are_those_of_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[dict[str, Any]] = []

    def compile_in_process(*order: Any, **said: Any) -> None:
        given.extend(part for part in order if isinstance(part, dict))

    monkeypatch.setattr(beside, "compile_in_process", compile_in_process)
    other = not inductor.epilogue_fusion
    with inductor.patch(epilogue_fusion=other):
        compile = beside.begin_inductor([], [], {"config_patches": {}}, says_sizes=False)
    compile()
    patches, changed = given
    assert patches == {"config_patches": {}} and changed["epilogue_fusion"] is other
