"""``tools/twice.py``: which names must not stand twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from twice import check, main


def write(root: Path, **sources: str) -> None:
    for name, source in sources.items():
        path = root / "dohle" / Path(*name.split("__")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)


def test_classes_of_one_name_are_told_with_their_places(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, hens="class Nest: ...", trees="\nclass Nest: ...\nclass Tree: ...")
    allowed = tmp_path / "allowed.txt"
    allowed.write_text("")
    arguments = ["--src", str(tmp_path), "--allowed", str(allowed)]
    assert main(arguments) == 1
    hens, trees = tmp_path / "dohle" / "hens.py", tmp_path / "dohle" / "trees.py"
    assert capsys.readouterr().out == f"{hens}:1: Nest is also the name of {trees}:2\n"
    allowed.write_text("Nest: birds have one word for both")
    assert main(arguments) == 0


def test_messages_and_what_belongs_to_a_module_or_class_may_have_the_same_names(
    tmp_path: Path,
) -> None:
    local = "class _Egg: ...\nclass {}:\n    class Yolk: ...\ndef f():\n    class Shell: ..."
    write(
        tmp_path,
        hens=local.format("Hen"),
        ducks=local.format("Duck"),
        protocol__messages__hatch="class Hen: ...",
    )
    assert check(tmp_path, "") == []


def test_an_exception_needs_a_reason_and_a_need(tmp_path: Path) -> None:
    write(tmp_path, hens="class Nest: ...", ducks="class Nest: ...")
    assert check(tmp_path, "Nest") == ["line 1: Nest has no reason"]
    assert check(tmp_path, "Nest: of both\nTree: of none") == [
        "Tree is allowed, but does not stand twice"
    ]
