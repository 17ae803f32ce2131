"""A Python for Spark's workers that imports pyspark from where it is installed.

Spark puts the archive it ships with first on its workers' path. Modules in an archive are compiled
anew in every process, which triples the time a worker takes to start; a stream starts several, and
Spark gives up on one that is not there within ten seconds. Where pyspark is installed, the archive
says nothing that the installed files do not: the launcher takes it off the path.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from dohle.spark.setup import launchers

_SCRIPT = """\
#!/bin/sh
# Imports pyspark from where it is installed: {archives} holds the same, uncompiled.
rest="$PYTHONPATH:"
PYTHONPATH=
while [ -n "$rest" ]; do
    entry="${{rest%%:*}}"
    rest="${{rest#*:}}"
    case "$entry" in
        "" | {archives}/*.zip) ;;
        *) PYTHONPATH="${{PYTHONPATH:+$PYTHONPATH:}}$entry" ;;
    esac
done
export PYTHONPATH
exec {python} "$@"
"""


def make_python_launcher(python: str, pyspark: Path, caches: Sequence[Path]) -> Path:
    """Return a program that is ``python`` without the archives below the folder ``pyspark``."""
    script = _SCRIPT.format(
        archives=shlex.quote(str(pyspark / "python" / "lib")), python=shlex.quote(python)
    )
    return launchers.make("python", "python", script, caches, lambda folder: None) / "python"
