"""On executors that are processes of their own, with the package shipped as the README says.

Spark starts a master, two workers and an executor for each of them (``local-cluster``), as it does
on machines apart. Driver and executors run in a Python environment that has what dohle needs, but
not dohle: that comes with the program, as an archive. A pipeline runs there too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any

import pyspark
import pytest

from dohle.spark import find_java
from dohle.spark.pipelines.project import make_project
from dohle.testing import Broker
from tests.spark.conftest import NewTopicName
from tests.spark.source.reading import ask, consume, produce

_ROOT = Path(__file__).parents[2]
_PROGRAM = Path(__file__).with_name("local_cluster_program.py")
_DEADLINE_S = 400
_ROWS = 60


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """The package, by the command of the README."""
    path = tmp_path / "dohle.zip"
    packages = [str(_ROOT / "src" / name) for name in ("dohle", "pyspark_dohle")]
    subprocess.run([sys.executable, "-m", "zipfile", "-c", path, *packages], check=True)
    return path


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """The Python of an environment with all that is in this one, except dohle."""
    packages = Path(sysconfig.get_path("purelib"))
    environment = tmp_path / "environment"
    theirs = environment / packages.relative_to(sys.prefix)
    theirs.mkdir(parents=True)
    for entry in packages.iterdir():
        if "dohle" not in entry.name:
            (theirs / entry.name).symlink_to(entry)
    (environment / "pyvenv.cfg").symlink_to(Path(sys.prefix) / "pyvenv.cfg")
    (environment / "bin").mkdir()
    path = environment / "bin" / "python"
    path.symlink_to(Path(sys.executable).resolve())
    return path


@pytest.fixture
def spark_home(tmp_path: Path) -> Path:
    """Spark as it is installed, in a folder where its workers may put their files."""
    folder = tmp_path / "spark"
    folder.mkdir()
    for entry in Path(pyspark.__file__).parent.iterdir():
        if entry.name != "work":
            (folder / entry.name).symlink_to(entry)
    return folder


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.xdist_group("spark-processes")
def test_executors_of_their_own_read_and_write_with_the_package_shipped_to_them(
    broker: Broker,
    new_topic: NewTopicName,
    archive: Path,
    python: Path,
    spark_home: Path,
    tmp_path: Path,
) -> None:
    source, copied, loud, halves, dead = topics = [new_topic(partitions=4) for _ in range(5)]
    for partition in range(4):
        rows = (b"row %d" % number for number in range(_ROWS) if number % 4 == partition)
        produce(broker, source, rows, partition=partition)

    said = submit(spark_home, python, archive, [broker.bootstrap, str(tmp_path), *topics])

    assert str(archive.name) in said["driver"]
    executors, origins = zip(*said["tasks"], strict=True)
    assert len(set(executors)) == 2
    assert all(str(spark_home / "work") in executor for executor in executors)
    assert all(archive.name in origin for origin in origins)
    sent = [b"row %d" % number for number in range(_ROWS)]
    assert committed(broker, copied) == Counter(sent)
    assert committed(broker, loud) == Counter(value.upper() for value in sent)
    assert committed(broker, halves) == Counter(b"%d" % number for number in range(_ROWS // 2))
    assert committed(broker, dead) == Counter(sent[1::2])
    assert ask(broker, lambda admin: admin.list_transactions(states=("Ongoing",))) == ()


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.xdist_group("spark-processes")
def test_a_pipeline_runs_on_executors_of_their_own(
    broker: Broker, spark_home: Path, tmp_path: Path
) -> None:
    """Here their Python is one that has dohle installed."""
    project = make_project("cluster", tmp_path)
    produce(broker, "cluster-orders", (project / "sample-orders.jsonl").read_bytes().splitlines())
    command = [
        *(sys.executable, "-m", "dohle", "-b", broker.bootstrap),
        "--json",
        "pipeline",
        "run",
    ]
    done = subprocess.run(
        [*command, str(project), "--master", "local-cluster[2,1,1024]"],
        env={**os.environ, "SPARK_HOME": str(spark_home)},
        capture_output=True,
        text=True,
        timeout=_DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, f"{done.stderr}\n{done.stdout}"
    assert json.loads(done.stdout.splitlines()[-1])["state"] == "COMPLETED"
    clean = committed(broker, "cluster-orders-clean")
    orders = Counter(json.loads(value or b"")["order_id"] for value in clean.elements())
    assert orders == Counter(["o-1", "o-2", "o-3", "o-5"])
    assert committed(broker, "cluster-orders-dead").total() == 2
    executors = {each.name for each in (spark_home / "work").glob("*/*")}
    assert executors == {"0", "1"}


def submit(spark_home: Path, python: Path, archive: Path, arguments: list[str]) -> Any:
    """Run the program on a cluster, and return what it says."""
    folder = spark_home.parent
    settings = {
        # Tasks wait until both executors are there, or one might do all of the work.
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
    }
    command = [str(spark_home / "bin" / "spark-submit"), "--master", "local-cluster[2,1,1024]"]
    command += chain.from_iterable(
        ("--conf", f"{name}={value}") for name, value in settings.items()
    )
    command += ["--py-files", archive.name, str(_PROGRAM), *arguments]
    environment = {
        **os.environ,
        "JAVA_HOME": str(find_java().home),
        "PYSPARK_PYTHON": str(python),
        "PYTHONPATH": archive.name,
        "SPARK_HOME": str(spark_home),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    done = subprocess.run(
        command,
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=_DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, f"{done.stderr}\n{done.stdout}"
    return json.loads((folder / "places.json").read_text())


def committed(broker: Broker, topic: str) -> Counter[bytes | None]:
    """Return the values that a reader of committed records sees, and how often."""
    return Counter(row.value for row in consume(broker, [topic], "read_committed"))
