"""What is on disk: atomic writes, archives of settings and arrays, JSON and lines of JSON.

Nothing read here is ever executed, and nothing is believed before it has been checked. An archive is

    8 bytes magic | uint32 format version | uint64 length of header | header | arrays | 32 bytes SHA-256 of all before

The header is JSON, `{"settings": …, "arrays": [{"name", "dtype", "shape", "offset"}, …]}`. Arrays are raw,
little-endian and in C order, each at the next multiple of 64 bytes after the header or the array before it.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import secrets
import stat
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

if sys.platform != "win32":
    import fcntl

MAGIC = b"\x93IFEF\r\n\x1a"  # a file sent as text loses its first byte, \r\n or \x1a, and is then refused
VERSION = 1
DTYPES = ("float32", "float64", "complex128", "int64", "int32", "uint32", "uint8", "bool")
_PREFIX = struct.Struct("<8sIQ")
_DIGEST = hashlib.sha256().digest_size
_ALIGNMENT = 64
_MAX_HEADER = 2**24  # parsed JSON takes some thirty times its size in memory
_REMEDIES = {
    errno.ENOSPC: "the disk is full; free some space or choose another disk",
    errno.EDQUOT: "your disk quota is used up; free some space or choose another disk",
    errno.EACCES: "permission is denied; choose a place that you may use",
    errno.ENOENT: "its folder does not exist; create it first",
    errno.ENOTDIR: "a part of the path before the last is a file; choose a path whose folders are folders",
    errno.EISDIR: "it is a folder; pass the path of a file",
}


class StorageError(ValueError):
    """A file that is damaged, or is not what it was taken for."""


def _explained(action: str, path: Path, error: OSError) -> OSError:
    reason = _REMEDIES.get(error.errno or 0, f"{error.strerror or error}; check the path and the disk")
    failure = type(error)(f"Cannot {action} {str(path)!r}: {reason}.")
    failure.errno = error.errno
    return failure


def write_atomic(path: str | os.PathLike[str], data: bytes | bytearray | memoryview) -> None:
    """Put `data` at `path` so that a reader, or a crash at any instant, sees the old file or the new one.

    A link is followed. What a killed writer of the same path left behind is removed.
    """
    target = Path(os.path.realpath(path))
    try:
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        _replace(target, data)
    except OSError as error:
        raise _explained("write", target, error) from error


def _replace(target: Path, data: bytes | bytearray | memoryview) -> None:
    # A digest of the name stands in for it: the name itself may leave no room for more characters.
    prefix = f".ifef-{hashlib.sha256(os.fsencode(target.name)).hexdigest()[:16]}-"
    _sweep(target.parent, prefix)
    descriptor, temporary = _open_temporary(target.parent, prefix)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
            if sys.platform != "win32":  # before the lock goes, or another writer might sweep the file in between
                os.replace(temporary, target)
        if sys.platform == "win32":  # where an open file cannot be renamed
            os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)


def _open_temporary(folder: Path, prefix: str) -> tuple[int, Path]:
    """Open a new file that is locked for as long as its writer lives."""
    while True:
        temporary = folder / f"{prefix}{secrets.token_hex(8)}.tmp"
        # Not `tempfile`, which gives mode 0600 whatever the umask: colleagues could no longer read the result.
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
        if sys.platform == "win32":
            return descriptor, temporary
        with suppress(OSError):  # a file system without locks only loses the sweeping
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink > 0:  # zero: swept between being opened and being locked
            return descriptor, temporary
        os.close(descriptor)


def _sweep(folder: Path, prefix: str) -> None:
    """Remove what dead writers left; a living one holds a lock, which ends with it. On Windows all of it stays."""
    for stale in folder.glob(f"{prefix}*.tmp"):
        with suppress(OSError), open(stale, "r+b") as stream:
            if sys.platform != "win32":
                fcntl.flock(stream.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
                stale.unlink()


def _sync_folder(folder: Path) -> None:
    try:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        # Windows and some network file systems cannot, and a folder may be writable without being readable.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EACCES):
            raise


@contextmanager
def _reading(path: Path) -> Iterator[int]:
    """Refuse what is not a plain file before opening it, because opening a pipe would wait for ever; give its size."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            kind = "a folder" if stat.S_ISDIR(status.st_mode) else "not a plain file"
            raise StorageError(f"Cannot read {str(path)!r}: it is {kind}; pass the path of a file.")
        yield status.st_size
    except FileNotFoundError as error:
        raise FileNotFoundError(f"There is no file {str(path)!r}: check the path.") from error
    except OSError as error:
        raise _explained("read", path, error) from error


