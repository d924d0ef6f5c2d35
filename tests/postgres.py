"""A PostgreSQL server for the tests: Debian's package, on loopback, gone afterwards."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path

INSTALLED = Path("/usr/lib/postgresql")


def missing():
    """Why there can be no server here; None if there can."""
    if _binaries() is None:
        return "PostgreSQL is not installed"
    if os.geteuid() == 0 and _unprivileged() is None:
        return "PostgreSQL refuses to run as root, and there is no user postgres"
    return None


def _binaries():
    found = shutil.which("initdb")
    if found:
        return Path(found).parent
    versions = sorted(INSTALLED.glob("*/bin/initdb"), key=lambda p: float(p.parts[-3]))
    return versions[-1].parent if versions else None


def _unprivileged():
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        return None


@contextmanager
def server():
    """Start one with an empty data directory; the URL of its database."""
    binaries = _binaries()
    # Not under pytest's own directory: its parents are closed to the server's user.
    directory = tempfile.mkdtemp(prefix="logsaver-postgres-")
    user = {}
    if os.geteuid() == 0:
        account = _unprivileged()
        os.chown(directory, account.pw_uid, account.pw_gid)
        user = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    data = f"{directory}/data"
    settings = f"-p {port} -k {directory} -c listen_addresses=127.0.0.1 -c fsync=off"

    def run(*command):
        subprocess.run(
            [binaries / command[0], *command[1:]],
            check=True,
            capture_output=True,
            timeout=60,
            cwd=directory,
            **user,
        )

    try:
        run("initdb", "-D", data, "-U", "tests", "-A", "trust", "-E", "UTF8", "--no-sync")
        run("pg_ctl", "-D", data, "-w", "-l", f"{directory}/log", "-o", settings, "start")
        try:
            yield f"postgresql://tests@127.0.0.1:{port}/postgres"
        finally:
            run("pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(directory, ignore_errors=True)
