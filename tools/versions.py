"""Run the fast tests and a few of real clients on every supported Python that is to be had.

    python tools/versions.py [--others] [3.12 3.13 ...]

Each version gets a virtual environment ``.venv-X.Y`` with the base install and the extra
``test-fast``. The newest of them runs once more with uvloop taken away, which has to make no
difference. A version that is not on this machine is skipped, and told so: found are those on the
PATH (``python3.12``), pyenv's and uv's. ``--others`` leaves out the version that runs this: for
where all tests have just been run on it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from time import monotonic

ROOT = Path(__file__).parents[1]
VERSIONS = ("3.11", "3.12", "3.13")
OWN = f"{sys.version_info.major}.{sys.version_info.minor}"
#: Our client and librdkafka with a broker in the process; a foreign client with one that is
#: started by ``dohle start``, and so on uvloop if that is there.
SMOKE = (
    "tests/client/test_with_librdkafka.py",
    "tests/interop/test_produce_consume.py::test_what_one_client_writes_another_reads",
    "tests/interop/test_connections.py::test_a_command_is_carried_out_though_its_client_leaves",
)


def find_python(version: str) -> Path | None:
    """Return an interpreter of a version, if there is one."""
    if version == OWN:
        return Path(sys.executable)
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    candidates = sorted(pyenv.glob(f"versions/{version}.*/bin/python"))
    if on_path := shutil.which(f"python{version}"):
        candidates.append(Path(on_path))
    if uv := shutil.which("uv"):
        found = subprocess.run([uv, "python", "find", version], capture_output=True, text=True)
        if found.returncode == 0:
            candidates.append(Path(found.stdout.strip()))
    # A shim of pyenv's is there for versions that are not chosen, too.
    return next((path for path in reversed(candidates) if _is(path, version)), None)


def _is(path: Path, version: str) -> bool:
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run([path, "-c", code], capture_output=True, text=True)
    except OSError:
        return False
    return done.returncode == 0 and done.stdout.strip() == version


def install(python: Path, version: str) -> Path:
    """Make the environment of a version, or bring it up to date; return its folder."""
    folder = ROOT / f".venv-{version}"
    if not (folder / "bin" / "python").exists():
        subprocess.run([python, "-m", "venv", folder], check=True)
    options = ["--quiet", "--disable-pip-version-check", "--constraint", "constraints.txt"]
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", *options]
    subprocess.run([*pip, "--editable", ".[test-fast]"], cwd=ROOT, check=True)
    return folder


def run_tests(folder: Path, *, fast: bool) -> bool:
    """Run the tests in an environment, and tell whether they pass."""
    python = str(folder / "bin" / "python")
    if fast:
        make = ["make", "test-fast", f"VENV={folder}"]
        # There is no extra of all tests in it; make must not install one.
        (folder / ".installed-test").touch()
        if subprocess.run(make, cwd=ROOT).returncode:
            return False
    smoke = [python, "-m", "pytest", "-q", "-n", "2", *SMOKE]
    return subprocess.run(smoke, cwd=ROOT).returncode == 0


def main(argv: Sequence[str] | None = None) -> int:
    """Test on all versions; return 1 if any of them fails."""
    parser = argparse.ArgumentParser(description="Test on every supported Python there is.")
    parser.add_argument("versions", nargs="*", default=VERSIONS)
    parser.add_argument("--others", action="store_true", help="not the version that runs this")
    options = parser.parse_args(argv)
    results: list[tuple[str, str, float]] = []
    last: Path | None = None
    for version in options.versions:
        if options.others and version == OWN:
            continue
        began = monotonic()
        python = find_python(version)
        if python is None:
            results.append((f"Python {version}", "skipped: not on this machine", 0.0))
            continue
        last = install(python, version)
        passed = run_tests(last, fast=True)
        results.append((f"Python {version}", _word(passed), monotonic() - began))
    if last is None and OWN in options.versions:
        last = install(Path(sys.executable), OWN)
    if last is not None:
        began = monotonic()
        pip = [str(last / "bin" / "python"), "-m", "pip"]
        subprocess.run([*pip, "uninstall", "--quiet", "--yes", "uvloop"], check=True)
        passed = run_tests(last, fast=False)
        name = f"Python {last.name.removeprefix('.venv-')} without uvloop"
        results.append((name, _word(passed), monotonic() - began))
    for name, outcome, seconds in results:
        print(f"{name}: {outcome} ({seconds:.0f} s)")
    return 1 if any(outcome == "failed" for _, outcome, _ in results) else 0


def _word(passed: bool) -> str:
    return "passed" if passed else "failed"


if __name__ == "__main__":
    sys.exit(main())
