"""Real file systems in files, for tests that break them. Needs root and loop devices."""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

SHUTDOWN = (2 << 30) | (4 << 16) | (ord("X") << 8) | 125  # EXT4_IOC_SHUTDOWN, _IOR('X', 125, u32)
FLUSH_ALL, FLUSH_JOURNAL, FLUSH_NOTHING = range(3)


class CannotMountError(Exception):
    """Raised when this machine does not let us mount things."""


def why_not_here(directory: Path) -> str | None:
    """Why no file system can be mounted here, if so; found out by trying."""
    if not sys.platform.startswith("linux"):
        return "loop devices are a Linux thing"
    if os.geteuid() != 0:
        return "only root can mount a file system"
    missing = [tool for tool in ("mount", "umount", "mkfs.ext4") if shutil.which(tool) is None]
    if missing:
        return f"not installed: {missing}"
    mounts = Mounts(directory)
    try:
        mounts.mount(mounts.new_ext4())
    except CannotMountError as error:
        return str(error)
    finally:
        mounts.close()
    return None


def run_tool(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    if done.returncode:
        raise CannotMountError(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")


def left_behind(directory: Path) -> list[str]:
    """Mounts and loop devices that have to do with this directory."""
    backing = [file.read_text() for file in Path("/sys/block").glob("loop*/loop/backing_file")]
    mounted = Path("/proc/self/mounts").read_text().splitlines()
    return [line for line in [*backing, *mounted] if str(directory) in line]


class Mounts:
    """File systems mounted below one directory. `close` takes all of them away again."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._mounted: list[Path] = []

    def new_ext4(self, *make: str, size: int = 64 << 20, image: Path | None = None) -> Path:
        """The image of a new file system, a sparse file."""
        image = image or self._directory / "ext4.img"
        with image.open("wb") as file:
            file.truncate(size)
        run_tool("mkfs.ext4", "-q", "-F", *make, str(image))
        return image

    def mount(self, image: Path, options: str = "") -> Path:
        # A loop device that `mount` has set up goes away with the mount.
        return self._mount(str(image), "-o", ",".join(filter(None, ["loop", options])))

    def tmpfs(self, size: int) -> Path:
        return self._mount("tmpfs", "-t", "tmpfs", "-o", f"size={size}")

    def read_only_view(self, directory: Path) -> Path:
        """A second way to a directory, on which nothing can be written."""
        place = self._mount(str(directory), "--bind")
        run_tool("mount", "-o", "remount,bind,ro", str(place))
        return place

    def _mount(self, source: str, *options: str) -> Path:
        place = self._directory / f"mount-{len(self._mounted)}"
        place.mkdir(exist_ok=True)
        run_tool("mount", *options, source, str(place))
        self._mounted.append(place)
        return place

    def loop_device_of(self, place: Path) -> str:
        """The name of the device behind a mount, as in /sys/block."""
        for line in Path("/proc/self/mounts").read_text().splitlines():
            device, where = line.split()[:2]
            if where == str(place):
                return Path(device).name
        raise CannotMountError(f"{place} is not mounted")

    def unmount(self, place: Path) -> None:
        run_tool("umount", str(place))
        self._mounted.remove(place)

    def close(self) -> None:
        for place in reversed(self._mounted):
            try:
                run_tool("umount", str(place))
            except CannotMountError:
                # A failed test may have left a file open; then it goes when that is closed.
                run_tool("umount", "--lazy", str(place))
        self._mounted.clear()


def shut_down(place: Path, flag: int) -> None:
    """Let a file system stop at once, as if the power went; what was flushed first is `flag`."""
    fd = os.open(place, os.O_RDONLY)
    try:
        fcntl.ioctl(fd, SHUTDOWN, struct.pack("I", flag))
    finally:
        os.close(fd)
