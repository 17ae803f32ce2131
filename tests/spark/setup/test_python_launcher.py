"""The Python of Spark's workers: the archive is off its path, the rest of the path stays."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dohle.spark.setup.python_launcher import make_python_launcher

_TELL = "import json, os, sys; print(json.dumps([os.environ.get('PYTHONPATH'), sys.argv[1:]]))"


@pytest.mark.parametrize(
    ("path", "left"),
    [
        ("{lib}/pyspark.zip:{lib}/py4j-1-src.zip", ""),
        ("{lib}/pyspark.zip:/a b/c::/d", "/a b/c:/d"),
        ("/x:{lib}/pyspark.zip", "/x"),
        ("/other{lib}/pyspark.zip", "/other{lib}/pyspark.zip"),
        ("", ""),
    ],
)
def test_only_the_archives_of_spark_are_taken_off_the_path(
    tmp_path: Path, path: str, left: str
) -> None:
    lib = tmp_path / "it's" / "python" / "lib"
    program = make_python_launcher(sys.executable, tmp_path / "it's", [tmp_path / "cache"])

    done = subprocess.run(
        [program, "-c", _TELL, "a b", "*"],
        env={"PYTHONPATH": path.format(lib=lib)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert json.loads(done.stdout) == [left.format(lib=lib), ["a b", "*"]]
