"""Unpack untrusted archives: regular files only, and none outside the target folder."""

import gzip
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from tertulia.artefacts.files import atomic_write
from tertulia.core.errors import DataError

TAR = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")


def unpack(archive: Path, folder: Path) -> list[str]:
    """Unpack a zip, tar or gz, by its name; returns the files, relative to the folder. Other files are left as is."""
    with _clear_errors(archive):
        if archive.name.endswith(".zip"):
            return list(_unzip(archive, folder))
        if archive.name.endswith(TAR):
            return list(_untar(archive, folder))
        if archive.name.endswith(".gz"):
            if not archive.stat().st_size:
                raise EOFError("the file is empty")
            name = archive.name.removesuffix(".gz")
            with gzip.open(archive, "rb") as source:
                _write(source, safe_path(name, folder, archive))
            return [name]
    return []


def safe_path(name: str, folder: Path, archive: Path) -> Path:
    """The path of a member; one that would leave the folder is rejected."""
    parts = PurePosixPath(name.replace("\\", "/"))
    if parts.is_absolute() or ".." in parts.parts or ":" in (parts.parts or ("",))[0] or "\0" in name:
        raise DataError(f"{archive} is not safe to unpack: its member {name!r} would be written outside the folder.")
    target = folder.joinpath(*parts.parts)
    if not target.parent.resolve().is_relative_to(folder.resolve()):
        raise DataError(f"{archive} is not safe to unpack: its member {name!r} would follow a link out of the folder.")
    return target


def _unzip(archive: Path, folder: Path) -> Iterator[str]:
    with zipfile.ZipFile(archive) as members:
        infos = [info for info in members.infolist() if not info.is_dir() and not _is_link(info)]
        targets = [safe_path(info.filename, folder, archive) for info in infos]
        for info, target in zip(infos, targets, strict=True):
            if _is_wanted(target):
                with members.open(info) as source:
                    _write(source, target)
                yield target.relative_to(folder).as_posix()


def _untar(archive: Path, folder: Path) -> Iterator[str]:
    with tarfile.open(archive) as members:
        for member in members:
            target = safe_path(member.name, folder, archive)
            source = members.extractfile(member) if member.isreg() and _is_wanted(target) else None
            if source is not None:
                with source:
                    _write(source, target)
                yield target.relative_to(folder).as_posix()


def _write(source: IO[bytes] | gzip.GzipFile, target: Path) -> None:
    """Write a regular file with default permissions."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(target) as unfinished, unfinished.open("wb") as out:
        shutil.copyfileobj(source, out, 1 << 18)


def _is_link(info: zipfile.ZipInfo) -> bool:
    return (info.external_attr >> 16) & 0o170000 == 0o120000


def _is_wanted(target: Path) -> bool:
    """Skips the metadata files that macOS adds to archives."""
    return not target.name.startswith("._") and "__MACOSX" not in target.parts and target.name != ".DS_Store"


@contextmanager
def _clear_errors(archive: Path) -> Iterator[None]:
    try:
        yield
    except (zipfile.BadZipFile, tarfile.TarError, EOFError, zlib.error, NotImplementedError, RuntimeError) as error:
        raise DataError(f"{archive} is damaged or cannot be unpacked: {error}.") from None
    except OSError as error:
        raise DataError(f"Cannot unpack {archive}: {error}.") from None
