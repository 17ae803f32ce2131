"""A folder with the nodes of a cluster, as ``dohle start --nodes`` lays it out."""

from __future__ import annotations

from pathlib import Path

from dohle.cli.errors import CliError


def nodes_in(folder: Path) -> list[Path]:
    """Return the directories of the nodes, by their numbers."""
    return sorted(
        (path.parent for path in folder.glob("[0-9]*/meta.properties")),
        key=lambda path: (len(path.name), path.name),
    )


def refuse_folder_of_nodes(folder: Path, default: Path) -> None:
    """Refuse to make a node of a folder that has the nodes of a cluster: they could not start."""
    found = nodes_in(folder)
    if not found or (folder / "meta.properties").exists():
        return
    names = ", ".join(path.name for path in found)
    option = "" if folder == default else f" --data {folder}"
    files = [path / "server.properties" for path in found]
    one = next((f"one of them with --config {file}, " for file in files if file.exists()), "")
    raise CliError(
        f"{folder} has the nodes {names} of a cluster: start it with `dohle start --nodes "
        f"{len(found)}{option}`, {one}or choose another folder with --data"
    )
