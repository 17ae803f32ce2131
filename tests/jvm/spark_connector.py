"""The jars of Spark's own connector for Kafka, in a folder that is made once and kept."""

from __future__ import annotations

from pathlib import Path

from tests.jvm.kept import made, need, run
from tests.jvm.oracle import CACHE, HERE

_POM = HERE / "spark" / "pom.xml"


def jars() -> list[Path]:
    """Return the jars, having Maven fetch them first if they are not there."""
    need("java", "mvn")
    return sorted(made(CACHE, "spark-connector", [_POM], _copy_jars).glob("*.jar"))


def _copy_jars(folder: Path) -> None:
    run(
        *("mvn", "-q", "-B", "-f", str(_POM), "dependency:copy-dependencies"),
        *(f"-DoutputDirectory={folder}", "-DincludeScope=runtime"),
    )
