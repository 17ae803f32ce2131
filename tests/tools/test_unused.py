"""``tools/unused.py``: what counts as used, and what the list of exceptions must be like."""

from __future__ import annotations

from pathlib import Path

import pytest

from unused import check, main, unused


@pytest.fixture
def package(tmp_path: Path) -> Path:
    (tmp_path / "nest").mkdir()
    (tmp_path / "nest" / "__init__.py").touch()
    return tmp_path


def names(root: Path, source: str, **others: str) -> list[str]:
    (root / "nest" / "eggs.py").write_text(source)
    for name, text in others.items():
        (root / "nest" / f"{name}.py").write_text(text)
    return [one.name for one in unused(root)]


def test_functions_methods_and_classes_that_nobody_reads_are_found(package: Path) -> None:
    source = """
class Egg:
    def hatch(self): ...
    async def roll(self): ...
def lay(): ...
"""
    found = ["nest.eggs.Egg", "nest.eggs.Egg.hatch", "nest.eggs.Egg.roll", "nest.eggs.lay"]
    assert names(package, source) == found


@pytest.mark.parametrize(
    "use",
    [
        "import eggs\neggs.lay()",
        "from eggs import lay\nlaying = [lay]",
        "found = getattr(object(), 'lay')",
        "__all__ = ['lay']",
        "match 1:\n    case int(lay=1): pass",
        "class Hen:\n    sound = lay",
    ],
)
def test_whoever_reads_a_name_uses_it_wherever_that_is(package: Path, use: str) -> None:
    assert "nest.eggs.lay" not in names(package, "def lay(): ...", hens=use)


@pytest.mark.parametrize(
    "use",
    ["from eggs import lay", "lay = 1", "# lay()", "'to lay an egg'", "def f(lay): ...\nf(lay=1)"],
)
def test_imports_assignments_and_prose_are_no_use(package: Path, use: str) -> None:
    assert "nest.eggs.lay" in names(package, "def lay(): ...", hens=use)


def test_what_only_calls_itself_is_not_used(package: Path) -> None:
    source = "def count(n): return n and count(n - 1)"
    assert names(package, source) == ["nest.eggs.count"]
    assert names(package, source, hens="from eggs import count\ncount(3)") == []


def test_what_python_or_a_decorator_calls_is_used(package: Path) -> None:
    source = """
import pytest
def main():
    class Local: ...
class Egg:
    def __repr__(self): ...
@pytest.fixture
def nest(): ...
@pytest.fixture(scope="module")
def tree(): ...
main(), Egg
"""
    assert names(package, source) == []


def test_definitions_behind_a_condition_are_seen(package: Path) -> None:
    source = "try:\n    import fast\nexcept ImportError:\n    def slow(): ...\n"
    assert names(package, source) == ["nest.eggs.slow"]


def test_an_exception_needs_a_reason_and_a_need(package: Path) -> None:
    (package / "nest" / "eggs.py").write_text("def lay(): ...\ndef roll(): ...\nroll()")
    assert check(package, "# public\n\nnest.eggs.lay: for hens\n") == []
    (wrong,) = check(package, "nest.eggs.lay")
    assert wrong == "line 1: nest.eggs.lay has no reason"
    (wrong,) = check(package, "nest.eggs.lay: for hens\nnest.eggs.roll: for fun")
    assert wrong == "nest.eggs.roll is allowed, but is used or gone"
    (wrong,) = check(package, "nest.eggs.lay: for hens\nnest.eggs.lay: for fun")
    assert wrong == "line 2: nest.eggs.lay is there twice"
    assert check(package, "nest.*: all of it is for hens") == []


def test_the_command_tells_where_it_is_and_fails(
    package: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (package / "nest" / "eggs.py").write_text("\ndef lay(): ...")
    allowed = package / "allowed.txt"
    allowed.write_text("")
    arguments = ["--src", str(package), "--allowed", str(allowed)]
    assert main(arguments) == 1
    path = package / "nest" / "eggs.py"
    assert capsys.readouterr().out == f"{path}:2: nothing uses nest.eggs.lay\n"
    allowed.write_text("nest.eggs.lay: for hens")
    assert main(arguments) == 0
