"""Finds or installs the browser that the pages are tested in: `python -m tests.support.browser_setup`, by `make test`.

A Chromium that is there is used. Otherwise, root installs the package of the distribution, and everybody else gets
Playwright's own download.
"""

import os
import shutil
import subprocess
import sys

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PACKAGES = ("chromium", "fonts-dejavu-core")


def find_chromium() -> str | None:
    """Return the path of a Chromium, or None."""
    for name in NAMES:
        if path := shutil.which(name):
            return path
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if os.path.exists(path) else None


def install() -> bool:
    """Install Chromium. Return whether a command claims to have done so."""
    if os.geteuid() == 0 and shutil.which("apt-get"):
        env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        get = ["apt-get", "-qq", "-o", "Dpkg::Use-Pty=0"]
        install_packages = [*get, "install", "--yes", "--no-install-recommends", *PACKAGES]
        for command in ([*get, "update"], install_packages):  # lists that are there may be enough
            ended = subprocess.run(command, env=env, stdout=sys.stderr, check=False)
        if ended.returncode == 0:
            return True
    return subprocess.run([sys.executable, "-m", "playwright", "install", "chromium"], check=False).returncode == 0


def main() -> int:
    if find_chromium() or (install() and find_chromium()):
        return 0
    print(
        "There is no Chromium for the tests of the web pages. Install the package 'chromium', or run: "
        f"{sys.executable} -m playwright install chromium",
        file=sys.stderr,
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
