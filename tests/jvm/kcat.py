"""kcat: the one that is installed, or Debian's, unpacked into a folder that is kept.

Nothing is installed, nobody must be root, and apt's own lists are left alone.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.jvm.jvm import DEADLINE_S, Ran
from tests.jvm.kept import Unavailable, made, need, run
from tests.jvm.oracle import CACHE

#: kcat, and the libraries it needs that are not on every machine.
_PACKAGES = ["kcat", "librdkafka1", "libyajl2", "libsasl2-2"]


class Kcat:
    """The program, against one broker; a run that fails fails the test."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._program = shutil.which("kcat")
        self._libraries: list[Path] = []
        if self._program is None:
            need("apt-get", "dpkg-deb")
            root = made(CACHE, "kcat", [Path(__file__)], _unpack)
            self._program = str(root / "usr/bin/kcat")
            self._libraries = sorted((root / "usr/lib").glob("*-linux-*"))

    def __call__(self, *arguments: str, stdin: str = "") -> list[str]:
        """Return the lines that it prints."""
        assert self._program is not None
        path = [*map(str, self._libraries), os.environ.get("LD_LIBRARY_PATH", "")]
        done = subprocess.run(
            [self._program, "-b", self._bootstrap, *arguments],
            env={**os.environ, "LD_LIBRARY_PATH": ":".join(filter(None, path))},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        ran = Ran(done.returncode, done.stdout, done.stderr)
        assert ran.code == 0, ran
        return ran.lines


def _unpack(folder: Path) -> None:
    fetched = folder / "fetched"
    for place in ("state/lists/partial", "cache/archives/partial"):
        (fetched / place).mkdir(parents=True)
    apt = [
        "apt-get",
        "-qq",
        "-o",
        f"Dir::State={fetched}/state",
        "-o",
        f"Dir::Cache={fetched}/cache",
    ]
    run(*apt, "-o", "APT::Sandbox::User=root", "update")
    run(*apt, "-o", "APT::Sandbox::User=root", "download", *_PACKAGES, folder=fetched)
    packages = sorted(fetched.glob("*.deb"))
    if len(packages) != len(_PACKAGES):
        raise Unavailable(f"apt-get has brought {packages}")
    for package in packages:
        run("dpkg-deb", "--extract", str(package), str(folder))
    shutil.rmtree(fetched)
