"""What commands load: most of the time of a quick command goes into imports."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dohle.cli.main import MODULES, build_parser, command_of

SCRIPT = """\
import sys
from dohle.cli.main import main
code = main(sys.argv[1:])
print(*sorted(sys.modules), sep="\\n", file=sys.stderr)
sys.exit(code)
"""
#: Which rooms of the client and of the command line a command has no use for.
UNUSED: dict[tuple[str, ...], tuple[str, ...]] = {
    ("topic", "list"): (
        "dohle.client.admin.admin",
        "dohle.client.admin.group_values",
        "dohle.client.admin.cluster_values",
        "dohle.client.consumer",
        "dohle.client.group.membership",
        "dohle.client.producer.producer",
        "dohle.cli.commands.start",
    ),
    ("group", "list"): (
        "dohle.client.admin.admin",
        "dohle.client.admin.cluster_values",
        "dohle.client.producer.producer",
        "dohle.cli.commands.topic",
    ),
    ("quota", "list"): ("dohle.client.admin.admin", "dohle.client.consumer"),
}


def loaded(bootstrap: str, *arguments: str) -> set[str]:
    """Run a command in a process of its own, and return the modules that it has loaded."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, "-b", bootstrap, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=Path(os.devnull).parent,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stderr.split())


@pytest.mark.parametrize("arguments", UNUSED)
def test_a_command_loads_only_the_parts_of_the_client_that_it_needs(
    bootstrap: str, arguments: tuple[str, ...]
) -> None:
    found = loaded(bootstrap, *arguments)
    assert "dohle.client.cluster" in found
    never = ("rich", "dohle.server", "dohle.storage", "dohle.security.scram")
    assert [name for name in found if name.startswith((*UNUSED[arguments], *never))] == []


def commands_of(parser: argparse.ArgumentParser) -> list[str]:
    (found,) = (each for each in parser._actions if isinstance(each, argparse._SubParsersAction))
    return list(found.choices)


def test_every_command_is_found_by_its_name_alone() -> None:
    assert commands_of(build_parser()) == list(MODULES)
    for name in MODULES:
        assert commands_of(build_parser([name])) == [name]


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("topic list", "topic"),
        ("-b localhost:1 --json topic list", "topic"),
        ("--bootstrap=localhost:1 topic list", "topic"),
        ("-b topic consume orders", "consume"),
        ("--boot topic consume orders", None),
        ("topics list", None),
        ("--help", None),
        ("", None),
    ],
)
def test_options_before_the_command_do_not_hide_it(words: str, name: str | None) -> None:
    assert command_of(words.split()) == name
