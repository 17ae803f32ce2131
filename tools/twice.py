"""List the classes of ``src`` that share a name: no name shall stand for two things.

Names with an underscore belong to their module. Those of ``dohle.protocol.messages`` are Kafka's,
where each message names its parts anew. The others that may stand twice are in
``twice_allowed.txt`` beside this file, one to a line, as ``Connection: the two ends of one``. As in
``unused.py``, an entry without a reason, and one that is not needed any more, are errors too.

    python tools/twice.py [--src SRC] [--allowed FILE]
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from unused import read_allowed

ALLOWED = Path(__file__).with_name("twice_allowed.txt")

_MESSAGES = ("dohle", "protocol", "messages")


def twice(root: Path) -> dict[str, list[str]]:
    """Return where each name is defined, as ``path:line``, of those that are defined twice."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(root.rglob("*.py")):
        if path.relative_to(root).parts[:3] == _MESSAGES:
            continue
        for node in ast.parse(path.read_text(), str(path)).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(f"{path}:{node.lineno}")
    return {name: places for name, places in sorted(found.items()) if len(places) > 1}


def check(root: Path, allowed: str) -> list[str]:
    """Return what is to be mended, one line each."""
    reasons, errors = read_allowed(allowed)
    found = twice(root)
    for name, places in found.items():
        if name not in reasons:
            errors.append(f"{places[0]}: {name} is also the name of {', '.join(places[1:])}")
    errors += [f"{name} is allowed, but does not stand twice" for name in reasons.keys() - found]
    return errors


def main(argv: Sequence[str] | None = None) -> int:
    """Print what is wrong, and return 1 if anything is."""
    parser = argparse.ArgumentParser(description="List the classes that share a name.")
    parser.add_argument("--src", type=Path, default=Path("src"))
    parser.add_argument("--allowed", type=Path, default=ALLOWED)
    args = parser.parse_args(argv)
    errors = check(args.src, args.allowed.read_text())
    for error in errors:
        print(error)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
