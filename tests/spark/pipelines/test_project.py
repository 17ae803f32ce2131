"""Projects of pipelines: how they are made and found."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from dohle.spark.pipelines.project import Project, ProjectError, find_project, make_project


def test_a_project_is_made_of_files_that_can_be_read(tmp_path: Path) -> None:
    from pyspark.pipelines.cli import load_pipeline_spec

    folder = make_project("shop", tmp_path)

    spec = load_pipeline_spec(folder / "spark-pipeline.yml")
    assert spec.name == "shop"
    assert spec.configuration["dohle.bootstrap"] == "localhost:9092"
    flows = (folder / "transformations" / "orders.py").read_text()
    ast.parse(flows)
    assert '"shop-orders-dead"' in flows
    assert "FROM STREAM orders" in (folder / "transformations" / "revenue.sql").read_text()
    assert (folder / ".gitignore").read_text() == ".pipeline/\ntables/\n"
    for file in folder.rglob("*"):
        assert file.is_dir() or "@" not in file.read_text().replace("@dp.", "")


@pytest.mark.parametrize("name", ["", "1st", "../up", "a b", "ü"])
def test_a_name_that_no_topic_can_have_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ProjectError, match="cannot name topics"):
        make_project(name, tmp_path)


def test_a_project_is_not_made_where_something_is(tmp_path: Path) -> None:
    make_project("shop", tmp_path)

    with pytest.raises(ProjectError, match="already exists"):
        make_project("shop", tmp_path)


def test_a_project_is_found_by_folder_by_file_and_from_below(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_project("shop", tmp_path)
    expected = Project(folder / "spark-pipeline.yml")
    monkeypatch.chdir(folder / "transformations")

    assert find_project(None) == expected
    assert find_project(str(folder)) == expected
    assert find_project(str(folder / "spark-pipeline.yml")) == expected


def test_where_there_is_no_project_the_error_says_how_to_make_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(ProjectError, match="`dohle pipeline init NAME` creates a project"):
        find_project(None)
    with pytest.raises(ProjectError, match=r"has no spark-pipeline\.yml"):
        find_project(str(tmp_path))
    with pytest.raises(ProjectError, match="no such folder or file"):
        find_project(str(tmp_path / "nothing"))


def test_storage_is_a_path_of_the_project_or_a_place_elsewhere(tmp_path: Path) -> None:
    project = Project(tmp_path / "spark-pipeline.yml")

    assert project.storage("a/b") == f"file://{tmp_path}/a/b"
    assert project.storage("s3a://bucket/b") == "s3a://bucket/b"
    assert project.storage("file:///x") == "file:///x"
