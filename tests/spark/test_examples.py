"""The examples are what they say: they can be read, and are in step with what they show."""

from __future__ import annotations

import ast
from pathlib import Path

from dohle.spark.pipelines.project import find_project, make_project

_EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_shop_has_the_flows_of_a_new_project(tmp_path: Path) -> None:
    made = make_project("shop", tmp_path)

    flows = Path("transformations") / "orders.py"
    assert (_EXAMPLES / "shop" / flows).read_text() == (made / flows).read_text()
    assert find_project(str(_EXAMPLES / "shop")).folder == _EXAMPLES / "shop"


def test_every_example_has_a_readme_that_names_its_files() -> None:
    folders = [folder for folder in _EXAMPLES.iterdir() if folder.is_dir()]
    assert len(folders) >= 2
    for folder in folders:
        readme = (folder / "README.md").read_text()
        for program in folder.rglob("*.py"):
            ast.parse(program.read_text())
            assert program.name in readme
