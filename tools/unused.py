"""List functions, methods and classes of ``src`` that nothing in ``src`` uses.

Tests do not count: what only they call is tested for nobody. A name counts as used where ``src``
reads it (``f``, ``x.f``) or where a string is exactly that name (``__all__``, ``getattr``); its own
body and imports do not count. Names are not resolved, so one ``close`` that is called keeps all of
them: the list may be too short, but has nothing on it that ``src`` uses.

What is called from outside is in ``unused_allowed.txt`` beside this file, one name to a line, as
``dohle.client.run: part of the public interface``. An entry without a reason, and one that is not
needed any more, are errors too.

    python tools/unused.py [--src SRC] [--allowed FILE]
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

ALLOWED = Path(__file__).with_name("unused_allowed.txt")

#: Decorators whose functions are called by what the decorator hands them to.
_REGISTERING = frozenset({"fixture", "overload", "register", "singledispatch"})
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True, slots=True)
class Unused:
    """A definition without a user."""

    path: Path
    line: int
    #: With its module and class, as in ``dohle.core.seams.ManualClock.advance``.
    name: str


def unused(root: Path) -> list[Unused]:
    """Return what is defined below ``root`` and used nowhere below it."""
    trees = {path: ast.parse(path.read_text(), str(path)) for path in sorted(root.rglob("*.py"))}
    uses: Counter[str] = Counter()
    for tree in trees.values():
        uses.update(_uses(tree))
    found = []
    for path, tree in trees.items():
        module = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
        for qualified, definition in _definitions(tree, module):
            # A definition that only calls itself has no caller.
            own = Counter(_uses(definition))[definition.name]
            if uses[definition.name] <= own and not _is_called_unseen(definition):
                found.append(Unused(path, definition.lineno, qualified))
    return found


def _definitions(node: ast.AST, prefix: str) -> Iterator[tuple[str, Definition]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _DEFINITIONS):
            qualified = f"{prefix}.{child.name}"
            yield qualified, child
            if isinstance(child, ast.ClassDef):
                yield from _definitions(child, qualified)
        elif isinstance(child, ast.If | ast.Try | ast.ExceptHandler):
            yield from _definitions(child, prefix)


def _uses(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name, ctx=ast.Load()):
                yield name
            case ast.Constant(value=str(name)) if name.isidentifier():
                yield name
            case ast.MatchClass(kwd_attrs=names):
                yield from names


def _is_called_unseen(definition: Definition) -> bool:
    if definition.name.startswith("__") and definition.name.endswith("__"):
        return True
    decorators = {
        name for decorator in definition.decorator_list for name in _decorator_names(decorator)
    }
    return not decorators.isdisjoint(_REGISTERING)


def _decorator_names(decorator: ast.expr) -> Iterator[str]:
    target = decorator.func if isinstance(decorator, ast.Call) else decorator
    if isinstance(target, ast.Attribute):
        yield target.attr
    elif isinstance(target, ast.Name):
        yield target.id


def read_allowed(text: str) -> tuple[dict[str, str], list[str]]:
    """Return the reason for each allowed pattern, and what is wrong with the list."""
    reasons, errors = {}, []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, _, reason = (part.strip() for part in line.partition(":"))
        if not reason:
            errors.append(f"line {number}: {name} has no reason")
        elif name in reasons:
            errors.append(f"line {number}: {name} is there twice")
        reasons[name] = reason
    return reasons, errors


def check(root: Path, allowed: str) -> list[str]:
    """Return what is to be mended, one line each."""
    reasons, errors = read_allowed(allowed)
    needed = set()
    for one in unused(root):
        matching = [pattern for pattern in reasons if fnmatchcase(one.name, pattern)]
        needed.update(matching)
        if not matching:
            errors.append(f"{one.path}:{one.line}: nothing uses {one.name}")
    errors += [f"{name} is allowed, but is used or gone" for name in reasons if name not in needed]
    return errors


def main(argv: Sequence[str] | None = None) -> int:
    """Print what is wrong, and return 1 if anything is."""
    parser = argparse.ArgumentParser(description="List what nothing in src uses.")
    parser.add_argument("--src", type=Path, default=Path("src"))
    parser.add_argument("--allowed", type=Path, default=ALLOWED)
    args = parser.parse_args(argv)
    errors = check(args.src, args.allowed.read_text())
    for error in errors:
        print(error)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
