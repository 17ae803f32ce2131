"""Apache Kafka's jars and our Java mains, in a folder that is made once and kept.

Maven lays the jars of ``pom.xml`` side by side; where it takes them from is for its own settings
to say. The folder's name follows from what it is made of, so a change makes a new one.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).parent
CACHE = HERE / ".cache"

_POM = HERE / "pom.xml"
_SOURCES = sorted((HERE / "java").glob("*.java"))


class Unavailable(Exception):
    """Apache Kafka cannot be had here: a tool is missing, or it failed."""


def classpath() -> str:
    """Return all jars and our own classes, making them first if they are not there."""
    for tool in ("java", "javac", "mvn"):
        if shutil.which(tool) is None:
            raise Unavailable(f"these tests run Apache Kafka, and {tool} is not on this machine")
    jars = _made("jars", [_POM], _copy_jars)
    classes = _made("classes", [_POM, *_SOURCES], lambda folder: _compile(jars, folder))
    return f"{classes}:{jars}/*"


def _made(kind: str, sources: list[Path], make: Callable[[Path], None]) -> Path:
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    folder = CACHE / f"{kind}-{digest}"
    if not folder.exists():
        CACHE.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as unfinished:
            made = Path(unfinished) / kind
            made.mkdir()
            make(made)
            made.rename(folder)
    return folder


def _copy_jars(folder: Path) -> None:
    _run(
        *("mvn", "-q", "-B", "-f", str(_POM), "dependency:copy-dependencies"),
        *(f"-DoutputDirectory={folder}", "-DincludeScope=runtime"),
    )


def _compile(jars: Path, folder: Path) -> None:
    _run(
        *("javac", "-Xlint:all,-classfile,-processing,-serial", "-Werror", "-proc:none"),
        *("-cp", f"{jars}/*", "-d", str(folder), *map(str, _SOURCES)),
    )


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unavailable(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
