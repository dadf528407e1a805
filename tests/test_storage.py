"""What is on disk: round trips, damage of every kind, and writers killed at any instant."""

import errno
import hashlib
import json
import math
import os
import pickle
import random
import signal
import struct
import subprocess
import sys
import threading
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ifef import storage
from ifef.storage import (
    StorageError,
    append_record,
    load_archive,
    read_json,
    read_records,
    save_archive,
    truncate_records,
    write_atomic,
    write_json,
)

quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
some_arrays = st.dictionaries(
    st.text(max_size=8),
    st.sampled_from(storage.DTYPES).flatmap(
        lambda dtype: hnp.arrays(np.dtype(dtype), hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5))
    ),
    max_size=4,
)


def same(first, second) -> bool:
    """Equality that tells -0.0 from 0.0, 1 from 1.0 and True, and knows NaN."""
    return json.dumps(first) == json.dumps(second)


def one_sentence(error: BaseException, *parts: str) -> None:
    message = str(error)
    assert message.endswith(".")
    assert "\n" not in message
    assert ": " in message
    for part in parts:
        assert part in message


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "solution.ifef"
    save_archive(
        path, {"sigma": 0.1, "name": "ωave"}, {"theta": np.arange(12.0).reshape(3, 4), "mask": np.ones(3, bool)}
    )
    return path


def sealed(header: bytes, data: bytes = b"", version: int = storage.VERSION, claimed: int | None = None) -> bytes:
    """An archive whose checksum is right, whatever else is wrong with it."""
    length = len(header) if claimed is None else claimed
    body = struct.pack("<8sIQ", storage.MAGIC, version, length) + header + data
    return body + hashlib.sha256(body).digest()


@quick
@given(st.dictionaries(st.text(), json_values, max_size=4), some_arrays)
def test_archives_round_trip(tmp_path: Path, chosen, arrays):
    path = tmp_path / "a.ifef"
    save_archive(path, chosen, arrays)
    read, loaded = load_archive(path)
    assert same(read, chosen)
    assert list(loaded) == list(arrays)
    for name, array in arrays.items():
        assert loaded[name].dtype == array.dtype
        assert loaded[name].shape == array.shape
        assert loaded[name].tobytes() == array.tobytes()


def test_layout_in_memory_does_not_matter(tmp_path: Path):
    square = np.arange(12.0).reshape(3, 4)
    save_archive(
        tmp_path / "a", {}, {"big": square.astype(">f8"), "fortran": np.asfortranarray(square), "cut": square[::-2]}
    )
    _, loaded = load_archive(tmp_path / "a")
    np.testing.assert_array_equal(loaded["big"], square)
    np.testing.assert_array_equal(loaded["fortran"], square)
    np.testing.assert_array_equal(loaded["cut"], square[::-2])
    loaded["big"] += 1  # one's own to change


def test_numpy_scalars_are_settings_too(tmp_path: Path):
    chosen = {"a": np.float64(0.1), "b": np.int64(3), "c": np.bool_(True), "d": np.arange(3), "e": (1, math.inf)}
    save_archive(tmp_path / "a", chosen, {})
    assert same(load_archive(tmp_path / "a")[0], {"a": 0.1, "b": 3, "c": True, "d": [0, 1, 2], "e": [1, math.inf]})
    write_json(tmp_path / "a.json", chosen)
    assert same(read_json(tmp_path / "a.json"), load_archive(tmp_path / "a")[0])


@pytest.mark.parametrize("value", [object(), 1j, {1: 2}, {"deep": {2.5: 0}}, b"raw", {3}])
def test_what_would_not_come_back_is_refused(tmp_path: Path, value):
    with pytest.raises(TypeError, match="use "):
        save_archive(tmp_path / "a", {"key": value}, {})
    with pytest.raises(TypeError, match="use "):
        write_json(tmp_path / "a", {"key": value})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "array", [np.array([object()]), np.array(["text"]), np.zeros(2, np.float16), np.zeros(2, "M8[s]")]
)
def test_other_dtypes_are_refused(tmp_path: Path, array):
    with pytest.raises(TypeError, match="float64"):
        save_archive(tmp_path / "a", {}, {"x": array})


@quick
@given(st.integers(0, 10**6))
def test_truncation_anywhere_is_noticed(archive: Path, where: int):
    raw = archive.read_bytes()
    damaged = archive.with_name("cut")
    damaged.write_bytes(raw[: where % len(raw)])
    with pytest.raises(StorageError) as caught:
        load_archive(damaged)
    one_sentence(caught.value, str(damaged))