def save_archive(path: str | os.PathLike[str], settings: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Write settings and arrays to one file, atomically.

    Settings are what JSON can say, with floats exact, NaN and infinities included; a tuple comes back as a list.
    """
    entries, chunks, offset = [], [], 0
    for name, value in arrays.items():
        array = np.asarray(value)
        if array.dtype.name not in DTYPES or not isinstance(name, str):
            raise TypeError(f"Array {name!r} of {array.dtype} cannot be saved: use a text name and one of {DTYPES}.")
        raw = array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes(order="C")
        entries.append({"name": name, "dtype": array.dtype.name, "shape": array.shape, "offset": offset})
        chunks += [raw, bytes(-len(raw) % _ALIGNMENT)]
        offset += len(raw) + len(chunks[-1])
    header = json.dumps({"settings": _plain(_dict(settings), "settings"), "arrays": entries}).encode()
    header += b" " * (-(_PREFIX.size + len(header)) % _ALIGNMENT)
    if len(header) > _MAX_HEADER:
        raise ValueError(f"settings take {len(header)} bytes of at most {_MAX_HEADER}: save large lists as arrays.")
    chunks[:0] = [_PREFIX.pack(MAGIC, VERSION, len(header)), header]
    body = bytearray().join(chunks)
    body += hashlib.sha256(body).digest()
    write_atomic(path, body)


def load_archive(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read what `save_archive` wrote: (settings, arrays). A file that is anything else is a `StorageError`."""
    target = Path(path)
    with _reading(target) as size, open(target, "rb") as stream:
        if stream.read(len(MAGIC)) != MAGIC:
            raise StorageError(f"{str(target)!r} is not an ifef archive: pass a file that ifef has saved.")
        if size < _PREFIX.size + _DIGEST:
            raise _damaged(target, "it ends too early")
        stream.seek(0)
        buffer = bytearray(size)  # the file's own size, whatever the file claims; arrays are views of this
        if stream.readinto(buffer) != size:
            raise _damaged(target, "it ends too early")
    _, version, length = _PREFIX.unpack_from(buffer)
    if version != VERSION:
        cause = f"it has format {version} and this ifef reads {VERSION}; install a newer ifef, or"
        raise StorageError(f"Cannot read {str(target)!r}: {cause} restore a copy if the file is damaged.")
    body, start = memoryview(buffer)[:-_DIGEST], _PREFIX.size + length
    if hashlib.sha256(body).digest() != buffer[-_DIGEST:]:
        raise _damaged(target, "its checksum is wrong")
    if length > _MAX_HEADER or start > len(body):
        raise _damaged(target, "its header is longer than it may be")
    try:
        header = json.loads(bytes(body[_PREFIX.size : start]))
        return _dict(header["settings"]), _views(header["arrays"], np.frombuffer(body, np.uint8)[start:])
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise _damaged(target, "its header makes no sense") from error


def _damaged(path: Path, reason: str) -> StorageError:
    return StorageError(f"{str(path)!r} is damaged ({reason}): restore a copy, or make it again.")


def _dict(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"expected a dict, got a {type(value).__name__}")
    return value


def _views(entries: list[dict[str, Any]], data: np.ndarray) -> dict[str, np.ndarray]:
    """Arrays as views of `data`, which must hold them exactly: no gap, no overlap, nothing after the last."""
    arrays: dict[str, np.ndarray] = {}
    position = 0
    for entry in entries:
        name, shape = entry["name"], entry["shape"]
        whole = len(shape) <= 64 and all(type(side) is int and 0 <= side < 2**62 for side in shape)
        if not isinstance(name, str) or name in arrays or entry["dtype"] not in DTYPES or not whole:
            raise ValueError("a name twice, an unknown dtype, or sizes that are not whole, not negative and few")
        dtype = np.dtype(entry["dtype"]).newbyteorder("<")
        length = math.prod(shape) * dtype.itemsize
        raw = data[position : position + length]
        if entry["offset"] != position or len(raw) != length:
            raise ValueError("an array is not where it must be")
        if dtype == np.bool_ and np.max(raw, initial=0) > 1:
            raise ValueError("a truth value must be 0 or 1")
        arrays[name] = raw.view(dtype).reshape(shape)
        position += length + -length % _ALIGNMENT
    if position != len(data):
        raise ValueError("bytes that belong to no array")
    return arrays


def _plain(value: Any, where: str) -> Any:
    """NumPy scalars and arrays as Python's own; a key that JSON would quietly turn into text is refused."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, dict):
        if strange := [key for key in value if not isinstance(key, str)]:
            raise TypeError(f"{where} has the key {strange[0]!r}: use text for keys, or it would come back changed.")
        return {key: _plain(item, f"{where}[{key!r}]") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, where) for item in value]
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise TypeError(f"{where} holds a {type(value).__name__}: use numbers, text, lists and dicts.")


def write_json(path: str | os.PathLike[str], data: Any) -> None:
    """Write `data` as indented JSON, atomically."""
    write_atomic(path, (json.dumps(_plain(data, "data"), indent=2) + "\n").encode())


def read_json(path: str | os.PathLike[str]) -> Any:
    """Read a JSON file; one that is damaged is a `StorageError`."""
    target = Path(path)
    with _reading(target):
        raw = target.read_bytes()
    try:
        return json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise _damaged(target, "it is not JSON") from error


def append_record(path: str | os.PathLike[str], record: dict[str, Any]) -> None:
    """Add one line of JSON. What a killed writer left of a line is dropped first.

    Not synced: a killed process loses nothing, and a sync a line could cost more than a training step.
    """
    target, line = Path(path), json.dumps(_plain(_dict(record), "record")).encode() + b"\n"
    try:
        with open(target, "a+b", buffering=0) as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(size - 1, 0))
            if size and stream.read(1) != b"\n":
                stream.seek(0)
                stream.truncate(stream.read().rfind(b"\n") + 1)
            if stream.write(line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError as error:
        raise _explained("write", target, error) from error


def read_records(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Read lines of JSON; a line counts once its newline is there, and one that is damaged is a `StorageError`."""
    target, records = Path(path), []
    with _reading(target):
        lines = target.read_bytes().split(b"\n")[:-1]
    for number, line in enumerate(lines, 1):
        try:
            records.append(_dict(json.loads(line)))
        except (ValueError, TypeError, RecursionError) as error:
            raise _damaged(target, f"line {number} is no record") from error
    return records


def truncate_records(path: str | os.PathLike[str], keep: Callable[[dict[str, Any]], bool]) -> None:
    """Rewrite the file, atomically, with only those records that `keep` accepts; no file, nothing to drop."""
    if Path(path).exists():
        kept = [record for record in read_records(path) if keep(record)]
        write_atomic(path, "".join(json.dumps(record) + "\n" for record in kept).encode())
