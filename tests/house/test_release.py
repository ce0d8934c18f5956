"""What is released: one version everywhere, archives of the library and nothing else, links that work on the index."""

import importlib.util
import io
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from types import ModuleType

import pytest
from test_structure import ROOT

import lvsearch


def script(name: str) -> ModuleType:
    """A script of .ci, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / ".ci" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


check_release = script("check_release")
absolute_links = script("absolute_links").absolute_links
MODULES = {"lvsearch/__init__.py", "lvsearch/models/lda.py"}


# --- One version ------------------------------------------------------------------------------------------------------


def test_every_file_has_the_version_of_pyproject():
    assert check_release.version_problems() == []
    assert check_release.version_problems(tag=f"v{check_release.package_version()}") == []


def test_the_library_says_the_version_it_was_installed_as():
    assert lvsearch.__version__ == check_release.package_version(), "install the checkout again"


def test_another_version_is_found_wherever_it_stands(tmp_path: Path):
    (tmp_path / ".conda").mkdir()
    for name in ("pyproject.toml", "CITATION.cff", "CHANGELOG.md", ".conda/recipe.yaml"):
        (tmp_path / name).write_text((ROOT / name).read_text(encoding="utf-8"), encoding="utf-8")
    project = tmp_path / "pyproject.toml"
    version = check_release.package_version()
    project.write_text(project.read_text(encoding="utf-8").replace(f'version = "{version}"', 'version = "9.8.7"'))
    found = check_release.version_problems(tmp_path, "v9.8.6")
    for name in ("tag", "CITATION.cff", "CHANGELOG.md", "recipe.yaml"):
        assert [problem for problem in found if name in problem and "9.8.7" in problem]


# --- What the archives hold -------------------------------------------------------------------------------------------


def wheel_of(folder: Path, names: set[str]) -> Path:
    path = folder / "lvsearch-1.0.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, "")
    return path


def sdist_of(folder: Path, names: set[str], link: str | None = None) -> Path:
    path = folder / "lvsearch-1.0.0.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name in names:
            archive.addfile(tarfile.TarInfo(f"lvsearch-1.0.0/{name}"), io.BytesIO())
        if link:
            member = tarfile.TarInfo(f"lvsearch-1.0.0/{link}")
            member.type, member.linkname = tarfile.SYMTYPE, "../models"
            archive.addfile(member)
    return path


GOOD_WHEEL = MODULES | {"lvsearch/py.typed", "lvsearch/reports/template/page.css", "lvsearch-1.0.0.dist-info/METADATA"}
GOOD_SDIST = MODULES | {"CHANGELOG.md", "CITATION.cff", "LICENSE", "pyproject.toml", "PKG-INFO"}


def test_good_archives_have_no_problem(tmp_path: Path):
    assert check_release.wheel_problems(wheel_of(tmp_path, GOOD_WHEEL), MODULES) == []
    assert check_release.sdist_problems(sdist_of(tmp_path, GOOD_SDIST), MODULES) == []


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (GOOD_WHEEL - {"lvsearch/models/lda.py"}, "no lvsearch/models/lda.py"),
        (GOOD_WHEEL | {"tests/conftest.py"}, "holds tests/conftest.py"),
        (GOOD_WHEEL | {"lvsearch/left_behind.py"}, "holds lvsearch/left_behind.py"),
        (GOOD_WHEEL - {"lvsearch/py.typed"}, "no lvsearch/py.typed"),
        (GOOD_WHEEL - {"lvsearch/reports/template/page.css"}, "no lvsearch/reports/template/"),
    ],
)
def test_a_bad_wheel_is_seen(names: set[str], words: str, tmp_path: Path):
    (problem,) = check_release.wheel_problems(wheel_of(tmp_path, names), MODULES)
    assert words in problem


@pytest.mark.parametrize(
    ("names", "link", "words"),
    [
        (GOOD_SDIST - {"lvsearch/models/lda.py"}, None, "no lvsearch/models/lda.py"),
        (GOOD_SDIST, "lvsearch/inference", "lvsearch/inference is a link"),
        (GOOD_SDIST | {"tests/conftest.py"}, None, "holds tests at its top"),
        (GOOD_SDIST - {"CITATION.cff"}, None, "no CITATION.cff"),
    ],
)
def test_a_bad_sdist_is_seen(names: set[str], link: str | None, words: str, tmp_path: Path):
    (problem,) = check_release.sdist_problems(sdist_of(tmp_path, names, link), MODULES)
    assert words in problem


@pytest.mark.slow
def test_the_archives_of_the_checkout_hold_the_library_and_nothing_else(tmp_path: Path):
    """Built in isolation, the wheel from the sdist (needs a package index)."""
    pytest.importorskip("build", reason='needs pip install ".[test]"')
    if subprocess.run(["git", "rev-parse"], cwd=ROOT, capture_output=True, check=False).returncode:
        pytest.skip("no git checkout")
    source = tmp_path / "source"
    source.mkdir()
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True).stdout
    subprocess.run(["tar", "x", "-C", source], input=archive, check=True)
    subprocess.run([sys.executable, "-m", "build", "--outdir", tmp_path / "dist", source], check=True)
    expected = check_release.modules(source)
    assert "lvsearch/models/lda.py" in expected
    (wheel,), (sdist,) = (tmp_path / "dist").glob("*.whl"), (tmp_path / "dist").glob("*.tar.gz")
    assert check_release.wheel_problems(wheel, expected) == []
    assert check_release.sdist_problems(sdist, expected) == []


# --- Links ------------------------------------------------------------------------------------------------------------


def test_links_of_the_readme_work_away_from_the_repository():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    written = absolute_links(text, "https://example.org/us/lvsearch", "v1.0.0")
    targets = re.findall(r"\]\(([^)\s]+)\)", written)
    assert len(targets) > 20
    assert not [target for target in targets if not target.startswith(("https://", "#"))]
    for target in targets:
        kind, _, path = target.removeprefix("https://example.org/us/lvsearch/").partition("/v1.0.0/")
        if kind in ("raw", "blob"):
            assert (ROOT / path.partition("#")[0]).is_file(), f"README.md links to {path}, which is no file"
    assert "![Left" in written
    assert "https://example.org/us/lvsearch/raw/v1.0.0/docs/pictures/answer.png" in targets


def test_what_is_absolute_already_stays():
    text = "[a](https://example.org/x) [b](#below) [c](docs/a.md#part)"
    assert absolute_links(text, "R", "v1") == "[a](https://example.org/x) [b](#below) [c](R/blob/v1/docs/a.md#part)"


# --- Workflows and the recipe -----------------------------------------------------------------------------------------


def test_workflows_name_commits_and_no_tags_that_can_be_moved():
    steps = [
        (path.name, line.strip())
        for path in sorted((ROOT / ".github" / "workflows").glob("*.yml"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if "uses:" in line
    ]
    assert {name for name, _ in steps} == {"ci.yml", "docs.yml", "release.yml"}
    assert not [step for step in steps if not re.search(r"uses: [\w./-]+@[0-9a-f]{40} # v[\d.]+$", step[1])]


def test_the_recipe_asks_for_what_pyproject_asks_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    recipe = (ROOT / ".conda" / "recipe.yaml").read_text(encoding="utf-8")
    run = recipe.partition("  run:\n")[2].partition("\n\n")[0]
    asked = {line.strip("- ").replace(" ", "").replace("matplotlib-base", "matplotlib") for line in run.splitlines()}
    assert asked == {"python>=${{python_min}}", *project["dependencies"]}
    assert f'python_min: "{project["requires-python"].removeprefix(">=")}"' in recipe
    (command,) = project["scripts"].items()
    assert " = ".join(command) in recipe