@quick
@given(st.integers(0, 10**6), st.integers(1, 255))
def test_a_changed_byte_anywhere_is_noticed(archive: Path, where: int, change: int):
    raw = bytearray(archive.read_bytes())
    raw[where % len(raw)] ^= change
    damaged = archive.with_name("changed")
    damaged.write_bytes(raw)
    with pytest.raises(StorageError) as caught:
        load_archive(damaged)
    one_sentence(caught.value, str(damaged))


@quick
@given(st.binary(max_size=300))
def test_any_bytes_are_an_archive_or_a_storage_error(tmp_path: Path, raw: bytes):
    path = tmp_path / "any"
    for content in (raw, storage.MAGIC + raw, sealed(raw), sealed(b'{"settings": {}, "arrays": []}', raw or b"x")):
        path.write_bytes(content)
        with pytest.raises(StorageError):
            load_archive(path)


ENTRY = {"name": "x", "dtype": "float64", "shape": [2], "offset": 0}
DATA = bytes(64)


def header(*entries, **more) -> bytes:
    return json.dumps({"settings": {}, "arrays": list(entries), **more}).encode()


HOSTILE = {
    "empty": b"",
    "pickle": pickle.dumps({"x": 1}),
    "npz": b"PK\x03\x04" + bytes(100),
    "newer": sealed(header(), version=storage.VERSION + 1),
    "header of 2^60": sealed(header(), claimed=2**60),
    "header into the checksum": sealed(header(), claimed=len(header()) + 1),
    "bad json": sealed(b"{'settings': 1}"),
    "not text": sealed(b"\xff\xfe\x00"),
    "deep json": sealed(b"[" * 100_000),
    "huge number": sealed(header().replace(b"{}", b"1" * 10_000)),
    "list": sealed(b"[]"),
    "no arrays": sealed(b'{"settings": {}}'),
    "settings a list": sealed(header(settings=[])),
    "arrays a number": sealed(header(arrays=3)),
    "entry a number": sealed(header(3)),
    "object dtype": sealed(header(ENTRY | {"dtype": "object"}), DATA),
    "code as dtype": sealed(header(ENTRY | {"dtype": "O,f8"}), DATA),
    "dtype a list": sealed(header(ENTRY | {"dtype": ["float64"]}), DATA),
    "negative side": sealed(header(ENTRY | {"shape": [-1]}), DATA),
    "two negative sides": sealed(header(ENTRY | {"shape": [-1, -2]}), DATA),
    "fractional side": sealed(header(ENTRY | {"shape": [2.0]}), DATA),
    "true as side": sealed(header(ENTRY | {"shape": [True]}), DATA),
    "absurd side": sealed(header(ENTRY | {"shape": [2**60]}), DATA),
    "absurd empty shape": sealed(header(ENTRY | {"shape": [0, 2**61, 2**61]})),
    "sides that overflow": sealed(header(ENTRY | {"shape": [2**32, 2**32]}), DATA),
    "a thousand sides": sealed(header(ENTRY | {"shape": [1] * 1000}), DATA),
    "shape text": sealed(header(ENTRY | {"shape": "2"}), DATA),
    "no shape": sealed(header(ENTRY | {"shape": None}), DATA),
    "negative offset": sealed(header(ENTRY | {"offset": -64}), DATA),
    "offset outside": sealed(header(ENTRY | {"offset": 64}), DATA),
    "overlap": sealed(header(ENTRY, ENTRY | {"name": "y"}), DATA),
    "same name": sealed(header(ENTRY, ENTRY | {"offset": 64}), DATA * 2),
    "name a number": sealed(header(ENTRY | {"name": 3}), DATA),
    "bytes left over": sealed(header(ENTRY), DATA * 2),
    "too few bytes": sealed(header(ENTRY), DATA[:8]),
    "neither true nor false": sealed(header(ENTRY | {"dtype": "bool"}), b"\2" * 64),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_files_are_refused(tmp_path: Path, kind: str):
    path = tmp_path / "hostile"
    path.write_bytes(HOSTILE[kind])
    tracemalloc.start()
    with pytest.raises(StorageError) as caught:
        load_archive(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    one_sentence(caught.value, str(path))
    assert peak < 2_000_000


def test_a_real_npz_is_refused(tmp_path: Path):
    np.savez(tmp_path / "a.npz", x=np.ones(3))
    with pytest.raises(StorageError, match="not an ifef archive"):
        load_archive(tmp_path / "a.npz")


def test_reading_takes_no_more_memory_than_the_file(tmp_path: Path):
    save_archive(tmp_path / "a", {}, {"x": np.zeros(1_000_000)})
    tracemalloc.start()
    load_archive(tmp_path / "a")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < (tmp_path / "a").stat().st_size + 100_000


def test_settings_too_large_to_be_read_are_not_written(tmp_path: Path):
    with pytest.raises(ValueError, match="arrays"):
        save_archive(tmp_path / "a", {"x": "x" * 2**24}, {})


@pytest.mark.parametrize("read", [load_archive, read_json, read_records])
def test_what_is_not_a_file(tmp_path: Path, read):
    with pytest.raises(FileNotFoundError) as missing:
        read(tmp_path / "missing")
    one_sentence(missing.value, "missing")
    with pytest.raises(StorageError) as folder:
        read(tmp_path)
    one_sentence(folder.value, "folder")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StorageError, match="plain file"):
        read(tmp_path / "pipe")
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="Cannot read") as inside:
        read(tmp_path / "file" / "inside")
    one_sentence(inside.value)


