"""The packages of ``package-lock.json``, in a folder that is made once and kept.

kafkajs is JavaScript alone. @confluentinc/kafka-javascript holds librdkafka: its ready-made binary
would come from elsewhere than the registry, so it is built here, which takes a C and C++ compiler
and a minute or two. It is linked against the libraries of the system because its own would be
fetched too, and not optimized because nothing is measured with it.

``python -m tests.node.packages`` makes the folder.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from tests.jvm.kept import Unavailable, made, need, run

HERE = Path(__file__).parent
CACHE = HERE / ".cache"

_MANIFESTS = [HERE / "package.json", HERE / "package-lock.json"]
_BUILT_HERE = {
    "npm_config_build_from_source": "true",
    "CKJS_LINKING": "dynamic",
    "CFLAGS": "-O0",
    "CXXFLAGS": "-O0",
}


def modules() -> Path:
    """Return the folder that Node finds the packages in, making it first if it is not there."""
    need("node", "npm", "make", "gcc", "g++")
    return made(CACHE, "packages", _MANIFESTS, _install) / "node_modules"


def _install(folder: Path) -> None:
    for manifest in _MANIFESTS:
        shutil.copy(manifest, folder)
    run("npm", "ci", "--no-audit", "--no-fund", folder=folder, environment=_BUILT_HERE)


if __name__ == "__main__":
    try:
        modules()
    except Unavailable as reason:
        sys.exit(f"tests/node: {reason}")
