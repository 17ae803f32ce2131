"""Rules of the house that no linter knows."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

TESTS = Path(__file__).parents[1]


def imported_modules(path: Path) -> set[str]:
    nodes = ast.walk(ast.parse(path.read_text()))
    return {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}


def test_what_several_tests_use_is_in_a_module_of_its_own() -> None:
    offenders = [
        f"{path.relative_to(TESTS)} imports {module}"
        for path in sorted(TESTS.rglob("*.py"))
        for module in imported_modules(path)
        if module.startswith("tests.") and module.rpartition(".")[2].startswith("test_")
    ]
    assert offenders == []


def created_topics(test: ast.AST) -> Iterator[str]:
    """Names that ``command.out("topic", "create", ...)`` and the like create."""
    for call in ast.walk(test):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
            given = [each.value if isinstance(each, ast.Constant) else None for each in call.args]
            is_shared = isinstance(call.func.value, ast.Name) and call.func.value.id == "command"
            if is_shared and given[:2] == ["topic", "create"]:
                names = takewhile(lambda each: isinstance(each, str) and each[:1] != "-", given[2:])
                yield from map(str, names)


def test_tests_of_commands_share_no_topic() -> None:
    """They share a broker, and run in any order."""
    tests: dict[str, set[str]] = defaultdict(set)
    for path in sorted((TESTS / "cli").rglob("test_*.py")):
        for test in ast.parse(path.read_text()).body:
            if isinstance(test, ast.FunctionDef):
                for name in created_topics(test):
                    tests[name].add(f"{path.name}::{test.name}")
    assert {name: found for name, found in tests.items() if len(found) > 1} == {}
