"""In a build, last: remove what no container runs or reads, and then the libraries that nothing left needs.

Containers install nothing, keep no accounts and mend no disks. An image that stands on such a one brings back the libraries that its own
programs need: see gather.sh.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

PACKAGES = (
    *("apt", "debconf", "debian-archive-keyring", "dpkg", "gpgv", "perl-base", "ubuntu-keyring"),
    *("adduser", "libpam-modules", "libpam-modules-bin", "libpam-runtime", "login", "login.defs", "passwd"),
    *("e2fsprogs", "logsave"),
)
PROGRAMS = (  # of packages of which others are wanted
    *("agetty", "lslogins", "runuser", "su", "sulogin", "update-passwd"),
    *("blk*", "fsck*", "fstrim", "hwclock", "lsblk", "mkfs*", "mkswap", "partx", "swap*", "wipefs", "zramctl"),
    *("2to3*", "idle*", "pip", "pip3*", "pydoc*", "python*-config", "wheel"),
    "logger",
)
FOLDERS = (
    *("/var/cache", "/var/log", "/var/lib/apt", "/var/lib/dpkg", "/usr/local/include", "/usr/share/zoneinfo/right"),
    *(f"/usr/share/{name}" for name in ("bash-completion", "doc", "i18n", "info", "lintian", "locale", "man")),
    *map(str, Path("/usr/lib").glob("*-linux-gnu/gconv")),  # character sets that UTF-8 does not need
)
OF_PYTHON = (  # of which Debian's packages leave half away, and the image python:3.11-slim-bookworm nothing
    *("ensurepip", "idlelib", "lib2to3", "pydoc_data", "test", "tkinter", "turtledemo"),
    *(f"lib-dynload/{name}.*" for name in ("_dbm", "_test*", "_ctypes_test", "_tkinter", "nis")),
    *(f"site-packages/{name}{more}" for name in ("pip", "setuptools", "wheel") for more in ("", "-*")),
    *(f"site-packages/{name}" for name in ("_distutils_hack", "distutils-precedence.pth", "pkg_resources")),  # parts of setuptools
)
LOADED_BY_NAME = ("libc6", "libgcc-s1")  # packages whose libraries programs open without naming them in their headers
NOT_OURS = ("added", "dev", "from", "proc", "sys", "tmp")
INFO = Path("/var/lib/dpkg/info")
ELF = b"\x7fELF"


def main() -> None:
    """Remove, and tell the loader."""
    kept = {path.resolve() for name in LOADED_BY_NAME for path in files_of(name)}
    for path in [path for name in PACKAGES for path in files_of(name)]:
        path.unlink(missing_ok=True)
    for path in [path for folder in ("/usr/bin", "/usr/sbin", "/usr/local/bin") for name in PROGRAMS for path in Path(folder).glob(name)]:
        remove(path)
    for path in [path for folder in FOLDERS for path in Path(folder).glob("*")]:
        remove(path)
    for path in [path for name in OF_PYTHON for path in Path(sysconfig.get_path("stdlib")).glob(name)]:
        remove(path)
    libraries = [path for path in Path("/usr/lib").glob("*-linux-gnu/lib*.so*") if not path.is_dir()]
    kept |= needed(set(programs()) - set(libraries))
    for path in [path for path in libraries if path.resolve() not in kept]:
        path.unlink()
    subprocess.run(["ldconfig"], check=True)


def files_of(package: str) -> list[Path]:
    """Return the files that a package installed."""
    lists = [INFO / f"{package}.list", *INFO.glob(f"{package}:*.list")]
    paths = [Path(line) for each in lists if each.exists() for line in each.read_text().splitlines()]
    return [path for path in paths if not path.is_dir()]  # nor links to folders: /bin, /lib


def remove(path: Path) -> None:
    """Remove a file, or a folder with all that is in it."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def programs() -> Iterator[Path]:
    """Find every program and library."""
    for top in Path("/").iterdir():
        if top.name not in NOT_OURS and not top.is_symlink():
            yield from (path for path in top.rglob("*") if path.is_file() and not path.is_symlink() and is_elf(path))


def is_elf(path: Path) -> bool:
    """Tell whether a file is a program or a library."""
    with path.open("rb") as file:
        return file.read(len(ELF)) == ELF


def needed(paths: Iterable[Path]) -> set[Path]:
    """Return the libraries that these programs load at their start."""
    said = subprocess.run(["xargs", "-d", "\n", "ldd"], input="\n".join(map(str, paths)), capture_output=True, text=True).stdout
    return {Path(found).resolve() for found in re.findall(r"(/\S+) \(0x", said)}


if __name__ == "__main__":
    main()
