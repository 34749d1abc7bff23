"""A real Chromium and a real JupyterLab for tests marked `full`; each is skipped with the reason where it is missing."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SWITCHES = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
# What `make lab` sets; and no news, no look for updates, no saving by itself, every cell drawn at once.
SETTINGS = {
    key.replace(":", "/"): values for key, values in json.loads((ROOT / "requirements" / "lab_settings.json").read_text()).items()
} | {
    "@jupyterlab/apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False, "doNotDisturbMode": True},
    "@jupyterlab/docmanager-extension/plugin": {"autosave": False},
    "@jupyterlab/notebook-extension/tracker": {"windowingMode": "none"},
    "@jupyterlab/extensionmanager-extension/plugin": {"enabled": False},
}


@contextmanager
def chromium():
    """A headless browser of playwright's."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="drives a browser: needs the extra `browser` (playwright)")
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("drives a browser: no chromium on this machine (apt install chromium)")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(SWITCHES))
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def jupyter_lab(folder: Path, settings: Path):
    """The address of a JupyterLab that serves `folder` with its settings in `settings`; ended afterwards."""
    for name in ("jupyterlab", "ipykernel", "ipywidgets", "anywidget"):
        pytest.importorskip(name, reason=f"opens JupyterLab: needs the extra `notebooks` ({name})")
    for name, values in SETTINGS.items():
        file = settings / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(values))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = os.environ | {
        "JUPYTERLAB_SETTINGS_DIR": str(settings), "JUPYTER_CONFIG_DIR": str(settings / "config"), "IPYTHONDIR": str(settings / "ipython"),
        "JUPYTER_RUNTIME_DIR": str(settings / "runtime"), "PYTHONPATH": str(ROOT), "JUPYTER_DATA_DIR": str(settings / "data"),
    }  # fmt: skip
    command = [
        sys.executable, "-m", "jupyterlab", "--no-browser", f"--port={port}", "--IdentityProvider.token=", f"--ServerApp.root_dir={folder}",
        "--LabApp.expose_app_in_browser=True", "--LabApp.extension_manager=readonly", "--ServerApp.port_retries=0", "--allow-root",
    ]  # fmt: skip
    with open(settings / "server.log", "wb") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        _wait_for(f"http://127.0.0.1:{port}/api", server, settings / "server.log")
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _wait_for(address: str, server: subprocess.Popen, log: Path, timeout: float = 90.0) -> None:
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise RuntimeError(f"JupyterLab ended with {server.returncode}: {log.read_text()[-2000:]}")
        try:
            with urllib.request.urlopen(address, timeout=2):
                return
        except OSError:
            time.sleep(0.3)
    raise RuntimeError(f"JupyterLab did not answer within {timeout} s: {log.read_text()[-2000:]}")


def open_notebook(page, address: str, name: str) -> None:
    """Open a notebook and wait until its kernel answers."""
    # reset: a workspace that the server remembers would bring the notebooks of an earlier page back to the front
    page.goto(f"{address}/lab/tree/{name}?reset")
    page.wait_for_function(
        """(name) => {
            const shown = window.jupyterapp && window.jupyterapp.shell.currentWidget;
            return shown && shown.context && shown.context.path === name && shown.sessionContext;
        }""",
        arg=name, timeout=90_000,
    )  # fmt: skip
    page.evaluate(
        """async () => {
            const session = window.jupyterapp.shell.currentWidget.sessionContext;
            await session.ready;
            await session.session.kernel.info;
        }"""
    )


STARTED = """() => [...window.jupyterapp.shell.currentWidget.content.widgets].some(
    c => c.model.type === "code" && (c.model.executionCount !== null || c.model.executionState === "running"))"""


def run_all(page) -> None:
    """Run every cell.  While the kernel only seems idle both a click on Run and the command do nothing, without a word, so
    that it is asked again until a cell has begun."""
    from playwright.sync_api import TimeoutError as Waited

    for _ in range(6):
        # not awaited: the command's promise may never come back
        page.evaluate("() => { window.jupyterapp.commands.execute('notebook:run-all-cells'); }")
        try:
            page.wait_for_function(STARTED, timeout=20_000)
            return
        except Waited:
            continue
    raise AssertionError("no cell began in two minutes, though all were asked to run six times")


def notebook(*sources: str) -> dict:
    """A notebook of code cells, as JSON."""
    cells = [{"cell_type": "code", "id": f"c{i}", "metadata": {}, "source": s, "outputs": [], "execution_count": None} for i, s in enumerate(sources)]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return {"cells": cells, "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}}, "nbformat": 4, "nbformat_minor": 5}
