"""Check what is about to be released: one version everywhere, and archives that hold the library and nothing else.

    python .ci/check_release.py v1.0.0 dist/

`dist/` holds one sdist and one wheel. Prints every problem, and exits with 1 if there is one.
"""

import re
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
LINKED = ("models", "inference")
"""Folders of the repository that are links inside `lvsearch/`, and real folders in what is shipped."""
BESIDE_THE_PACKAGE = {
    "CHANGELOG.md",
    "CITATION.cff",
    "LICENSE",
    "MANIFEST.in",
    "PKG-INFO",
    "README.md",
    "lvsearch",
    "lvsearch.egg-info",
    "pyproject.toml",
    "setup.cfg",
}
"""The names that an sdist may hold at its top."""


def package_version(root: Path = ROOT) -> str:
    """Return the version that pyproject.toml states, which is the one place where it is changed."""
    return tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]


def version_problems(root: Path = ROOT, tag: str | None = None) -> list[str]:
    """Return a sentence for every file that states another version than pyproject.toml does.

    root: the checkout.
    tag: the tag of the release, if there is one. It has to be `v` and the version.
    """
    version, problems = package_version(root), []
    if tag is not None and tag != f"v{version}":
        problems.append(f"the tag is {tag}, and pyproject.toml has the version {version}: expected the tag v{version}")
    cited = re.search(r"^version: *(\S+)$", (root / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    if cited is None or cited[1].strip("\"'") != version:
        problems.append(f"CITATION.cff has {cited[0] if cited else 'no version'}: write `version: {version}`")
    recipe = re.search(r'^  version: "(.+)"$', (root / ".conda/recipe.yaml").read_text(encoding="utf-8"), re.MULTILINE)
    if recipe is None or recipe[1] != version:
        problems.append(f'.conda/recipe.yaml has {recipe[0] if recipe else "no version"}: write `version: "{version}"`')
    headings = re.findall(r"^## (\S+)", (root / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    if version not in headings:
        problems.append(f"CHANGELOG.md has no section for {version}: call its section Unreleased `## {version}`")
    return problems


def modules(root: Path = ROOT) -> set[str]:
    """Return the paths inside an archive that every module of the library has."""
    found = {path.relative_to(root) for path in (root / "lvsearch").rglob("*.py")}
    for name in LINKED:  # `rglob` follows links in some versions of Python only
        found |= {Path("lvsearch") / path.relative_to(root) for path in (root / name).rglob("*.py")}
    return {path.as_posix() for path in found}


def wheel_problems(wheel: Path, expected: set[str]) -> list[str]:
    """Return a sentence for everything that a wheel should not hold, or does not.

    expected: paths of the modules, as `modules` returns them.
    """
    names = set(zipfile.ZipFile(wheel).namelist())
    problems = [f"the wheel has no {name}" for name in sorted(expected - names)]
    problems += [
        f"the wheel holds {name}, which is no part of the library"
        for name in sorted(names)
        if not re.match(r"lvsearch/|lvsearch-[^/]+\.dist-info/", name)
        or (name.endswith(".py") and name not in expected)
    ]
    for name in ("lvsearch/py.typed", "lvsearch/reports/template/"):
        if not any(each.startswith(name) for each in names):
            problems.append(f"the wheel has no {name}")
    return problems


def sdist_problems(sdist: Path, expected: set[str]) -> list[str]:
    """Return a sentence for everything that an sdist should not hold, or does not.

    expected: paths of the modules, as `modules` returns them.
    """
    with tarfile.open(sdist) as archive:
        members = {member.name.partition("/")[2]: member for member in archive.getmembers()}
    problems = [f"the sdist has no {name}" for name in sorted(expected - members.keys())]
    problems += [f"{name} is a link in the sdist: expected a file" for name, it in members.items() if it.issym()]
    tops = {name.partition("/")[0] for name in members if name}
    problems += [f"the sdist holds {name} at its top" for name in sorted(tops - BESIDE_THE_PACKAGE)]
    problems += [f"the sdist has no {name}" for name in ("CHANGELOG.md", "CITATION.cff", "LICENSE") if name not in tops]
    return problems


def main(tag: str, folder: Path) -> int:
    """Print every problem of a release, and return how many there are."""
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    expected = modules()
    problems = version_problems(tag=tag) + wheel_problems(wheel, expected) + sdist_problems(sdist, expected)
    print("\n".join(problems) or f"{wheel.name} and {sdist.name}: nothing found")
    return len(problems)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], Path(sys.argv[2])) > 0)
