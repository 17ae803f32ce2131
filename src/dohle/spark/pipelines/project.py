"""A pipeline project: a folder with a ``spark-pipeline.yml``; created and found here.

Below ``.pipeline`` it keeps what runs leave behind: checkpoints, the catalog, and Spark's log.
Tables are Parquet files below ``tables``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

SPEC_NAMES = ("spark-pipeline.yml", "spark-pipeline.yaml")

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,99}")
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")

#: The suffix of the template's files, and the placeholder for the project's name in them.
_SUFFIX = ".in"
_PLACEHOLDER = "@name@"


class ProjectError(ValueError):
    """A project that cannot be created, or does not exist; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Project:
    """The paths of a project."""

    spec: Path

    @property
    def folder(self) -> Path:
        """The project's folder."""
        return self.spec.parent

    @property
    def state(self) -> Path:
        """Where runs keep their state."""
        return self.folder / ".pipeline"

    @property
    def log(self) -> Path:
        """Spark's log."""
        return self.state / "spark.log"

    @property
    def tables(self) -> Path:
        """Where tables are."""
        return self.folder / "tables"

    def storage(self, named: str) -> str:
        """Return the folder of checkpoints; a relative path starts at the project's folder."""
        if _URI.match(named):
            return named
        return (self.folder / named).resolve().as_uri()


def find_project(path: str | None) -> Project:
    """Return the project of a folder or spec file; by default of this folder or one above."""
    if path is None:
        here = Path.cwd()
        for folder in (here, *here.parents):
            if spec := _spec_in(folder):
                return Project(spec)
        raise ProjectError(
            f"neither {here} nor a folder above has a {SPEC_NAMES[0]}; `dohle pipeline init "
            "NAME` creates a project"
        )
    given = Path(path)
    if given.is_dir():
        if spec := _spec_in(given.resolve()):
            return Project(spec)
        raise ProjectError(f"{path} has no {SPEC_NAMES[0]}")
    if given.is_file():
        return Project(given.resolve())
    raise ProjectError(f"{path}: no such folder or file")


def _spec_in(folder: Path) -> Path | None:
    for name in SPEC_NAMES:
        if (folder / name).is_file():
            return folder / name
    return None


def make_project(name: str, parent: Path) -> Path:
    """Create a project with flows that run, in a new folder."""
    if not _NAME.fullmatch(name):
        raise ProjectError(
            f"{name!r} cannot name topics and tables: letters, digits, - and _ can, a letter first"
        )
    folder = parent / name
    if folder.exists():
        raise ProjectError(f"{folder} already exists; choose another name or remove it")
    _copy(files(__package__) / "template", folder, name)
    return folder


def _copy(source: Traversable, target: Path, name: str) -> None:
    target.mkdir()
    for entry in source.iterdir():
        if entry.is_dir():
            _copy(entry, target / entry.name, name)
        elif entry.name.endswith(_SUFFIX):
            text = entry.read_text(encoding="utf-8").replace(_PLACEHOLDER, name)
            (target / entry.name.removesuffix(_SUFFIX)).write_text(text, encoding="utf-8")
