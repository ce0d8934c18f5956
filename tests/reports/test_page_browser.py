"""The page in a real browser, opened from disk: no error, no request, no serious finding of axe, at both widths.

Chromium is driven by its DevTools protocol from Node (`page_browser.js`); axe-core comes from npm. Skipped where either
is not to be had.
"""

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from test_plain_text import HOSTILE, searched_over

from lvsearch.reports.page import write_page

pytestmark = pytest.mark.slow
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-port=0",
)
DRIVER = Path(__file__).with_name("page_browser.js")
NODE = ("node", "--experimental-websocket")


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """axe-core from npm."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        pytest.skip("node and npm are not installed")
    folder = tmp_path_factory.mktemp("axe")
    done = subprocess.run(
        ["npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "axe-core@4"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )
    script = folder / "node_modules" / "axe-core" / "axe.min.js"
    if done.returncode or not script.is_file():
        pytest.skip(f"axe-core cannot be had from npm: {done.stderr[-200:]}")
    return script


def test_the_page_opens_from_disk_without_errors_and_for_everybody(tmp_path: Path, axe: Path):
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        pytest.skip(f"no browser: expected one of {', '.join(BROWSERS)}")
    known = subprocess.run([*NODE, "-p", "typeof WebSocket"], capture_output=True, text=True).stdout.strip()
    if known != "function":
        pytest.skip("node has no WebSocket: 20.10 or later is needed")
    words = (*HOSTILE[:17], "<script>window.evil = 1</script>", '"><img src=x onerror="window.evil=1">')
    found = searched_over(words)
    assert found.training is not None
    held = replace(found, held_out=found.training.select(range(10)))
    page = write_page(held, tmp_path / "a page", held_out=held.compare_held_out(samples=20))
    done = subprocess.run(
        [*NODE, str(DRIVER), browser, str(tmp_path / "profile"), page.as_uri(), str(axe), *FLAGS],
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    assert [(one["width"], one["scheme"]) for one in results] == [
        (400, "light"),
        (400, "dark"),
        (1280, "light"),
        (1280, "dark"),
    ]
    for one in results:
        assert one["errors"] == []
        assert all(url == page.as_uri() or url.startswith("data:") for url in one["requests"]), one["requests"]
        assert one["overflow"] <= 0, "the page is wider than the window"
        assert one["evil"] is None
        assert one["found"] >= 1
        assert one["found"] < one["units"]
        assert one["opened"] is True
        serious = [entry for entry in one["violations"] if entry["impact"] in ("serious", "critical")]
        assert serious == [], serious
    assert results[0]["background"] != results[1]["background"]  # light and dark
