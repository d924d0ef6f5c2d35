"""Logs that somebody has made to do harm, with good checksums, and what they may do: nothing.

`survive` does with a log what users and tools do with one that they were given. All that may come
of it is a result or a `LogSaverError`. With atheris installed it can be fuzzed:

    python tests/hostile.py tests/data/hostile -max_total_time=600

`tests/data/hostile` has what was found to be worth keeping; `python tests/hostile.py --write` makes
it from the builders below.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import ormsgpack
from crashing import PATH, open_on
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from logs import HEADER, build_log, build_log_of_payloads, checkpoint, writes
from simdisk import SimDisk

import logsaver
from logsaver import LogSaver, LogSaverError, stored, usage
from logsaver.frame import (
    FILE_HEADER_SIZE,
    FRAME_HEADER_SIZE,
    FRAME_MAGIC,
    MAX_PAYLOAD,
    FileHeader,
    encode_frame,
)
from logsaver.record import CheckpointRecord, CopyRecord, Kind, Record, WritesRecord, encode
from logsaver.rewriting import rewrite
from logsaver.store import Store
from logsaver.value import Stored

CORPUS = Path(__file__).with_name("data") / "hostile"
# As docs/security.md says for files from others: no class is built that a file names.
SERDE = JsonPlusSerializer(allowed_msgpack_modules=None)
T = {"configurable": {"thread_id": "t"}}


# -- what is done with a log


def survive(data: bytes) -> set[str]:
    """Everything that reads a log, and some that writes. Returns the names of the errors."""
    errors: set[str] = set()

    def attempt(action: Callable[[], Any]) -> Any:
        try:
            return action()
        except LogSaverError as error:
            errors.add(type(error).__name__)
            return None

    with on_simulated_disk(data):
        attempt(lambda: logsaver.verify(PATH))
        attempt(lambda: logsaver.repair(PATH, "/sim/out.log"))
    for read_only in (True, False):
        saver = attempt(lambda how=read_only: open_on(SimDisk({PATH: data}), read_only=how))
        if saver is not None:
            saver.serde = SERDE
            use(saver, attempt)
            if not read_only:
                change(saver, attempt)
            attempt(saver.close)
    return errors


def use(saver: LogSaver, attempt: Callable[[Callable[[], Any]], Any]) -> None:
    found = attempt(lambda: list(saver.list(None))) or []
    for each in found:
        attempt(lambda each=each: saver.get_tuple(each.config))
        attempt(
            lambda each=each: saver.get_delta_channel_history(config=each.config, channels=["x"])
        )
    attempt(lambda: list(saver.list(None, filter={"step": 1})))
    attempt(lambda: list(saver.threads()))
    attempt(saver.stats)
    attempt(lambda: usage(saver))
    for thread in {each.config["configurable"]["thread_id"] for each in found} | {"t"}:
        attempt(lambda thread=thread: list(stored(saver, {"configurable": {"thread_id": thread}})))


def change(saver: LogSaver, attempt: Callable[[Callable[[], Any]], Any]) -> None:
    body = {"v": 4, "id": "~", "channel_versions": {"x": 9}, "versions_seen": {}}
    for found in attempt(lambda: list(saver.list(None, limit=3))) or []:
        attempt(
            lambda found=found: saver.put(
                found.config, {**body, "channel_values": {"x": "x" * 400}}, {}, {"x": 9}
            )
        )
        attempt(lambda found=found: saver.put_writes(found.config, [("x", 1)], "task"))
    attempt(lambda: saver.prune(["t"]))
    attempt(lambda: saver.delete_for_runs(["run"]))
    attempt(lambda: saver.copy_thread("t", "a new one"))
    attempt(lambda: rewrite(saver._store))
    attempt(lambda: saver.delete_thread("t"))


@contextlib.contextmanager
def on_simulated_disk(data: bytes) -> Iterator[None]:
    module = sys.modules["logsaver.repair"]
    disk = SimDisk({PATH: data})
    with (
        mock.patch.object(module, "DISK", disk),
        mock.patch.object(module, "Store", lambda path, **more: Store(path, disk=disk, **more)),
    ):
        yield


def mended(data: bytes) -> bytes:
    """The same with good checksums, as far as it can be taken for frames: a log to look into."""
    out = HEADER.encode()
    at, previous, seed = FILE_HEADER_SIZE, HEADER.seed, HEADER.seed
    while at + FRAME_HEADER_SIZE <= len(data):
        length = int.from_bytes(data[at + 8 : at + 12], "little") % (1 << 16)
        payload = data[at + FRAME_HEADER_SIZE : at + FRAME_HEADER_SIZE + length]
        frame, previous = encode_frame(
            data[at + 4] % 16, payload, len(out), previous, len(out), seed, data[at + 5] & 1
        )
        out += frame
        at += FRAME_HEADER_SIZE + length
    return out


# -- logs made by hand


def raw(kind: int, *fields: Any) -> tuple[int, bytes]:
    return kind, ormsgpack.packb(fields)


def of(*records: Record) -> bytes:
    return build_log([*records]).data


def of_payloads(*payloads: tuple[int, bytes]) -> bytes:
    return build_log_of_payloads([encode(checkpoint()), *payloads], synced=True).data


def body(number: int) -> bytes:
    name = f"{number:03}"
    return ormsgpack.packb(
        {"v": 4, "id": name, "channel_versions": {"x": number}, "versions_seen": {}}
    )


def with_value(value: Stored, number: int = 0, parent: str | None = None) -> CheckpointRecord:
    meta = ormsgpack.packb({"step": 1})
    return CheckpointRecord(
        "t", "", f"{number:03}", parent, 0, b"", body(number), meta, {"x": value}
    )


def chain(values: Callable[[int, list[int]], Stored], count: int) -> bytes:
    """Checkpoints whose value may refer to the frames before; `values` gets their offsets."""
    records: list[Record] = []
    for number in range(count):
        offsets = build_log(records).offsets if records else []
        parent = f"{number - 1:03}" if number else None
        records.append(with_value(values(number, offsets), number, parent))
    return of(*records)


def pieces(*numbers: int, own: bytes = b"") -> list[Any]:
    return ["msgpack", own, list(numbers)]


TEXT = ormsgpack.packb("x" * 300)
FIRST = FILE_HEADER_SIZE  # where the first frame is
X = 2  # the number of the channel in its frame


def nested(depth: int, one: bytes, end: bytes = b"\xc0") -> bytes:
    return one * depth + end


def bomb(number: int, offsets: list[int]) -> Stored:
    """Each value is the one before it, twice: thirty frames of a few bytes, 300 GB."""
    if not number:
        return TEXT
    size = len(TEXT) << (number - 1)
    return pieces(*(offsets[-1], X, 0, size) * 2)


def comb(number: int, offsets: list[int]) -> Stored:
    """A value of ever more pieces of the one before it."""
    if not number:
        return TEXT
    return pieces(*(offsets[-1], X, 0, 3) * 900)


def claims_more_than_there_is(length: int) -> bytes:
    data = bytearray(of(checkpoint()))
    data[FIRST + 8 : FIRST + 12] = length.to_bytes(4, "little")
    return bytes(data)


BUILDERS: dict[str, Callable[[], bytes]] = {
    "pieces-of-itself": lambda: of(with_value(pieces(FIRST, X, 0, 10))),
    "pieces-of-a-later-one": lambda: of(with_value(pieces(FIRST + 500, X, 0, 9)), with_value(TEXT)),
    "pieces-of-nowhere": lambda: of(with_value(TEXT), with_value(pieces(FIRST + 7, X, 0, 9), 1)),
    "pieces-of-the-header": lambda: of(with_value(pieces(0, X, 0, 9))),
    "pieces-far-away": lambda: of(with_value(pieces(2**63, X, 0, 9))),
    "pieces-without-end": lambda: of(with_value(pieces(FIRST, X, 0))),
    "pieces-too-long": lambda: of(
        with_value(TEXT), with_value(pieces(FIRST, X, 0, 2**62), 1), with_value(pieces(-(2**62)), 2)
    ),
    "pieces-of-a-number-too-high": lambda: of(
        with_value(TEXT), with_value(pieces(FIRST, 2**40, 0, 9), 1)
    ),
    "pieces-of-a-delete": lambda: of_payloads(
        raw(Kind.DELETE, ["nobody"]), encode(with_value(pieces(FIRST + 120, 0, 0, 1)))
    ),
    "pieces-that-double": lambda: chain(bomb, 31),
    "pieces-that-double-within-limits": lambda: chain(bomb, 11),
    "pieces-of-pieces-of-pieces": lambda: chain(comb, 6),
    "pieces-in-a-deep-chain": lambda: chain(
        lambda n, offsets: pieces(offsets[-1], X, 0, 300) if n else TEXT, 150
    ),
    "shared-with-itself": lambda: of(with_value(FIRST)),
    "shared-in-a-circle": lambda: of(with_value(FIRST + 100), with_value(FIRST, 1)),
    "shared-with-writes": lambda: of(
        WritesRecord("t", "", "000", "k", "", [(0, "x", TEXT)]), with_value(FIRST)
    ),
    "shared-far-away": lambda: of(with_value(2**64 - 1)),
    "its-own-parent": lambda: of(with_value(TEXT, 1, "001")),
    "parents-in-a-circle": lambda: of(with_value(TEXT, 1, "002"), with_value(TEXT, 2, "001")),
    "copies-of-writes-that-add-up": lambda: of(
        writes(), *[CopyRecord(*pair) for pair in (("t", "u"), ("u", "t")) * 40]
    ),
    "copies-of-copies": lambda: of(
        *[with_value(TEXT, number) for number in range(10)],
        *[CopyRecord("t", f"copy-{number}") for number in range(20)],
    ),
    "copied-onto-itself": lambda: of(with_value(TEXT), CopyRecord("t", "t")),
    "deep-payload": lambda: of_payloads((Kind.DELETE, nested(50_000, b"\x91"))),
    "deep-map": lambda: of_payloads((Kind.FORGET, nested(20_000, b"\x81\xc0"))),
    "deep-value": lambda: of(with_value(nested(50_000, b"\x91"))),
    "deep-metadata": lambda: of(
        with_value(TEXT)._replace(metadata=b"\x81\xa1a" + nested(50_000, b"\x91"))
    ),
    "array-that-claims-four-billion": lambda: of_payloads((Kind.DELETE, b"\xdd\xff\xff\xff\xff")),
    "map-that-claims-four-billion": lambda: of_payloads((Kind.FORGET, b"\xdf\xff\xff\xff\xff")),
    "bytes-that-claim-four-billion": lambda: of_payloads((Kind.COPY, b"\x92\xc6\xff\xff\xff\xff")),
    "value-that-claims-four-billion": lambda: of(with_value(b"\xdd\xff\xff\xff\xff")),
    "extension-in-a-record": lambda: of_payloads((Kind.DELETE, b"\x91\x91\xd4\x05\x00")),
    "extensions-in-a-value": lambda: of(
        with_value(
            b"\x9a"
            + b"".join(
                ormsgpack.packb(ormsgpack.Ext(code, ormsgpack.packb(["os", "system", ["true"]])))
                for code in range(10)
            )
        )
    ),
    "pickle": lambda: of(with_value(["pickle", b"cos\nsystem\n(S'exit 1'\ntR."])),
    "unknown-type": lambda: of(with_value(["\0", b""])),
    "body-that-is-no-map": lambda: of(with_value(TEXT)._replace(body=TEXT, metadata=TEXT)),
    "body-with-odd-fields": lambda: of(
        with_value(TEXT)._replace(
            body=ormsgpack.packb({"v": "x", "channel_versions": 3, "channel_values": 7, "ts": []}),
            metadata=ormsgpack.packb({"parents": 5, "step": [], "run_id": {}, "writes": 1}),
        )
    ),
    "times-beyond-the-calendar": lambda: of(
        with_value(TEXT)._replace(time=2**64 - 1), with_value(TEXT, 1)._replace(time=-(2**63))
    ),
    "tags-by-half": lambda: of(with_value(TEXT)._replace(tags=b"odd")),
    "slots-at-the-ends": lambda: of(
        WritesRecord("t", "", "000", "k", "", [(2**64 - 1, "x", TEXT), (-(2**63), "x", TEXT)]),
        with_value(TEXT),
    ),
    "generations-at-the-end": lambda: of_payloads(raw(Kind.REPLACED, 2**64 - 1)),
    "generation-below-zero": lambda: of_payloads(raw(Kind.REPLACED, -1)),
    "last-generation": lambda: build_log([checkpoint()], header=LAST).data,
    "key-check-without-a-flag": lambda: build_log([checkpoint()], header=WITH_CHECK).data,
    "encrypted-without-a-key-check": lambda: build_log([checkpoint()], header=ENCRYPTED).data,
    "encrypted-frame": lambda: mended(of(checkpoint())[:FIRST] + ONE_ENCRYPTED),
    "length-of-a-gigabyte": lambda: claims_more_than_there_is(MAX_PAYLOAD),
    "length-of-all": lambda: claims_more_than_there_is(2**32 - 1),
    "many-empty-records": lambda: of_payloads(*[raw(Kind.VOUCH)] * 300),
    "every-kind-without-fields": lambda: of_payloads(*[(kind, b"\x90") for kind in range(7, 9)]),
    "magics": lambda: HEADER.encode() + FRAME_MAGIC * 5000,
}
LAST = FileHeader(bytes(16), generation=2**64 - 1)
WITH_CHECK = FileHeader(bytes(16), key_check=bytes(4096))
ENCRYPTED = FileHeader(bytes(16), flags=1)
ONE_ENCRYPTED = encode_frame(Kind.DELETE, b"\x91\x90", FIRST, 0, 0, 0, 1)[0]


# -- as a script


def main() -> None:
    if sys.argv[1:] == ["--write"]:
        CORPUS.mkdir(exist_ok=True)
        for name, build in BUILDERS.items():
            (CORPUS / f"{name}.log").write_bytes(build())
        return
    import atheris

    logging.disable(logging.CRITICAL)

    def one(data: bytes) -> None:
        survive(data)
        survive(mended(data))

    atheris.instrument_all()
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
