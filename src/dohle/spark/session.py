"""``dohle.spark.session()``: a Spark session that needs nothing but the installed packages.

It chooses the Java, uses this Python for workers, and in local mode keeps every port on the
loopback address. Its choices are one line in the log ``dohle.spark``.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from dohle.spark.setup import launchers
from dohle.spark.setup.java import Java, JavaUnavailable, find_java
from dohle.spark.setup.python_launcher import make_python_launcher

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger("dohle.spark")

LOOPBACK = "127.0.0.1"
DEFAULT_MASTER = "local[*]"

#: Set by spark-submit for the Python program it runs: Java, master and addresses are given.
_SUBMITTED = "PYSPARK_GATEWAY_PORT"


class SparkUnavailable(RuntimeError):
    """Spark is not installed, or cannot start; the text says what to do."""


def session(
    app_name: str = "dohle",
    master: str | None = None,
    config: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return a Spark session, the running one if there is one.

    ``master`` is ``local[*]`` unless it is given, or set by spark-submit. ``config`` holds Spark's
    own settings and overrides everything that is set here.
    """
    if find_spec("pyspark") is None:
        raise SparkUnavailable("Spark is not installed; `pip install dohle[spark]` installs it")
    from pyspark.sql import SparkSession

    if (running := SparkSession.getActiveSession()) is not None:
        _log.info("Spark %s is already running", running.version)
        return SparkSession.builder.config(map=dict(config or {})).getOrCreate()
    builder = SparkSession.builder.appName(app_name)
    if _SUBMITTED in os.environ and master is None:
        settings: Mapping[str, str] = {}
        said = "as submitted"
    else:
        master = master or DEFAULT_MASTER
        java = prepare_environment(os.environ, is_local=is_local(master))
        builder = builder.master(master)
        settings = default_settings(master)
        said = f"on {master} with {java}, Python {os.environ['PYSPARK_PYTHON']}"
    started = builder.config(map={**settings, **(config or {})}).getOrCreate()
    _log.info("Spark %s runs %s", started.version, said)
    return started


def is_local(master: str) -> bool:
    """Tell whether a master uses processes of this machine only."""
    return master.startswith("local")


def prepare_environment(environment: dict[str, str] | os._Environ[str], *, is_local: bool) -> Java:
    """Set what Spark's scripts read, keep what the user has set, and return the Java."""
    try:
        java = find_java(environment)
    except JavaUnavailable as error:
        raise SparkUnavailable(str(error)) from None
    environment["JAVA_HOME"] = str(java.home)
    environment.setdefault("PYSPARK_PYTHON", _python(environment, is_local=is_local))
    if is_local:
        # Otherwise Spark resolves the machine's name and uses the first address it finds.
        environment.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    return java


def _python(environment: Mapping[str, str], *, is_local: bool) -> str:
    """Return this Python, by the faster launcher if Spark's files are those of the package."""
    package = find_spec("pyspark")
    if not is_local or "SPARK_HOME" in environment or package is None or package.origin is None:
        return sys.executable
    caches = launchers.cache_folders(environment)
    try:
        return str(make_python_launcher(sys.executable, Path(package.origin).parent, caches))
    except launchers.LauncherUnavailable:
        return sys.executable


def default_settings(master: str) -> dict[str, str]:
    """Return the settings that differ from Spark's own defaults."""
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Filters on partition, offset and time reduce what is read.
        "spark.sql.python.filterPushdown.enabled": "true",
    }
    if is_local(master):
        settings["spark.driver.host"] = LOOPBACK
        settings["spark.driver.bindAddress"] = LOOPBACK
    return settings
