"""A Python for Spark's workers that imports pyspark from where it is installed.

Spark puts its own archive first on its workers' path. Modules in an archive are compiled again in
every process, which triples a worker's start-up time; a stream starts several, and Spark gives up
on one that does not start within ten seconds. If pyspark is installed, the archive has nothing that
the installed files do not: the launcher removes it from the path.
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
    """Return a script that runs ``python`` without the archives below the folder ``pyspark``."""
    script = _SCRIPT.format(
        archives=shlex.quote(str(pyspark / "python" / "lib")), python=shlex.quote(python)
    )
    return launchers.make("python", "python", script, caches, lambda folder: None) / "python"
