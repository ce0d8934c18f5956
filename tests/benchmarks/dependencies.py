"""Do the oldest and the newest allowed dependencies both pass the fast tier?

    python tests/benchmarks/dependencies.py oldest    # every lower bound of pyproject.toml, exactly
    python tests/benchmarks/dependencies.py newest    # whatever the index gives, upgraded
    python tests/benchmarks/dependencies.py wheel python3.12 python3.13    # does the built wheel work on these?
    python tests/benchmarks/dependencies.py install dist/*    # do these archives work, each in a fresh environment?
    python tests/benchmarks/dependencies.py licences  # a table of what is installed and under which licence

The first two make a virtual environment in a temporary folder, install this checkout with its test tools into it, print
what was installed, and run the fast tier there; the exit status is pytest's. Further arguments go to pytest. The third
builds the wheel once, installs it alone into an environment of each interpreter named, without the checkout in sight,
and runs what a first day is made of: a search, its table, its picture, its folder, the command line. The fourth does
the same with archives that exist, wheels or sdists, on the interpreter that runs the script.
"""

import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parents[2]


def dependencies(root: Path = ROOT) -> list[str]:
    """The requirements of the library itself, as pyproject.toml states them."""
    return tomllib.loads((root / "pyproject.toml").read_text())["project"]["dependencies"]


def oldest(requirements: list[str]) -> list[str]:
    """Every requirement pinned to its lower bound. Raises ValueError for one without."""
    pins = []
    for requirement in requirements:
        bound = re.fullmatch(r"([A-Za-z0-9_.-]+)>=([0-9.]+)(,.*)?", requirement.replace(" ", ""))
        if bound is None:
            raise ValueError(f"got the requirement {requirement!r}, expected a lower bound: name>=version")
        pins.append(f"{bound[1]}=={bound[2]}")
    return pins


FIRST_DAY = """
import platform, sys, tempfile
from pathlib import Path
import numpy as np
import lvsearch as lv
assert "site-packages" in lv.__file__, lv.__file__
rows = np.random.default_rng(0).normal(size=(60, 2)) + 8.0 * (np.arange(60)[:, None] % 3)
model = lv.models.FiniteMixture(lv.models.DiagonalComponents.weak(rows))
result = lv.search(model, rows, max_size=5, progress=False)
print(platform.python_version(), "|", result.summary().splitlines()[0])
with tempfile.TemporaryDirectory() as folder:
    result.save(Path(folder) / "run")
    again = lv.load(Path(folder) / "run")
    assert again.posterior().equals(result.posterior())
    result.plot_posterior().figure.savefig(Path(folder) / "posterior.png")
    assert (Path(folder) / "posterior.png").stat().st_size > 5_000
"""
"""What every interpreter has to do with nothing but the wheel."""


def licence_of(name: str) -> str:
    """What a distribution says of its licence: the expression, else its classifiers, else its first line."""
    about = metadata.metadata(name)
    given = about.get_all("Classifier") or []
    classifiers = [line.rpartition(" :: ")[2] for line in given if line.startswith("License")]
    text = (about.get("License") or "").strip().splitlines()
    return about.get("License-Expression") or ", ".join(classifiers) or (text[0] if text else "not stated")


def licences() -> str:
    """A Markdown table of the direct dependencies as installed."""
    names = [re.split(r"[<>=!~\[ ]", requirement)[0] for requirement in dependencies()]
    rows = [f"| {name} | {metadata.version(name)} | {licence_of(name)} |" for name in names]
    return "\n".join(["| package | version | licence |", "|---|---|---|", *rows])


def run(which: str, further: list[str]) -> int:
    with tempfile.TemporaryDirectory(prefix=f"lvsearch-{which}-") as folder:
        venv.create(folder, with_pip=True)
        python = str(Path(folder) / "bin" / "python")
        pins = oldest(dependencies()) if which == "oldest" else []
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--upgrade"]
        subprocess.run([*install, "--editable", f"{ROOT}[test]", *pins], check=True)
        subprocess.run([python, "-m", "pip", "freeze"], check=True)
        command = [python, "-m", "pytest", "-q", "-n", "2", *further]
        return subprocess.run(command, cwd=ROOT, check=False).returncode


def works(archive: Path, interpreter: str, folder: Path) -> bool:
    """Whether one archive, installed alone into a fresh environment, does all that a first day is made of.

    archive: a wheel or an sdist.
    interpreter: the command of the Python that the environment is made of.
    folder: an empty folder for the environment, outside of the checkout.
    """
    subprocess.run([interpreter, "-m", "venv", folder / "environment"], check=True)
    python = folder / "environment" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", archive.resolve()], check=True, cwd=folder)
    steps = [[python, "-c", FIRST_DAY], [python, "-m", "lvsearch", "--version"], [python, "-m", "pip", "check"]]
    codes = [subprocess.run(step, cwd=folder, check=False).returncode for step in steps]
    verdict = f"FAILED, exit codes {codes}" if any(codes) else "works"
    print(f"{archive.name} on {interpreter}: {verdict}", flush=True)
    return not any(codes)


def try_wheel(interpreters: list[str]) -> int:
    """The number of interpreters on which the wheel does not work."""
    with tempfile.TemporaryDirectory(prefix="lvsearch-wheel-") as folder:
        build = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--quiet", "--wheel-dir", folder, str(ROOT)]
        subprocess.run(build, check=True)
        (wheel,) = Path(folder).glob("lvsearch-*.whl")
        return sum(not works(wheel, each, empty_folder(folder)) for each in interpreters)


def try_archives(archives: list[str]) -> int:
    """The number of archives that do not work on this interpreter."""
    with tempfile.TemporaryDirectory(prefix="lvsearch-archives-") as folder:
        return sum(not works(Path(each), sys.executable, empty_folder(folder)) for each in archives)


def empty_folder(parent: str) -> Path:
    """Make an empty folder inside another one."""
    return Path(tempfile.mkdtemp(dir=parent))


if __name__ == "__main__":
    if sys.argv[1:2] == ["licences"]:
        print(licences())
    elif sys.argv[1:2] in (["oldest"], ["newest"]):
        sys.exit(run(sys.argv[1], sys.argv[2:]))
    elif sys.argv[1:2] == ["wheel"]:
        sys.exit(try_wheel(sys.argv[2:]))
    elif sys.argv[1:2] == ["install"]:
        sys.exit(try_archives(sys.argv[2:]))
    else:
        sys.exit(__doc__)
