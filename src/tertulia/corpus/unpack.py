"""Unpacking archives from strangers: plain files alone, and none outside the folder it is unpacked into."""

import gzip
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from tertulia.core.errors import DataError

TAR = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")


def unpack(archive: Path, folder: Path) -> list[str]:
    """Unpack a zip, tar or gz by its name; returns the files, relative to the folder. Others are left as they are."""
    with _whole(archive):
        if archive.name.endswith(".zip"):
            return list(_unzip(archive, folder))
        if archive.name.endswith(TAR):
            return list(_untar(archive, folder))
        if archive.name.endswith(".gz"):
            if not archive.stat().st_size:
                raise EOFError("it is empty")
            name = archive.name.removesuffix(".gz")
            with gzip.open(archive, "rb") as source:
                _write(source, place(name, folder, archive))
            return [name]
    return []


def place(name: str, folder: Path, archive: Path) -> Path:
    """Where a member goes; one that would leave the folder is refused."""
    parts = PurePosixPath(name.replace("\\", "/"))
    if parts.is_absolute() or ".." in parts.parts or ":" in (parts.parts or ("",))[0] or "\0" in name:
        raise DataError(f"{archive} is not to be trusted: its member {name!r} would land outside the folder.")
    target = folder.joinpath(*parts.parts)
    if not target.parent.resolve().is_relative_to(folder.resolve()):
        raise DataError(f"{archive} is not to be trusted: its member {name!r} would follow a link out of the folder.")
    return target


def _unzip(archive: Path, folder: Path) -> Iterator[str]:
    with zipfile.ZipFile(archive) as members:
        infos = [info for info in members.infolist() if not info.is_dir() and not _is_link(info)]
        targets = [place(info.filename, folder, archive) for info in infos]
        for info, target in zip(infos, targets, strict=True):
            if _is_wanted(target):
                with members.open(info) as source:
                    _write(source, target)
                yield target.relative_to(folder).as_posix()


def _untar(archive: Path, folder: Path) -> Iterator[str]:
    with tarfile.open(archive) as members:
        for member in members:
            target = place(member.name, folder, archive)
            source = members.extractfile(member) if member.isreg() and _is_wanted(target) else None
            if source is not None:
                with source:
                    _write(source, target)
                yield target.relative_to(folder).as_posix()


def _write(source: IO[bytes] | gzip.GzipFile, target: Path) -> None:
    """A plain file with our own rights; it appears only when it is whole."""
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(target.name + ".partial")
    try:
        with partial.open("wb") as out:
            shutil.copyfileobj(source, out, 1 << 18)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def _is_link(info: zipfile.ZipInfo) -> bool:
    return (info.external_attr >> 16) & 0o170000 == 0o120000


def _is_wanted(target: Path) -> bool:
    """Not the shadow files that a Mac puts into archives."""
    return not target.name.startswith("._") and "__MACOSX" not in target.parts and target.name != ".DS_Store"


@contextmanager
def _whole(archive: Path) -> Iterator[None]:
    try:
        yield
    except (zipfile.BadZipFile, tarfile.TarError, EOFError, zlib.error, NotImplementedError, RuntimeError) as error:
        raise DataError(f"{archive} is damaged or cannot be unpacked: {error}.") from None
    except OSError as error:
        raise DataError(f"{archive} cannot be unpacked: {error}.") from None
