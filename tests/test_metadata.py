"""What the package says of itself agrees: its versions everywhere, its page, the documents that ship."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tarfile
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

from tools import build_wheels, interpreters

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PAGE = ROOT / PROJECT["readme"]
VERSIONS = interpreters.supported()

FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]*)|^\[[^\]]*\]:\s*(\S+)", re.MULTILINE)
DOCUMENT = re.compile(r"(?<![\w/])((?:(?:docs|bench|examples)/[\w/-]+|[A-Z]{4,})\.(?:md|py))\b")
RUST_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)


# What a checkout installs.


def test_building_installs_nothing_beside_what_make_did() -> None:
    """`maturin develop` installs the group of this name, whatever PyTorch TORCH= asked for."""
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    assert "dev" not in groups
    installed = re.findall(r"pip install .*--group (\S+)", (ROOT / "Makefile").read_text())
    assert installed
    assert {*installed} <= {*groups}


# Which versions are supported.


def test_the_list_is_that_of_the_package() -> None:
    from stator import _interpreter

    assert [f"{major}.{minor}" for major, minor in _interpreter.SUPPORTED] == VERSIONS
    assert len(VERSIONS) >= 2


def test_pip_takes_the_supported_versions_and_no_others() -> None:
    oldest, newest = VERSIONS[0], VERSIONS[-1]
    behind = f"3.{int(newest.partition('.')[2]) + 1}"
    assert PROJECT["requires-python"] == f">={oldest},<{behind}"
    prefix = "Programming Language :: Python :: 3."
    said = [c.rpartition(" ")[2] for c in PROJECT["classifiers"] if c.startswith(prefix)]
    assert said == VERSIONS


def test_each_version_has_a_shim() -> None:
    script = (ROOT / "crates" / "cpython" / "build.rs").read_text()
    table = script.partition("const SHIMS")[2].partition(";\n")[0]
    rows = re.findall(r'\(\((\d+), (\d+)\), "([^"]+)"\)', table)
    assert [f"{major}.{minor}" for major, minor, _ in rows] == VERSIONS
    for _, _, shim in rows:
        assert (ROOT / "crates" / "cpython" / shim).is_file()


def test_tools_check_with_the_oldest_version() -> None:
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    assert tool["mypy"]["python_version"] == VERSIONS[0]
    assert tool["ruff"]["target-version"] == "py" + VERSIONS[0].replace(".", "")


def test_make_supports_the_same_versions() -> None:
    makefile = (ROOT / "Makefile").read_text()
    command = re.search(r"^SUPPORTED := \$\(shell (.*)\)$", makefile, re.MULTILINE)
    assert command is not None
    done = subprocess.run(
        ["sh", "-c", command[1]], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == VERSIONS
    # Nowhere else is one of them special, but for the default.
    code = [line.partition("#")[0] for line in makefile.splitlines()]
    assert [line for line in code if re.search(r"3\.\d\d", line)] == [
        f"PYTHON ?= python{VERSIONS[0]}"
    ]


def test_continuous_integration_runs_the_other_versions() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    command = f"python{VERSIONS[0]} tools/interpreters.py --others"
    assert command in script
    assert re.findall(r"3\.\d+", script) == [VERSIONS[0]], "the list stands in _interpreter.py"
    done = subprocess.run(
        [sys.executable, "tools/interpreters.py", "--others"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    lines = [line.partition(" ") for line in done.stdout.splitlines()]
    assert [version for version, _, _ in lines] == VERSIONS[1:]
    for version, _, path in lines:
        if path != "-":
            assert version in subprocess.check_output([path, "--version"], text=True)


def test_the_readme_names_the_supported_versions() -> None:
    assert f"| CPython | {', '.join(VERSIONS)} |" in (ROOT / "README.md").read_text()


@pytest.mark.skipif(not find_spec("ensurepip"), reason="this one can make no environment")
def test_an_interpreter_that_the_package_refuses_is_not_built_for(tmp_path: Path) -> None:
    here = "{}.{}".format(*sys.version_info)
    assert interpreters.refusal(Path(sys.executable)) == ""
    assert interpreters.real(sys.executable, here) is not None
    assert interpreters.real(sys.executable, "3.2") is None
    assert interpreters.real(str(tmp_path / "python"), here) is None
    source = tmp_path / "_interpreter.py"
    source.write_text('raise ImportError("not this one")')
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpreters, "SOURCE", source)
        assert interpreters.refusal(Path(sys.executable)) == "ImportError: not this one"
        patch.setenv("PATH", str(Path(sys.executable).parent))
        patch.setenv("PYENV_ROOT", str(tmp_path))
        found = interpreters.find(here)
        assert found.path is None
        assert found.refused.endswith("ImportError: not this one")


# The package's page.


def test_the_page_has_no_relative_link() -> None:
    for inline, reference in LINK.findall(PAGE.read_text()):
        target = inline or reference
        assert target.startswith("https://"), f"{PAGE.name} links to {target or 'itself'}"


def test_the_page_begins_as_the_readme_does() -> None:
    readme = (ROOT / "README.md").read_text()
    assert FENCE.findall(PAGE.read_text())[0] == FENCE.findall(readme)[0]


def test_the_page_installs_this_version() -> None:
    workspace = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]
    named = re.findall(r"\bstator-(\d+(?:\.\d+)*)[-.]", PAGE.read_text())
    assert set(named) == {workspace["package"]["version"]}


def test_the_page_names_each_extra() -> None:
    page = PAGE.read_text()
    for extra in PROJECT["optional-dependencies"]:
        assert f"| `{extra}` |" in page


# What ships.


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The files of the source distribution."""
    pytest.importorskip("maturin")
    out = tmp_path_factory.mktemp("sdist")
    subprocess.run(
        [sys.executable, "-m", "maturin", "sdist", "--out", out],
        cwd=ROOT, env=build_wheels.environment(), capture_output=True, check=True,
    )  # fmt: skip
    (sdist,) = out.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        return {member.name.partition("/")[2] for member in archive if member.isfile()}


def test_documents_that_the_page_names_ship(shipped: set[str]) -> None:
    named = set(DOCUMENT.findall(PAGE.read_text()))
    assert len(named) > 5
    assert named <= shipped


def test_documents_that_messages_and_docstrings_name_ship(shipped: set[str]) -> None:
    named = {}
    for path in (ROOT / "python").rglob("*.py*"):
        if path.suffix in (".py", ".pyi"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    named.update(dict.fromkeys(DOCUMENT.findall(node.value), path))
    for path in (ROOT / "crates").glob("*/src/**/*.rs"):
        for text in RUST_STRING.findall(path.read_text()):
            named.update(dict.fromkeys(DOCUMENT.findall(text), path))
    assert named
    for document, path in named.items():
        assert document in shipped, f"{path} names {document}"


def test_links_of_shipped_pages_lead_to_shipped_files(shipped: set[str]) -> None:
    for page in sorted(name for name in shipped if name.endswith(".md")):
        for inline, reference in LINK.findall((ROOT / page).read_text()):
            target = inline or reference
            if target and "://" not in target:
                path = (ROOT / page).parent.joinpath(target).resolve().relative_to(ROOT)
                assert path.as_posix() in shipped, f"{page} links to {target}"


def test_what_a_build_needs_ships(shipped: set[str]) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "crates/*/src", "crates/*/Cargo.toml", "crates/cpython", "python"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert {*listed.stdout.split(), "Cargo.lock", "Cargo.toml", "LICENSE"} <= shipped
    assert not [name for name in shipped if name.endswith((".so", ".pyc"))]
