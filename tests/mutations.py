"""The mutations: each takes one safeguard out of the code. `mutation.py` runs them."""

from __future__ import annotations

from typing import NamedTuple


class Mutation(NamedTuple):
    """`source` stands exactly once in `file`, a module of logsaver."""

    why: str
    file: str
    source: str
    replacement: str
    tests: str  # the files most likely to notice


MUTATIONS = [
    # -- syncs
    Mutation(
        "sync: a log's sync reaches the disk",
        "disk.py",
        "            os.fdatasync(fd)\n",
        "            pass\n",
        "test_logfile",
    ),
    Mutation(
        "sync: on macOS it reaches behind the drive's cache",
        "disk.py",
        "fcntl.fcntl(fd, fcntl.F_FULLFSYNC)",
        "os.fsync(fd)",
        "test_logfile",
    ),
    Mutation(
        "sync: a directory's sync reaches the disk",
        "disk.py",
        "            os.fsync(fd)\n        finally:",
        "            pass\n        finally:",
        "test_logfile",
    ),
    Mutation(
        "sync: the name of a log reaches the disk",
        "logfile.py",
        "        self._disk.sync_directory(directory_of(self.path))\n",
        "        pass\n",
        "test_crashes",
    ),
    Mutation(
        "sync: a new file is synced before it is renamed",
        "successor.py",
        "        self.file.sync()\n        if self",
        "        if self",
        "test_crashes test_sharing",
    ),
    Mutation(
        "sync: the name of an installed file is made permanent",
        "successor.py",
        "        self.file.sync_name()\n",
        "",
        "test_sharing test_crashes",
    ),
    Mutation(
        "sync: the name of a log that somebody else put in place is made permanent",
        "log.py",
        "            self._file.sync_name()\n",
        "",
        "test_crashes",
    ),
    Mutation(
        "sync: the one who made a log need not do that twice",
        "opening.py",
        "log.committer.sync.name_is_safe = file.identity == made",
        "log.committer.sync.name_is_safe = True",
        "test_crashes",
    ),
    Mutation(
        "sync: the file is synced, not its name alone",
        "log.py",
        "        self._file.sync()\n",
        "",
        "test_crashes",
    ),
    Mutation(
        "sync: a commit syncs",
        "durability.py",
        "            self.sync()\n",
        "            pass\n",
        "test_group_commit",
    ),
    Mutation(
        "sync: it acknowledges only what was written before it began",
        "durability.py",
        "        self.synced = reached\n",
        "        self.synced = self.written\n",
        "test_group_commit",
    ),
    Mutation(
        "sync: the flusher syncs",
        "durability.py",
        "                self.wait(self.written)  # an error",
        "                pass  # an error",
        "test_group_commit",
    ),
    Mutation(
        "sync: a put in sync mode waits for it",
        "saver.py",
        "            log.committer.wait(end)\n",
        "            log.committer.start()\n",
        "test_group_commit",
    ),
    Mutation(
        "sync: a put in async mode starts one",
        "saver.py",
        "            log.committer.start()\n\n    async",
        "            pass\n\n    async",
        "test_group_commit",
    ),
    Mutation(
        "sync: a coroutine waits for it",
        "saver.py",
        "            await log.committer.wait_async(end)\n        elif",
        "            log.committer.start()\n        elif",
        "test_group_commit",
    ),
    Mutation(
        "sync: closing and the interpreter's exit sync what was appended",
        "store.py",
        "        return self._own_end > committer.synced or committer.failure is not None\n",
        "        return committer.failure is not None\n",
        "test_exit test_lifecycle",
    ),
    Mutation(
        "sync: closing syncs what came while it flushed",
        "store.py",
        "                committer.wait(self._own_end)\n",
        "                pass\n",
        "test_group_commit",
    ),
    Mutation(
        "sync: a repaired log is synced",
        "repair.py",
        "        store.close(sync=True)\n",
        "        store.close()\n",
        "test_corruption test_logfile",
    ),
    # -- checksums and the other checks of a frame
    Mutation(
        "check: the file header's checksum",
        "frame.py",
        "if checksum != crc32(key_check, crc32(data[: _FILE_HEADER.size])):",
        "if False:",
        "test_frame test_corruption",
    ),
    Mutation(
        "check: a frame header's checksum",
        "frame.py",
        "if checksum != crc32(buffer[at : at + _FRAME_HEADER.size], seed) or length > MAX_PAYLOAD:",
        "if length > MAX_PAYLOAD:",
        "test_frame",
    ),
    Mutation(
        "check: a payload's checksum",
        "frame.py",
        "if len(payload) < head.length or crc32(payload) != head.payload_checksum:",
        "if len(payload) < head.length:",
        "test_frame",
    ),
    Mutation(
        "check: a frame's own offset",
        "frame.py",
        "if magic != FRAME_MAGIC or own_offset != offset:",
        "if magic != FRAME_MAGIC:",
        "test_frame",
    ),
    Mutation(
        "check: the seed ties frames to their file",
        "frame.py",
        "return int(_unpack_checksum(self.encode(), _FILE_HEADER.size)[0])",
        "return 0",
        "test_frame",
    ),
    Mutation(
        "check: a frame follows the one before it",
        "recovery.py",
        "if previous is not None and frame.previous != previous:",
        "if False:",
        "test_frame test_corruption",
    ),
    # -- caps
    Mutation(
        "cap: a payload's length, when it is read",
        "frame.py",
        "_FRAME_HEADER.size], seed) or length > MAX_PAYLOAD:",
        "_FRAME_HEADER.size], seed):",
        "test_frame",
    ),
    Mutation(
        "cap: a payload's length, when it is written",
        "log.py",
        "    if len(payload) > MAX_PAYLOAD:",
        "    if False:",
        "test_bad_input test_record test_writing",
    ),
    Mutation(
        "cap: the key check's length",
        "frame.py",
        "if key_check_size > MAX_KEY_CHECK or len(key_check) < key_check_size:",
        "if len(key_check) < key_check_size:",
        "test_frame test_corruption",
    ),
    Mutation(
        "cap: opening reads no more than the file has",
        "recovery.py",
        "        if rest < needed:\n            return\n"
        "        wanted = min(max(CHUNK, needed), rest)",
        "        wanted = max(CHUNK, needed)",
        "test_frame",
    ),
    Mutation(
        "cap: reading a frame reads no more than the file has",
        "log.py",
        "self.file.read(min(FRAME_HEADER_SIZE + head.length, available), offset)",
        "self.file.read(FRAME_HEADER_SIZE + head.length, offset)",
        "test_corruption",
    ),
    # -- the watermark
    Mutation(
        "watermark: whole frames carry it",
        "store.py",
        "            self._watermark = max(self._watermark, frame.synced_upto)\n",
        "",
        "test_recovery",
    ),
    Mutation(
        "watermark: headers behind the damage carry it",
        "recovery.py",
        "    return max(known, max((found.head.synced_upto for found in heads), default=known))",
        "    return known",
        "test_recovery",
    ),
    Mutation(
        "watermark: below it there is damage, at open",
        "store.py",
        "            if known < watermark:",
        "            if False:",
        "test_recovery",
    ),
    Mutation(
        "watermark: at it there is a torn tail, at open",
        "store.py",
        "            if known < watermark:",
        "            if known <= watermark:",
        "test_recovery",
    ),
    Mutation(
        "watermark: below it there is damage, before an append",
        "store.py",
        "            if self._end < watermark:",
        "            if False:",
        "test_recovery test_sharing",
    ),
    Mutation(
        "watermark: at it there is a torn tail, before an append",
        "store.py",
        "            if self._end < watermark:",
        "            if self._end <= watermark:",
        "test_recovery test_sharing",
    ),
    Mutation(
        "watermark: a frame says what was synced",
        "store.py",
        "self._last, log.committer.synced, log.seed",
        "self._last, log.header.data_start, log.seed",
        "test_recovery",
    ),
    Mutation(
        "watermark: a frame says no more than what was synced",
        "store.py",
        "self._last, log.committer.synced, log.seed",
        "self._last, offset, log.seed",
        "test_recovery",
    ),
    Mutation(
        "watermark: what is above it at open is not synced",
        "store.py",
        "        log.committer.synced = self._watermark\n",
        "        log.committer.synced = self._end\n",
        "test_recovery",
    ),
    Mutation(
        "watermark: headers across the edge of a read are found",
        "recovery.py",
        "piece = file.read(CHUNK + FRAME_HEADER_SIZE, position)",
        "piece = file.read(CHUNK, position)",
        "test_frame",
    ),
    Mutation(
        "watermark: only a frame that was synced shows that the name is safe",
        "store.py",
        "        if self._watermark > self._unnamed_end:",
        "        if True:",
        "test_crashes test_sharing",
    ),
    Mutation(
        "watermark: what was synced before the rename does not show it",
        "store.py",
        "                    self._unnamed_end = frame.offset\n",
        "                    pass\n",
        "test_sharing",
    ),
    # -- the rewrite of what was not synced
    Mutation(
        "rewrite: the unsynced part is written again",
        "log.py",
        "            file.write(piece, at)\n",
        "",
        "test_recovery",
    ),
    Mutation(
        "rewrite: before a sync is a promise",
        "log.py",
        "        self.rewrite_unsynced()\n        self._file.sync()",
        "        self._file.sync()",
        "test_recovery test_crashes",
    ),
    Mutation(
        "rewrite: before the first append",
        "store.py",
        "        if committer.sync.unsynced and self.promises:",
        "        if False:",
        "test_recovery test_real_disks",
    ),
    Mutation(
        "rewrite: the page cache is dropped first",
        "log.py",
        "            file.forget(at, at + len(piece))\n",
        "",
        "test_recovery",
    ),
    Mutation(
        "rewrite: dropping reaches the page cache",
        "disk.py",
        '        if hasattr(os, "posix_fadvise"):',
        "        if False:",
        "test_logfile",
    ),
    Mutation(
        "rewrite: all of what is above the watermark",
        "store.py",
        "log.committer.sync.unsynced = range(self._watermark, self._end)",
        "log.committer.sync.unsynced = range(0)",
        "test_recovery",
    ),
    Mutation(
        "rewrite: a large one is not done again at each start",
        "log.py",
        "        if is_much:",
        "        if False:",
        "test_recovery",
    ),
    # -- cuts
    Mutation(
        "cut: a torn tail is cut off",
        "recovery.py",
        "        file.truncate(end)\n",
        "",
        "test_recovery",
    ),
    Mutation(
        "cut: that cut is synced",
        "recovery.py",
        "        file.sync()  # or the cut-off frames could come back behind new ones\n",
        "",
        "test_recovery",
    ),
    Mutation(
        "cut: a torn tail is set aside",
        "recovery.py",
        "        return file.save_aside(end, size)\n",
        "        return None\n",
        "test_recovery",
    ),
    Mutation(
        "cut: what is set aside is synced",
        "logfile.py",
        "            copy.sync()\n",
        "",
        "test_crashes test_recovery",
    ),
    Mutation(
        "cut: half a file is not left beside the log",
        "logfile.py",
        "                self._disk.unlink(path)\n",
        "                pass\n",
        "test_real_disks",
    ),
    Mutation(
        "cut: a failed write is cut back",
        "log.py",
        "            self.file.truncate(offset)\n",
        "            pass\n",
        "test_disk_failures",
    ),
    Mutation(
        "cut: a whole frame stays, its caller interrupted or not",
        "log.py",
        "        if decode_frame(rest, 0, offset=offset, seed=self.seed) is None:",
        "        if True:",
        "test_interrupts test_sharing",
    ),
    Mutation(
        "cut: the index forgets a failed write",
        "store.py",
        "        self._index_is_stale = True\n        log = self.log\n",
        "        log = self.log\n",
        "test_disk_failures test_interrupts",
    ),
    Mutation(
        "cut: a stale index is built anew before an append",
        "store.py",
        "        committer.check()\n        if self._index_is_stale:\n            self._reload()\n",
        "        committer.check()\n",
        "test_interrupts test_disk_failures",
    ),
    # -- poison
    Mutation(
        "poison: a failed sync is not taken for a success",
        "durability.py",
        "            self.failure = error  # at once: with the next call an interrupt may come\n"
        "            return error\n",
        "            pass\n",
        "test_disk_failures",
    ),
    Mutation(
        "poison: a failed sync is remembered",
        "durability.py",
        "            self.failure = error  # at once: with the next call an interrupt may come\n"
        "            return error\n",
        "            raise PoisonedLogError(self._path, str(error)) from error\n",
        "test_disk_failures",
    ),
    Mutation(
        "poison: whoever waits finds out",
        "durability.py",
        "                self.check()\n                self._sync_or_follow()",
        "                self._sync_or_follow()",
        "test_disk_failures",
    ),
    Mutation(
        "poison: after a failure no sync is tried",
        "durability.py",
        "        if self.failure is not None:\n            return None  # somebody",
        "        if False:\n            return None  # somebody",
        "test_disk_failures",
    ),
    Mutation(
        "poison: a failed sync is told to all",
        "durability.py",
        "        if error is not None:\n            self.poison(error)\n",
        "",
        "test_disk_failures",
    ),
    Mutation(
        "poison: coroutines that wait find out",
        "durability.py",
        "            upto = self.synced if self.failure is None else sys.maxsize",
        "            upto = self.synced",
        "test_disk_failures",
    ),
    Mutation(
        "poison: nothing is written afterwards",
        "store.py",
        "        if committer.failure is not None:\n            committer.check()\n",
        "",
        "test_disk_failures",
    ),
    Mutation(
        "poison: a cut that fails poisons",
        "store.py",
        "            log.committer.poison(error)\n",
        "            pass\n",
        "test_disk_failures",
    ),
    Mutation(
        "poison: closing tells of it",
        "saver.py",
        "            store.flush()\n",
        "            pass\n",
        "test_disk_failures",
    ),
    Mutation(
        "poison: coroutines that wait find out about a failed cut",
        "durability.py",
        "        self._settle_waiters()\n        # Nobody",
        "        # Nobody",
        "test_disk_failures",
    ),
    # -- the lock between processes
    Mutation(
        "lock: it reaches the operating system",
        "disk.py",
        "        flock = staticmethod(fcntl.flock)\n",
        "        flock = staticmethod(lambda fd, operation: None)\n",
        "test_sharing test_lifecycle",
    ),
    Mutation(
        "lock: an append takes it",
        "store.py",
        "                log.file.flock(LOCK)\n",
        "                pass\n",
        "test_sharing",
    ),
    Mutation(
        "lock: an append gives it back",
        "store.py",
        "                return self._append(record, kind, payload)\n"
        "            finally:\n"
        "                self.log.file.flock(UNLOCK)",
        "                return self._append(record, kind, payload)\n"
        "            finally:\n"
        "                pass",
        "test_sharing test_lifecycle",
    ),
    Mutation(
        "lock: a change gives it back",
        "store.py",
        "                return self._append(record, *payload_of(record))\n"
        "            finally:\n"
        "                self.log.file.flock(UNLOCK)",
        "                return self._append(record, *payload_of(record))\n"
        "            finally:\n"
        "                pass",
        "test_sharing test_lifecycle",
    ),
    Mutation(
        "lock: it is never waited for while something is held",
        "disk.py",
        "fcntl.LOCK_EX | fcntl.LOCK_NB if fcntl",
        "fcntl.LOCK_EX if fcntl",
        "test_sharing",
    ),
    Mutation(
        "lock: whoever finds it taken tries again",
        "waiting.py",
        "        except LockBusyError:\n"
        "            pauses = self._pauses()\n"
        "        while True:\n"
        "            time.sleep(next(pauses))",
        "        except LockBusyError:\n"
        "            raise\n"
        "        while True:\n"
        "            time.sleep(next(pauses))",
        "test_sharing",
    ),
    Mutation(
        "lock: a coroutine that finds it taken tries again",
        "waiting.py",
        "        except LockBusyError:\n"
        "            pauses = self._pauses()\n"
        "        while True:\n"
        "            await",
        "        except LockBusyError:\n            raise\n        while True:\n            await",
        "test_sharing",
    ),
    Mutation(
        "lock: nobody waits for ever",
        "waiting.py",
        "        while time.monotonic() < deadline:",
        "        while True:",
        "test_sharing",
    ),
    Mutation(
        "lock: a coroutine waits without blocking the loop",
        "waiting.py",
        "            await asyncio.sleep(next(pauses))",
        "            time.sleep(next(pauses))",
        "test_sharing",
    ),
    Mutation(
        "lock: whoever has it takes in what others appended",
        "store.py",
        "            if log.file.end() != self._end or self._is_replaced:\n"
        "                self._take_in_the_rest()\n"
        "            elif",
        "            if",
        "test_sharing",
    ),
    Mutation(
        "lock: whoever has it cuts off what a killed process left",
        "store.py",
        "            cut_torn_tail(log.file, self._end)\n",
        "            pass\n",
        "test_sharing test_kill",
    ),
    Mutation(
        "lock: a file that was cut is noticed",
        "log.py",
        "    if size < known:",
        "    if False:",
        "test_sharing",
    ),
    Mutation(
        "lock: a file that was overwritten is noticed",
        "log.py",
        "    if not has_checksum(file, at, checksum):",
        "    if False:",
        "test_sharing",
    ),
    Mutation(
        "lock: an end is cut off at open under the lock alone",
        "store.py",
        "                try:\n"
        "                    self._lock_file()\n"
        "                finally:\n"
        "                    self.log.file.flock(UNLOCK)",
        "                self._take_in_the_rest()",
        "test_sharing",
    ),
    Mutation(
        "lock: a change looks at the index under it",
        "store.py",
        "                self._lock_file()\n                record = plan(self.log, self.index)",
        "                record = plan(self.log, self.index)\n                self._lock_file()",
        "test_sharing",
    ),
    # -- followers
    Mutation(
        "follow: a reader takes in what others appended",
        "store.py",
        "        if self.log.file.end() != self._end or self._is_replaced:\n"
        "            self._follow()\n"
        "            # Nobody",
        "        if self._is_replaced:\n            self._follow()\n            # Nobody",
        "test_sharing test_lifecycle",
    ),
    Mutation(
        "follow: a writer at open is not taken for damage",
        "store.py",
        "                self._follow()\n                if self._end == known:\n",
        "                if True:\n",
        "test_sharing",
    ),
    Mutation(
        "follow: a flush covers what others appended",
        "store.py",
        "            self._check_sound()\n"
        "            self.view()\n"
        "            return self.log, self._end",
        "            self._check_sound()\n            return self.log, self._end",
        "test_sharing",
    ),
    Mutation(
        "follow: a reader goes on with the new generation",
        "store.py",
        "            while self._is_replaced and not self._is_replacing and self._has_successor():",
        "            while False:",
        "test_sharing",
    ),
    Mutation(
        "follow: only if there is one",
        "store.py",
        "return not file.has_its_name() and has_successor(file, self.log.header)",
        "return not file.has_its_name()",
        "test_sharing",
    ),
    Mutation(
        "follow: not in the process that replaces it",
        "store.py",
        "self._is_replaced and not self._is_replacing and",
        "self._is_replaced and",
        "test_sharing",
    ),
    # -- the name of the file
    Mutation(
        "name: a deleted or replaced file is noticed by an append",
        "store.py",
        "            check_name(log.file, log.header)\n",
        "",
        "test_sharing test_lifecycle",
    ),
    Mutation(
        "name: whoever has the lock looks at it",
        "store.py",
        "            if log.file.has_its_name():",
        "            if True:",
        "test_sharing",
    ),
    Mutation(
        "name: it is looked at again and again",
        "store.py",
        "NAME_CHECK_INTERVAL: Final = 0.005",
        "NAME_CHECK_INTERVAL: Final = 1e9",
        "test_sharing",
    ),
    Mutation(
        "name: nothing is acknowledged in a file without it",
        "log.py",
        "        check_name(self._file, self._header)\n\n    def rewrite_unsynced",
        "\n    def rewrite_unsynced",
        "test_sharing test_lifecycle",
    ),
    Mutation(
        "name: a successor has the same id",
        "log.py",
        "return other.file_id == header.file_id and other.generation > header.generation",
        "return other.generation > header.generation",
        "test_sharing",
    ),
    Mutation(
        "name: a successor has a later generation",
        "log.py",
        "return other.file_id == header.file_id and other.generation > header.generation",
        "return other.file_id == header.file_id",
        "test_sharing",
    ),
    Mutation(
        "name: a store without it is not shared with a new saver",
        "store.py",
        "            return file.has_its_name() or self._has_successor()\n",
        "            return True\n",
        "test_sharing test_lifecycle",
    ),
    Mutation(
        "name: another log is not gone on with",
        "opening.py",
        "    if header.file_id != log.header.file_id:",
        "    if False:",
        "test_sharing",
    ),
    Mutation(
        "name: one whose maker was faster is not claimed",
        "successor.py",
        "                if file.has_its_name():",
        "                if True:",
        "test_sharing",
    ),
    Mutation(
        "name: a log is made once, however many make it",
        "opening.py",
        "    if not empty.has_its_name():",
        "    if False:",
        "test_sharing test_lifecycle",
    ),
    # -- the lock of what is being made
    Mutation(
        "make: only one process makes a log",
        "opening.py",
        "    if not empty.try_lock():\n        raise LockBusyError\n",
        "",
        "test_replacing test_sharing",
    ),
    Mutation(
        "make: only one process makes a successor",
        "successor.py",
        "                if not file.try_lock():\n"
        "                    file.close()\n"
        "                    return None\n",
        "",
        "test_replacing test_sharing",
    ),
    Mutation(
        "make: what a killed maker wrote is not kept",
        "successor.py",
        "                    if file.end():\n                        file.truncate(0)\n",
        "",
        "test_replacing test_sharing",
    ),
    Mutation(
        "make: what was not installed goes",
        "successor.py",
        "                    self._disk.unlink(self._target + SUFFIX)\n",
        "                    pass\n",
        "test_replacing test_sharing",
    ),
    Mutation(
        "make: nobody else's goes",
        "successor.py",
        "                if self._disk.identity_at(self._target + SUFFIX) == self.file.identity:",
        "                if True:",
        "test_replacing test_sharing",
    ),
    Mutation(
        "make: what a killed maker left is swept up",
        "store.py",
        "                sweep(self.disk, self.path)\n",
        "                pass\n",
        "test_replacing test_sharing",
    ),
    # -- replacing a log
    Mutation(
        "replace: whoever follows the old file is told",
        "store.py",
        "            self._append(replaced, *payload_of(replaced))\n",
        "",
        "test_replacing test_sharing test_disk_failures",
    ),
    Mutation(
        "replace: they are told before the rename",
        "store.py",
        "            self._append(replaced, *payload_of(replaced))\n"
        "        if self.disk.replaces_open_files:\n"
        "            successor.install(old.file)\n",
        "        if self.disk.replaces_open_files:\n"
        "            successor.install(old.file)\n"
        "        with self.lock:\n"
        "            self._append(replaced, *payload_of(replaced))\n",
        "test_replacing test_sharing test_disk_failures",
    ),
    Mutation(
        "replace: an install that fails behind the rename is noticed",
        "store.py",
        "            self._is_replaced = True\n            replaced",
        "            replaced",
        "test_replacing test_disk_failures",
    ),
    Mutation(
        "replace: nobody here writes meanwhile",
        "store.py",
        "        if self._is_replacing:\n            raise LockBusyError\n",
        "",
        "test_replacing test_sharing",
    ),
    Mutation(
        "replace: the last records are copied under the lock",
        "store.py",
        "        copy.catch_up()\n",
        "",
        "test_replacing test_sharing",
    ),
    Mutation(
        "replace: a copy of another generation is not installed",
        "store.py",
        "                if self.log is not copy.source:\n                    return False\n",
        "",
        "test_replacing test_sharing",
    ),
    Mutation(
        "replace: a record for an earlier generation is made anew",
        "store.py",
        "                if epoch is not None and epoch != self.epoch:\n"
        "                    raise ReplacedMeanwhileError\n",
        "",
        "test_replacing test_sharing",
    ),
    Mutation(
        "replace: a new generation is a new epoch, for who made it",
        "store.py",
        "        self.log, self.index = log, copy.index\n        self.epoch += 1\n",
        "        self.log, self.index = log, copy.index\n",
        "test_replacing test_sharing",
    ),
    Mutation(
        "replace: a new generation is a new epoch, for others",
        "store.py",
        "        self.index = Index()\n        self.epoch += 1\n",
        "        self.index = Index()\n",
        "test_replacing test_sharing",
    ),
    Mutation(
        "replace: positions remembered of an earlier epoch are not used",
        "bases.py",
        " or base.epoch != store.epoch:",
        ":",
        "test_replacing test_sharing",
    ),
    Mutation(
        "lock: writes are compared with those of other processes",
        "putting.py",
        "self._store.append(self._record, None, without_repeats)",
        "self._store.append(self._record)",
        "test_writing test_sharing",
    ),
    Mutation(
        "replace: references are translated",
        "copying.py",
        "            return self._place(stored)\n",
        "            return stored\n",
        "test_replacing test_sharing",
    ),
    Mutation(
        "replace: most of the copy is synced before the lock",
        "copying.py",
        "        self._file.sync()\n",
        "",
        "test_replacing test_sharing test_crashes",
    ),
    Mutation(
        "replace: the copy says how far it is synced",
        "copying.py",
        "        self.synced = self.end\n        self._add",
        "        self._add",
        "test_replacing test_sharing",
    ),
    Mutation(
        "replace: old announcements are not copied",
        "copying.py",
        "        if isinstance(record, AboutTheFile):\n            return\n",
        "",
        "test_replacing test_sharing",
    ),
    Mutation(
        "replace: a new generation has a number of its own",
        "copying.py",
        "header.generation + 1,",
        "header.generation,",
        "test_replacing test_sharing",
    ),
    Mutation(
        "replace: a killed replacer's record means nothing",
        "store.py",
        "                self._is_replaced = False\n                self._name_checked",
        "                self._name_checked",
        "test_replacing test_sharing",
    ),
    Mutation(
        "replace: the old file's lock is given back",
        "store.py",
        "                copy.source.file.flock(UNLOCK)\n",
        "",
        "test_replacing test_sharing",
    ),
    Mutation(
        "replace: the new file's lock is given back",
        "store.py",
        "                copy.source.file.flock(UNLOCK)\n"
        "                self.log.file.flock(UNLOCK)\n",
        "                copy.source.file.flock(UNLOCK)\n",
        "test_replacing test_sharing",
    ),
    # -- fork
    Mutation(
        "fork: the child lets go of the parent's open files",
        "registry.py",
        "    close_in_child()\n",
        "",
        "test_fork test_sharing",
    ),
    Mutation(
        "fork: nobody is about to open a file",
        "registry.py",
        "    opening.acquire()\n",
        "    pass\n",
        "test_fork test_sharing",
    ),
    Mutation(
        "fork: the child has nothing to sync",
        "store.py",
        "        self._is_replacing = False\n        self._own_end = 0\n",
        "        self._is_replacing = False\n",
        "test_fork test_sharing",
    ),
    Mutation(
        "fork: the child opens the file anew",
        "store.py",
        "        if self._forked:\n            self._reopen_in_child()\n",
        "",
        "test_fork test_sharing",
    ),
    Mutation(
        "fork: the child has locks of its own",
        "store.py",
        "        self.lock = threading.Lock()\n        self._forked = True\n",
        "        self._forked = True\n",
        "test_fork test_sharing",
    ),
    Mutation(
        "fork: the child does not trust an index that was being changed",
        "store.py",
        "self._index_is_stale or not is_consistent",
        "self._index_is_stale",
        "test_fork test_sharing",
    ),
    Mutation(
        "fork: the child notices that the file is another one by now",
        "store.py",
        "        if (new.file.identity, new.header) != (old.file.identity, old.header) or (\n"
        "            self._index_is_stale\n"
        "        ):",
        "        if self._index_is_stale:",
        "test_fork test_sharing",
    ),
    Mutation(
        "fork: nobody is in the middle of something",
        "registry.py",
        "(store, store.before_fork())",
        "(store, False)",
        "test_fork test_sharing",
    ),
    Mutation(
        "fork: the parent goes on",
        "registry.py",
        "            store.after_fork_in_parent()\n",
        "            pass\n",
        "test_fork test_sharing",
    ),
    # -- one store per process
    Mutation(
        "share: savers of one process share a store",
        "registry.py",
        "    store = _shared.get(path)\n",
        "    store = None\n",
        "test_lifecycle test_sharing",
    ),
    Mutation(
        "share: the store is closed with the last of them",
        "registry.py",
        "        if store.users:",
        "        if False:",
        "test_lifecycle test_sharing",
    ),
    # -- the frame that vouches
    Mutation(
        "vouch: a clean close does",
        "store.py",
        "                    self.log.vouch(self._end, self._last, self._last_at)\n",
        "                    pass\n",
        "test_vouching",
    ),
    Mutation(
        "vouch: only for what is synced",
        "log.py",
        "        if synced < end:\n            return\n",
        "",
        "test_vouching",
    ),
    Mutation(
        "vouch: only where the log ends",
        "log.py",
        "file.try_lock() and file.end() == end and",
        "file.try_lock() and",
        "test_vouching",
    ),
    Mutation(
        "vouch: a part of the frame is cut off",
        "log.py",
        "            self.cut_unless_whole(end)\n",
        "",
        "test_vouching",
    ),
    Mutation(
        "repair: what is said of the damaged file is not copied",
        "repair.py",
        "        if isinstance(record, AboutTheFile):\n            continue\n",
        "",
        "test_vouching",
    ),
    # -- moving threads
    Mutation(
        "move: values are carried and not built",
        "migrate.py",
        "    source, target = _building_nothing(source, target)\n",
        "",
        "test_migrate",
    ),
    Mutation(
        "move: metadata is built only if nothing of it is lost",
        "keeping.py",
        "return built if self._serde.dumps_typed(built) == packed else value",
        "return built",
        "test_migrate",
    ),
    Mutation(
        "move: a carried value is not pickled",
        "keeping.py",
        '        raise TypeError("a value that is only carried cannot be pickled")',
        "        return super().__reduce__()",
        "test_migrate",
    ),
    Mutation(
        "move: a sample of the copy is compared",
        "migrate.py",
        "            self._compare(place)\n",
        "",
        "test_migrate",
    ),
    Mutation(
        "move: checkpoints of the copy are counted",
        "migrate.py",
        "            if place not in there and place in still:\n",
        "            if False:\n",
        "test_migrate",
    ),
    # -- the command
    Mutation(
        "command: nothing is taken away unasked",
        "cli/asking.py",
        "    if yes:\n        return\n",
        "    return\n",
        "test_commands",
    ),
    Mutation(
        "command: a terminal does not obey a state",
        "cli/text.py",
        '"".join(letter if letter.isprintable() else "·" for letter in text.expandtabs(4))',
        "text.expandtabs(4)",
        "test_commands",
    ),
    Mutation(
        "command: a broken import is taken back",
        "cli/import_.py",
        '        saver.prune(threads, strategy="delete")\n',
        "",
        "test_commands",
    ),
    Mutation(
        "command: an export must have its end",
        "cli/jsonlines.py",
        '    raise BadExportError(f"line {number}: the export ends here, unfinished")\n',
        "",
        "test_commands",
    ),
    Mutation(
        "command: a log is not made by a command that changes one",
        "cli/opening.py",
        "        if to_write and not path.exists():\n",
        "        if False:\n",
        "test_commands",
    ),
    # -- histories
    Mutation(
        "history: nothing behind the seed counts",
        "reading.py",
        "            if not missing:\n                break\n",
        "",
        "test_delta_history",
    ),
    Mutation(
        "history: of several writes none is left out",
        "reading.py",
        "        if len(rows) == 1 and type(stored) is bytes:",
        "        if type(stored) is bytes:",
        "test_delta_history",
    ),
]