def test_a_write_that_cannot_be_says_why(tmp_path: Path):
    (tmp_path / "file").write_bytes(b"x")
    for path, part in ((tmp_path / "no" / "a", "create"), (tmp_path / "file" / "a", "folders"), (tmp_path, "folder")):
        for write in (lambda path: write_atomic(path, b"x"), lambda path: append_record(path, {})):
            with pytest.raises(OSError, match="Cannot write") as caught:
                write(path)
            one_sentence(caught.value, str(path), part)
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_an_unwritable_folder_says_so(tmp_path: Path):
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(PermissionError) as caught:
            write_atomic(tmp_path / "a", b"x")
    finally:
        tmp_path.chmod(0o700)
    one_sentence(caught.value, "permission")


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EIO, errno.EROFS])
@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failed_write_leaves_the_old_file(archive: Path, monkeypatch, call: str, code: int):
    before = archive.read_bytes()

    def fail(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(OSError, match="Cannot write") as caught:
        write_atomic(archive, b"new")
    one_sentence(caught.value, str(archive))
    assert caught.value.errno == code
    assert archive.read_bytes() == before
    assert os.listdir(archive.parent) == [archive.name]


def test_ctrl_c_leaves_the_old_file(archive: Path, monkeypatch):
    before = archive.read_bytes()

    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_atomic(archive, b"new")
    assert archive.read_bytes() == before
    assert os.listdir(archive.parent) == [archive.name]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_record_on_a_full_disk():
    with pytest.raises(OSError, match="disk is full"):
        append_record("/dev/full", {"a": 1})


def test_links_longest_names_and_the_usual_mode(tmp_path: Path):
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write_atomic(tmp_path / "link", b"x")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"x"
    write_atomic(tmp_path / ("n" * 255), b"x")
    (tmp_path / "plain").write_bytes(b"x")
    assert (tmp_path / "real").stat().st_mode == (tmp_path / "plain").stat().st_mode


WRITER = """
import importlib.util, itertools, sys
import numpy as np
spec = importlib.util.spec_from_file_location("storage", sys.argv[1])
storage = importlib.util.module_from_spec(spec)
spec.loader.exec_module(storage)
for count in itertools.count(1):
    storage.save_archive(sys.argv[2], {"count": count}, {"x": np.full(30_000, count)})
    storage.append_record(sys.argv[2] + ".jsonl", {"count": count})
    if count == 1:
        print("writing", flush=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no kill -9 on Windows")
@pytest.mark.parametrize("batch", range(4))
def test_a_killed_writer_leaves_a_whole_file(tmp_path: Path, batch: int):
    path = tmp_path / "a.ifef"
    instants = random.Random(batch)
    for _ in range(5):
        child = subprocess.Popen(
            [sys.executable, "-c", WRITER, storage.__file__, str(path)], stdout=subprocess.PIPE, env=os.environ
        )
        assert child.stdout is not None
        assert child.stdout.readline() == b"writing\n"
        time.sleep(instants.uniform(0, 0.04))
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        found, arrays = load_archive(path)
        assert arrays["x"].shape == (30_000,)
        assert np.all(arrays["x"] == found["count"])
        records = read_records(f"{path}.jsonl")
        assert records[-1]["count"] in (found["count"], found["count"] - 1)
    save_archive(path, {}, {})
    assert sorted(os.listdir(tmp_path)) == ["a.ifef", "a.ifef.jsonl"]


def leftovers(path: Path) -> list[Path]:
    return [entry for entry in path.parent.iterdir() if entry.suffix == ".tmp"]


@pytest.mark.skipif(sys.platform == "win32", reason="no sweeping on Windows")
def test_dead_temporary_files_are_swept_and_living_ones_are_not(tmp_path: Path, monkeypatch):
    path, seen = tmp_path / "a", []
    sync = os.fsync

    def second_writer(descriptor):
        monkeypatch.setattr(os, "fsync", sync)
        (living,) = leftovers(path)
        living.with_name(living.name[: -len("0123456789abcdef.tmp")] + "dead.tmp").write_bytes(b"half")
        assert len(leftovers(path)) == 2
        write_atomic(path, b"second")
        seen.extend(leftovers(path))
        assert seen == [living]
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", second_writer)
    write_atomic(path, b"first")
    assert path.read_bytes() == b"first"
    assert len(seen) == 1
    assert leftovers(path) == []


def test_writers_at_once(tmp_path: Path):
    path, failures = tmp_path / "a", []

    def write(number: int) -> None:
        try:
            for _ in range(15):
                save_archive(path, {"number": number}, {"x": np.full(1000, number)})
        except Exception as error:  # what a thread raises is otherwise lost
            failures.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    found, arrays = load_archive(path)
    assert np.all(arrays["x"] == found["number"])
    assert os.listdir(tmp_path) == ["a"]


@quick
@given(st.lists(st.dictionaries(st.text(), json_values, max_size=3), max_size=4), st.integers(1, 200))
def test_records_round_trip_and_a_torn_line_is_dropped(tmp_path: Path, records, torn: int):
    path = tmp_path / "history.jsonl"
    path.unlink(missing_ok=True)
    for record in records:
        append_record(path, record)
    if not records:
        return
    assert same(read_records(path), records)
    last = len(path.read_bytes().splitlines(keepends=True)[-1])
    with open(path, "r+b") as stream:
        stream.truncate(path.stat().st_size - min(torn, last))
    assert same(read_records(path), records[:-1])
    append_record(path, {"after": 1})
    assert same(read_records(path), [*records[:-1], {"after": 1}])


@pytest.mark.parametrize("line", [b"{", b"3", b"\xff", b"", b"{'a': 1}", b"\0\0\0"])
def test_a_damaged_record_is_named(tmp_path: Path, line: bytes):
    path = tmp_path / "history.jsonl"
    path.write_bytes(b'{"a": 1}\n' + line + b'\n{"a": 2}\n')
    with pytest.raises(StorageError) as caught:
        read_records(path)
    one_sentence(caught.value, str(path), "line 2")


def test_records_past_a_checkpoint_are_dropped(tmp_path: Path):
    path = tmp_path / "history.jsonl"
    truncate_records(path, lambda _: True)
    assert not path.exists()
    for epoch in range(5):
        append_record(path, {"epoch": epoch, "loss": np.float32(0.5), "rank": np.int64(3)})
    truncate_records(path, lambda record: record["epoch"] <= 2)
    assert [record["epoch"] for record in read_records(path)] == [0, 1, 2]
    truncate_records(path, lambda _: False)
    assert read_records(path) == []


def test_a_record_must_be_a_dict(tmp_path: Path):
    with pytest.raises(TypeError, match="dict"):
        append_record(tmp_path / "history.jsonl", [1])  # pyright: ignore[reportArgumentType]


@quick
@given(json_values)
def test_json_round_trips(tmp_path: Path, value):
    write_json(tmp_path / "a.json", value)
    assert same(read_json(tmp_path / "a.json"), value)


@pytest.mark.parametrize("raw", [b"", b"{", b"\xff", b"[" * 100_000])
def test_damaged_json_is_a_storage_error(tmp_path: Path, raw: bytes):
    (tmp_path / "a.json").write_bytes(raw)
    with pytest.raises(StorageError) as caught:
        read_json(tmp_path / "a.json")
    one_sentence(caught.value, "a.json")
