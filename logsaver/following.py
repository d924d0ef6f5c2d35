"""A log and its index, as far as the log has been read: from a seal or its start, and onwards."""

from __future__ import annotations

import time

from logsaver.frame import CHECKSUM_AT, HEADER_CHECKSUM_AT, Frame
from logsaver.index import Index
from logsaver.log import Log
from logsaver.record import Kind, Record, ReplacedRecord, SealRecord
from logsaver.recovery import frames_past_hints, watermark_of
from logsaver.sealing import FoundSeal, SealedThreads, Sealer, find_seals


class Following:
    """What a store knows of the file. The store's lock guards it."""

    log: Log
    index: Index
    epoch: int
    _end: int  # of what has been read: whole frames
    _last: int  # the checksum the next frame chains onto
    _last_at: int  # where it stands in the file
    _own_end: int  # of the last frame that we appended to this generation
    _watermark: int
    _named_upto: int  # this much was synced before the file got its name
    _is_replaced: bool  # its last record says so
    _index_is_stale: bool
    _name_checked: float
    _sealed: SealedThreads | None  # what the index was read from
    _sealer: Sealer

    def has_appended(self) -> bool:
        """Whether we have written to this generation."""
        return self._own_end > 0

    def _adopt(self, log: Log) -> None:
        """Go on with this generation, from its start."""
        if log is not self.log:
            self.log.committer.rest()
        self.log = log
        self.epoch += 1
        self._own_end = 0
        self._name_checked = time.monotonic()
        self._read()
        self._tell_committer(log)

    def _read(self) -> None:
        """Build the index from what was written; anew after a call that failed half-way."""
        self._rewind()
        self._index_is_stale = True  # until it is built from one end to the other
        for seal in find_seals(self.log):
            self._start_behind(seal)
            self._follow()
            if self._watermark >= seal.end:
                break
            # Nothing says that all before it is there: it may be the end of a torn tail.
            self._rewind()
        else:
            self._follow()
        self._index_is_stale = False

    def _rewind(self) -> None:
        log = self.log
        self.index, self._sealed = Index(), None
        self._end = self._watermark = self._named_upto = log.header.data_start
        self._last, self._last_at = log.seed, HEADER_CHECKSUM_AT
        self._is_replaced = False
        self._sealer = Sealer(self._end)

    def _start_behind(self, seal: FoundSeal) -> None:
        self.index, self._sealed = Index(seal.threads), seal.threads
        self._end, self._named_upto = seal.end, seal.named_upto
        self._watermark = max(seal.head.synced_upto, self.log.header.data_start)
        self._last, self._last_at = seal.head.checksum, seal.offset + CHECKSUM_AT
        self._sealer.found(seal.end)

    def _follow(self) -> None:
        """Apply the whole frames from `_end` on."""
        log, was_stale = self.log, self._index_is_stale
        for frame in frames_past_hints(
            log.file, seed=log.seed, start=self._end, previous=self._last
        ):
            record = log.decode(frame)
            self._index_is_stale = True  # an interrupt may leave the record there by half
            self.index.apply(record, frame.offset, frame.size)
            self._end, self._last = frame.end, frame.checksum
            self._last_at = frame.offset + CHECKSUM_AT
            self._watermark = max(self._watermark, frame.synced_upto)
            self._is_replaced = False
            if frame.kind >= Kind.REPLACED:
                self._heed(frame, record)
            self._index_is_stale = was_stale
        log.committer.written = self._end

    def _heed(self, frame: Frame, record: Record) -> None:
        """What a record says of the file and not of its content."""
        if isinstance(record, ReplacedRecord):
            self._is_replaced = record.generation > self.log.header.generation
            if not self._is_replaced:
                self._named_upto = frame.offset
        elif isinstance(record, SealRecord):
            self._sealer.found(frame.end)

    def _tell_committer(self, log: Log) -> None:
        """How far this log is on stable storage, as far as its frames tell."""
        log.committer.written = self._end
        log.committer.synced = self._watermark
        log.committer.sync.unsynced = range(self._watermark, self._end)
        if self._watermark > self._named_upto:
            # Whoever synced this had made sure of the name before.
            log.committer.sync.name_is_safe = True

    def _watermark_of_tail(self) -> int:
        log = self.log
        return watermark_of(log.file, seed=log.seed, start=self._end, known=self._watermark)
