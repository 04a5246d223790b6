"""Finds or installs programs that tests run, Chromium and PgBouncer: `python -m tests.support.program_setup`, by
`make test`.

What is there is used. Otherwise, root installs the packages of the distribution. Everybody else gets Playwright's own
Chromium, and has to install PgBouncer.
"""

import os
import shutil
import subprocess
import sys

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PACKAGES = ("chromium", "fonts-dejavu-core", "pgbouncer")


def find_chromium() -> str | None:
    """Return the path of a Chromium, or None."""
    for name in NAMES:
        if path := shutil.which(name):
            return path
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if os.path.exists(path) else None


def find_pgbouncer() -> str | None:
    """Return the path of PgBouncer, or None. Debian has it where only root looks."""
    return shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


def install() -> None:
    """Install what the distribution has."""
    if os.geteuid() == 0 and shutil.which("apt-get"):
        env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        get = ["apt-get", "-qq", "-o", "Dpkg::Use-Pty=0"]
        install_packages = [*get, "install", "--yes", "--no-install-recommends", *PACKAGES]
        for command in ([*get, "update"], install_packages):  # lists that are there may be enough
            subprocess.run(command, env=env, stdout=sys.stderr, check=False)
    if not find_chromium():
        subprocess.run([sys.executable, "-m", "playwright", "install", "chromium"], check=False)


def main() -> int:
    if not (find_chromium() and find_pgbouncer()):
        install()
    if not find_chromium():
        command = f"{sys.executable} -m playwright install chromium"
        message = f"There is no Chromium for the tests of the pages. Install the package 'chromium', or run: {command}"
        print(message, file=sys.stderr)
    if not find_pgbouncer():
        print("There is no PgBouncer for the tests of a pooler. Install the package 'pgbouncer'.", file=sys.stderr)
    return 0 if find_chromium() and find_pgbouncer() else 1


if __name__ == "__main__":
    sys.exit(main())
