"""What the documentation shows runs, and what it names exists."""

from __future__ import annotations

import ast
import linecache
import os
import re
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

import stator
from stator import _stator

ROOT = Path(__file__).resolve().parent.parent
PAGES = (
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
)

FENCE = re.compile(r"^```(?P<kind>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)#\s]+)(#[^)]*)?\)")
TOP = ("crates", "python", "tests", "tools", "examples", "bench", "docs", ".ci")


def examples() -> Iterator[object]:
    """The Python examples of every page; a page's examples share their names, in order."""
    for page in PAGES:
        if page.exists():
            blocks = [
                (page.read_text()[: match.start()].count("\n") + 2, match["text"])
                for match in FENCE.finditer(page.read_text())
                if match["kind"].strip() == "python"
            ]
            if blocks:
                yield pytest.param(page, blocks, id=page.relative_to(ROOT).as_posix())


@pytest.mark.parametrize(("page", "blocks"), list(examples()))
def test_examples_run(
    page: Path,
    blocks: list[tuple[int, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if page.name == "ray.md":
        pytest.importorskip("ray", reason="Ray isn't installed")
    main = types.ModuleType("__main__")
    names = vars(main)
    if page.name == "stored.md":
        monkeypatch.setitem(sys.modules, "__main__", main)
        monkeypatch.setenv("STATOR_CACHE", str(tmp_path / "cache"))
    for line, text in blocks:
        # Errors show the page's own lines, and traced code can show its source.
        source = "\n" * (line - 1) + text
        linecache.cache[str(page)] = (
            len(source),
            None,
            source.splitlines(keepends=True),
            str(page),
        )
        # As users have it.
        with stator.config.patch(skip_unprofitable=True):
            exec(compile(source, str(page), "exec"), names)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for match in LINK.finditer(page.read_text()):
        target = match["target"]
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize(
    "page", [p for p in PAGES if p.name != "CHANGELOG.md"], ids=lambda p: p.name
)
def test_paths_exist(page: Path) -> None:
    """Any `code` in a page that looks like a path of the repository is one."""
    text = FENCE.sub("", page.read_text())
    for code in CODE.findall(text):
        if code.startswith(tuple(f"{top}/" for top in TOP)) and " " not in code:
            path = code.split("::")[0]
            exists = list(ROOT.glob(path)) if "*" in path else (ROOT / path).exists()
            assert exists, f"{page.name} names {code}, which doesn't exist"


def test_architecture_names_every_crate_on_one_page() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    for crate in sorted((ROOT / "crates").iterdir()):
        assert f"`crates/{crate.name}`" in text, f"ARCHITECTURE.md doesn't know {crate.name}"
    assert len(text.encode()) <= 10_000, "what a file is for stands in its first lines"


def test_every_file_says_what_it_is_for() -> None:
    for path in sorted((ROOT / "crates").rglob("*.rs")):
        lines = [line for line in path.read_text().splitlines() if line]
        assert any(line.startswith("//!") for line in lines[:2]), path
    for path in sorted((ROOT / "python").rglob("*.py")):
        assert ast.get_docstring(ast.parse(path.read_text())), path


def test_every_documentation_page_is_listed() -> None:
    readme = (ROOT / "README.md").read_text()
    for page in sorted((ROOT / "docs").rglob("*.md")):
        name = page.relative_to(ROOT).as_posix()
        assert f"]({name})" in readme, f"README.md doesn't list {name}"


def test_the_page_of_break_reasons_is_current() -> None:
    """`docs/breaks.md` is made from the table in `crates/tracer/src/breaks.rs`."""
    page, text = ROOT / "docs" / "breaks.md", _stator._breaks_page()
    if os.environ.get("STATOR_BLESS") == "1":
        page.write_text(text)
    assert page.read_text() == text, "run `make bless`"


def test_make_targets_that_the_pages_name_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = {
        name for line in re.findall(r"^\.PHONY: (.*)$", makefile, re.M) for name in line.split()
    }
    for page in PAGES:
        for target in re.findall(r"\bmake ([a-z][a-z-]+)`", page.read_text()):
            assert target in targets, f"{page.name} names `make {target}`"


@pytest.mark.parametrize(
    ("mark", "results"), [("bench", "results.md"), ("bench federated", "federated.md")]
)
def test_the_readme_quotes_the_benchmarks(mark: str, results: str) -> None:
    """README's tables of figures are those that `make bench` wrote."""
    written = (ROOT / "bench" / results).read_text()
    rows = {line for line in written.splitlines() if line.startswith("|")}
    readme = (ROOT / "README.md").read_text()
    quoted = readme.partition(f"<!-- {mark} -->")[2].partition(f"<!-- /{mark} -->")[0]
    assert "|" in quoted
    for line in quoted.splitlines():
        assert not line.startswith("|") or line in rows, f"not in bench/{results}: {line}"


def test_no_machine_path_is_left() -> None:
    """Nothing tracked speaks of the machine it was written on."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    home = str(ROOT.parent)
    for name in listed.stdout.splitlines():
        path = ROOT / name
        if path.is_file() and path.suffix in (
            ".md",
            ".py",
            ".rs",
            ".c",
            ".h",
            ".toml",
            ".pyi",
            ".txt",
        ):
            assert home == "/" or f"{home}/" not in path.read_text(errors="replace"), name
