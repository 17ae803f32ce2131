"""Apache Kafka's jars and our Java mains, in folders that are made once and kept.

Maven lays the jars of ``pom.xml`` side by side; where it takes them from is for its own settings
to say.
"""

from __future__ import annotations

from pathlib import Path

from tests.jvm.kept import Unavailable, made, need, run

__all__ = ["CACHE", "Unavailable", "classpath"]

HERE = Path(__file__).parent
CACHE = HERE / ".cache"

_POM = HERE / "pom.xml"
_SOURCES = sorted((HERE / "java").glob("*.java"))


def classpath() -> str:
    """Return all jars and our own classes, making them first if they are not there."""
    need("java", "javac", "mvn")
    jars = made(CACHE, "jars", [_POM], _copy_jars)
    classes = made(CACHE, "classes", [_POM, *_SOURCES], lambda folder: _compile(jars, folder))
    return f"{classes}:{jars}/*"


def _copy_jars(folder: Path) -> None:
    run(
        *("mvn", "-q", "-B", "-f", str(_POM), "dependency:copy-dependencies"),
        *(f"-DoutputDirectory={folder}", "-DincludeScope=runtime"),
    )


def _compile(jars: Path, folder: Path) -> None:
    run(
        *("javac", "-Xlint:all,-classfile,-processing,-serial", "-Werror", "-proc:none"),
        *("-cp", f"{jars}/*", "-d", str(folder), *map(str, _SOURCES)),
    )
