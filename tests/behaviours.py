"""The lines of docs/behaviours.md, each taken out of the code: a test with its number must fail.

`mutation.py` runs these; `test_behaviours.py` checks that no line is left out.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from mutations import Mutation

TESTS = Path(__file__).parent
PAGE = (TESTS.parent / "docs" / "behaviours.md").read_text("utf-8")
LINES = [int(number) for number in re.findall(r"^(\d+)\. ", PAGE, re.MULTILINE)]


@cache
def marked() -> dict[int, list[str]]:
    """The tests of each line: those with its number in their marker."""
    found: dict[int, list[str]] = {}
    for file in sorted(TESTS.glob("test_*.py")):
        for node in ast.parse(file.read_text("utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                for number in _numbers(node):
                    found.setdefault(number, []).append(f"tests/{file.name}::{node.name}")
    return found


def _numbers(test: ast.FunctionDef | ast.AsyncFunctionDef) -> list[int]:
    return [
        argument.value
        for decorator in test.decorator_list
        if ast.unparse(decorator).startswith("pytest.mark.behaviour(")
        for argument in decorator.args
    ]


def without(line: int, what: str, file: str, source: str, replacement: str = "") -> Mutation:
    why = f"behaviour {line}: {what}"
    return Mutation(why, file, source, replacement, " ".join(marked()[line]))


BEHAVIOURS = [
    # -- reading
    without(
        1,
        "the latest is the largest id, not the last one put",
        "index.py",
        "                insort(ids, checkpoint_id)",
        "                ids.append(checkpoint_id)",
    ),
    without(
        1,
        "of the namespace, not of the thread",
        "reading.py",
        "            checkpoint_id = ns.ids[-1]\n        return",
        "            checkpoint_id = max(\n"
        "                i for n in store.index.threads[address.thread_id].namespaces.values()"
        " for i in n.ids\n            )\n        return",
    ),
    without(
        2,
        "another id does not find the latest",
        "reading.py",
        "        if checkpoint_id is None:\n            if not ns.ids:",
        "        if checkpoint_id not in ns.listed:\n            if not ns.ids:",
    ),
    without(
        2,
        "an id that is missing does not raise",
        "reading.py",
        "    entry = ns.listed.get(key.checkpoint_id)\n",
        "    entry = ns.listed[key.checkpoint_id]\n",
    ),
    without(
        2,
        "a parent that is missing reads as None",
        "reading.py",
        "        entry.parent_id in ns.listed,\n",
        "        entry.parent_id is not None,\n",
    ),
    without(
        3,
        "looking for a thread does not make it",
        "index.py",
        "        return None if thread is None else thread.namespaces.get(ns)\n",
        "        return self._namespace(thread_id, ns)[1]\n",
    ),
    without(
        4,
        "a thread id is its text",
        "config.py",
        "        thread_id = str(thread_id)\n",
        "        thread_id = repr(thread_id)\n",
    ),
    without(
        4,
        "a checkpoint id is its text",
        "config.py",
        "        checkpoint_id = str(checkpoint_id)\n    return new",
        "        checkpoint_id = repr(checkpoint_id)\n    return new",
    ),
    without(
        5,
        "get_tuple takes an absent namespace for the root graph's",
        "config.py",
        '    if ns is None:\n        ns = ""\n',
        '    if ns is None:\n        ns = "none"\n',
    ),
    without(
        5,
        "list takes it for any",
        "saver.py",
        "ns=address.ns if names_namespace(config) else None,",
        "ns=address.ns,",
    ),
    without(
        6,
        "the task path comes first",
        "reading.py",
        "writes_sort_key(record.task_path, task_id, slot)",
        'writes_sort_key("", task_id, slot)',
    ),
    without(
        6,
        "pending writes are sorted",
        "reading.py",
        "    return sorted(chosen.values(), key=_order)\n",
        "    return list(chosen.values())\n",
    ),
    without(
        7,
        "a value is stored although it is not called new",
        "bases.py",
        "if version is None or versions.get(channel) != version:",
        "if version is None:",
    ),
    without(
        7,
        "a channel that was left out does not reappear",
        "putting.py",
        "    channels: dict[str, Stored] = {}\n    drafts",
        "    channels: dict[str, Stored] = (\n"
        "        {} if base is None else {name: base.offset for name in base.channels}\n"
        "    )\n    drafts",
    ),
    without(
        7,
        "a channel without a value is absent",
        "putting.py",
        '    values = body.pop("channel_values", None) or {}\n',
        '    values = body.pop("channel_values", None) or {}\n'
        '    values = dict.fromkeys(body.get("channel_versions") or ()) | values\n',
    ),
    without(
        8,
        "a checkpoint without channel_values loads",
        "putting.py",
        'body.pop("channel_values", None) or {}',
        'body.pop("channel_values")',
    ),
    without(
        8,
        "values of older serializers load",
        "codec.py",
        "        value = serde.loads_typed(kind_and_data)\n",
        '        value = serde.loads_typed(("msgpack", kind_and_data[1]))\n',
    ),
    without(
        9,
        "list goes on behind a value that cannot be decoded",
        "listing.py",
        "        yield read_tuple(serde, found, load_leniently, metadata)\n",
        "        yield read_tuple(serde, found, metadata=metadata)\n",
    ),
    without(
        9,
        "list goes on behind metadata that cannot be decoded",
        "listing.py",
        "            metadata = read_metadata(serde, found, load_leniently)\n",
        "            metadata = read_metadata(serde, found)\n",
    ),
    without(
        9,
        "the error says whose value it is",
        "codec.py",
        'f"{owner}: {part} {name!r} cannot be read back by',
        'f"a value cannot be read back by',
    ),
    without(
        9,
        "an undecodable value does not pass for data",
        "codec.py",
        "    __getattr__ = _raise\n",
        "",
    ),
    without(
        10,
        "a lone surrogate is not replaced",
        "surrogates.py",
        "option & ~ormsgpack.OPT_REPLACE_SURROGATES",
        "option",
    ),
    without(
        10,
        "nor where the serializer encrypts",
        "surrogates.py",
        "        serde.serde = _Exact(serde.serde)\n",
        "",
    ),
    without(
        10,
        "the error says what cannot be stored",
        "putting.py",
        "    for channel in channels:\n        if not _is_unicode(channel):",
        "    for channel in channels:\n        if False:",
    ),
    # -- listing
    without(
        11,
        "newest first",
        "listing.py",
        "key = heads.pop()\n",
        "key = heads.pop(0)\n",
    ),
    without(
        11,
        "by id, not thread by thread",
        "listing.py",
        "while unopened and (not heads or",
        "while unopened and (not heads or False and",
    ),
    without(
        12,
        "before leaves out the id itself",
        "listing.py",
        "            start = below\n",
        "            start = below + chr(0)\n",
    ),
    without(
        12,
        "before may name an id that is not here",
        "listing.py",
        "        if below is not None and (start",
        "        if any(below in ns.ids for ns in thread.namespaces.values()) and (start",
    ),
    without(
        12,
        "before without an id restricts nothing",
        "config.py",
        "    return str(checkpoint_id) if checkpoint_id else None\n",
        "    return str(checkpoint_id)\n",
    ),
    without(
        13,
        "limit=0 gives nothing",
        "listing.py",
        "    if left == 0:\n        return\n    walk",
        "    walk",
    ),
    without(
        13,
        "a limit ends the list",
        "listing.py",
        "            left -= 1\n",
        "",
    ),
    without(
        13,
        "a negative limit is an error",
        "saver.py",
        "        if limit is not None and limit < 0:",
        "        if False:",
    ),
    without(
        14,
        "keys are literal",
        "codec.py",
        "metadata.get(key)) for key, value in wanted.items()",
        'metadata.get(key.split(".")[0])) for key, value in wanted.items()',
    ),
    without(
        14,
        "all items must match",
        "codec.py",
        "    return all(\n        _equal",
        "    return any(\n        _equal",
    ),
    without(
        14,
        "values are compared after a round trip",
        "codec.py",
        "        return bool(serde.loads_typed(exact_dumps(serde)(wanted)) == found)\n",
        "        return False\n",
    ),
    without(
        14,
        "numbers that are equal match",
        "tags.py",
        '    return f"n{int(value)}" if value.is_integer() else',
        "    return",
    ),
    without(
        15,
        "list holds no lock where its caller is",
        "listing.py",
        "        yield read_tuple(serde, found, load_leniently, metadata)\n",
        "        with store.lock:\n"
        "            yield read_tuple(serde, found, load_leniently, metadata)\n",
    ),
    without(
        15,
        "it decodes no more than what it yields",
        "saver.py",
        "        yield from read_list(store, self._serde, selection)\n",
        "        yield from [*read_list(store, self._serde, selection)]\n",
    ),
    without(
        15,
        "it decodes nothing of what the filter rejects",
        "listing.py",
        "tuple(either for _, either in tags if either)",
        "()",
    ),
    # -- writing
    without(
        16,
        "an ordinary write stays as it is",
        "putting.py",
        "            rows = [row for row in rows if row[0] < 0 or row[0] not in stored]\n",
        "",
    ),
    without(
        16,
        "also where two threads come together",
        "reading.py",
        "            if slot < 0 or (task_id, slot) not in chosen:",
        "            if True:",
    ),
    without(
        16,
        "a special one overwrites",
        "putting.py",
        "if row[0] < 0 or row[0] not in stored]",
        "if row[0] not in stored]",
    ),
    without(
        16,
        "the last of a special one counts",
        "reading.py",
        "            if slot < 0 or (task_id, slot) not in chosen:",
        "            if (task_id, slot) not in chosen:",
    ),
    without(
        16,
        "that is decided for each write",
        "putting.py",
        "if row[0] < 0 or row[0] not in stored]",
        "if rows[0][0] < 0 or row[0] not in stored]",
    ),
    without(
        16,
        "special channels have places of their own",
        "putting.py",
        "slot_of(channel, number)",
        "number",
    ),
    without(
        17,
        "writes may come before their checkpoint",
        "index.py",
        "        tasks = writes.get(checkpoint_id)\n",
        "        if checkpoint_id not in thread.namespaces[name].listed:\n            return\n"
        "        tasks = writes.get(checkpoint_id)\n",
    ),
    without(
        17,
        "and after the next one",
        "index.py",
        "        tasks = writes.get(checkpoint_id)\n",
        "        if checkpoint_id < max(thread.namespaces[name].ids, default=''):\n"
        "            return\n"
        "        tasks = writes.get(checkpoint_id)\n",
    ),
    without(
        17,
        "a checkpoint that is put again keeps its writes",
        "index.py",
        "        listed[checkpoint_id] = entry\n",
        "        listed[checkpoint_id] = entry\n        ns.writes.pop(checkpoint_id, None)\n",
    ),
    without(
        17,
        "and is replaced",
        "index.py",
        "        listed[checkpoint_id] = entry\n",
        "        listed.setdefault(checkpoint_id, entry)\n",
    ),
    without(
        18,
        "put_writes has a task_path",
        "saver.py",
        '        task_path: str = "",\n    ) -> None:\n        """Store what',
        '        path: str = "",\n    ) -> None:\n        task_path = path\n        """Store what',
    ),
    without(
        19,
        "metadata takes in what the config says",
        "putting.py",
        "    kept_metadata = get_checkpoint_metadata(_without_chain(config), metadata)\n",
        "    kept_metadata = dict(metadata)\n",
    ),
    without(
        19,
        "metadata goes through the serializer",
        "putting.py",
        "dumps(kept_metadata)",
        "(lambda json: dumps(json.loads(json.dumps(kept_metadata, default=str))))("
        '__import__("json"))',
    ),
    without(
        20,
        "branches get different versions",
        "saver.py",
        "{random.random():016}",
        "{0.5:016}",
    ),
    without(
        20,
        "a version is padded",
        "saver.py",
        "{counter + 1:032}",
        "{counter + 1}",
    ),
    without(
        21,
        "a child's values are those of its own branch",
        "bases.py",
        "if base is None or base.checkpoint_id != checkpoint_id or",
        "if base is None or",
    ),
    without(
        22,
        "the checkpoint is not changed",
        "putting.py",
        "    body: dict[str, Any] = dict(checkpoint)\n",
        "    body: dict[str, Any] = checkpoint\n",
    ),
    without(
        22,
        "the versions are not kept by reference",
        "putting.py",
        "epoch, dict(versions), drafts",
        "epoch, versions, drafts",
    ),
    without(
        23,
        "put returns three keys",
        "putting.py",
        '                "checkpoint_id": checkpoint_id,\n            }',
        '                "checkpoint_id": checkpoint_id,\n'
        '                "checkpoint_map": {},\n            }',
    ),
    without(
        23,
        "and the root namespace is one of them",
        "putting.py",
        '                "checkpoint_ns": ns,\n',
        '                **({"checkpoint_ns": ns} if ns else {}),\n',
    ),
    # -- deleting, copying, pruning
    without(
        24,
        "a delete takes all namespaces",
        "index.py",
        "                self.threads.discard(thread_id)\n",
        "                if thread := self.threads.get(thread_id):\n"
        '                    thread.namespaces.pop("", None)\n',
    ),
    without(
        24,
        "and the writes that wait",
        "index.py",
        "                self.threads.discard(thread_id)\n",
        "                gone = self.threads.pop(thread_id, None)\n"
        "                for name, ns in gone.namespaces.items() if gone else ():\n"
        "                    for waiting in ns.writes.keys() - ns.listed.keys():\n"
        "                        self._make(thread_id, name).namespaces[name].writes[waiting] = (\n"
        "                            ns.writes[waiting]\n"
        "                        )\n",
    ),
    without(
        24,
        "a late write does not bring the thread back",
        "index.py",
        "            if summary.checkpoints:\n                yield",
        "            if True:\n                yield",
    ),
    without(
        25,
        "delete_for_runs reaches all namespaces",
        "removing.py",
        "        for name, ns in thread.namespaces.items():\n            removed",
        '        for name, ns in ((n, s) for n, s in thread.namespaces.items() if n == ""):\n'
        "            removed",
    ),
    without(
        25,
        "copy_thread copies all namespaces",
        "index.py",
        "{name: ns.copy() for name, ns in source.namespaces.items()}",
        '{name: ns.copy() for name, ns in source.namespaces.items() if name == ""}',
    ),
    without(
        25,
        "copy_thread does not write over a thread",
        "removing.py",
        "    if thread is not None and thread.checkpoints():",
        "    if False:",
    ),
    without(
        25,
        "prune can delete",
        "thinning.py",
        'DELETE_STRATEGIES: Final = ("delete", "delete_all")',
        'DELETE_STRATEGIES: Final = ("delete_all",)',
    ),
    without(
        25,
        "an unknown strategy is an error",
        "thinning.py",
        "        if strategy != KEEP_LATEST:",
        "        if False:",
    ),
    without(
        25,
        "a bare string is an error",
        "thinning.py",
        "    if isinstance(values, (str, bytes)):",
        "    if False:",
    ),
    without(
        26,
        "the latest of each namespace stays",
        "retention.py",
        "_with_sends(ns, set(ns.ids[-1:]), facts)",
        "_with_sends(ns, set(ns.ids[:1]), facts)",
    ),
    without(
        26,
        "the parent of an old head stays",
        "retention.py",
        "    return kept | {\n",
        "    return kept or {\n",
    ),
    without(
        26,
        "only if it has pending sends",
        "retention.py",
        "        and any(facts.writes_to(writes, TASKS) for",
        "        and any(True for",
    ),
    without(
        26,
        "and the head is older than version 4",
        "retention.py",
        "        and facts.version(entry) < FIRST_VERSION_WITHOUT_SENDS_IN_PARENT\n",
        "",
    ),
    without(
        26,
        "a call goes with its root checkpoint",
        "retention.py",
        "        if _is_call(name) and",
        "        if False and",
    ),
    without(
        26,
        "but not with one that is kept",
        "retention.py",
        'started_from in root.listed and started_from not in kept[""]:',
        "started_from in root.listed:",
    ),
    without(
        26,
        "nor with one that is still to come",
        "retention.py",
        'started_from in root.listed and started_from not in kept[""]:',
        'started_from not in kept[""]:',
    ),
    without(
        26,
        "a subgraph with a memory is no call",
        "retention.py",
        'return ":" in name.rsplit("|", 1)[-1]',
        'return ":" in name',
    ),
    without(
        27,
        "what a value is rebuilt from stays",
        "retention.py",
        "needed for each in walks.values() for needed in each.needed if needed in unlisted",
        "needed for each in walks.values() for needed in each.needed if False",
    ),
    without(
        27,
        "back to the nearest value",
        "retention.py",
        "                if ancestor_id == end.seed_id:\n                    return\n",
        "                return\n",
    ),
    without(
        27,
        "also where the parent is kept",
        "retention.py",
        "            descends[at] = False  # until",
        "            break\n            descends[at] = False  # until",
    ),
    without(
        27,
        "whoever walks back with get_tuple finds it",
        "saver.py",
        "        if found is None and names_hidden(config):",
        "        if False:",
    ),
    without(
        27,
        "it goes once nothing is rebuilt from it",
        "retention.py",
        "    unlisted = set(removed) | ns.hidden.keys()\n",
        "    unlisted = set(removed)\n",
    ),
    without(
        28,
        "counters_since_delta_snapshot is a sign",
        "removing.py",
        'channel in (metadata.get("counters_since_delta_snapshot") or ()) or bool(',
        "bool(",
    ),
    without(
        28,
        "delta_writes_versioned is a sign",
        "removing.py",
        'metadata.get("delta_writes_versioned")',
        "None",
    ),
    without(
        28,
        "a _DeltaSnapshot is a sign",
        "removing.py",
        "        return isinstance(value, _DeltaSnapshot)\n",
        "        return False\n",
    ),
    without(
        28,
        "writes and never a value are a sign",
        "retention.py",
        "        is_delta = end.is_written\n",
        "        is_delta = False\n",
    ),
    without(
        28,
        "nothing else is",
        "retention.py",
        "        if is_delta:\n",
        "        if True:\n",
    ),
    # -- the history of a delta channel
    without(
        29,
        "it follows parents",
        "reading.py",
        "                next_id = entry.parent_id\n",
        "                next_id = max((i for i in ns.ids if i < next_id), default=None)\n",
    ),
    without(
        29,
        "it stops at a cycle",
        "reading.py",
        "                entry = None if ns is None or next_id in seen else",
        "                entry = None if ns is None else",
    ),
    without(
        29,
        "the seed's own writes are included",
        "reading.py",
        "        if writes:\n            for write in _writes_to(",
        "        if writes and missing.isdisjoint(log.checkpoint(entry.offset).channels):\n"
        "            for write in _writes_to(",
    ),
    without(
        29,
        "the target's own are not",
        "reading.py",
        "    next_id, at_once = found.entry.parent_id,",
        "    yield found.log, Ancestor(found.key.checkpoint_id, found.entry, found.writes)\n"
        "    next_id, at_once = found.entry.parent_id,",
    ),
    without(
        30,
        "None is a seed, and no value is not",
        "reading.py",
        "        if channel in seeds:\n",
        "        if seeds.get(channel) is not None:\n",
    ),
    without(
        30,
        "no value is none",
        "reading.py",
        '        if channel in seeds:\n            histories[channel]["seed"] = seeds[channel]\n',
        '        histories[channel]["seed"] = seeds.get(channel)\n',
    ),
    without(
        31,
        'a checkpoint_id of "" means the latest',
        "config.py",
        "    if not checkpoint_id:  # LangGraph",
        "    if checkpoint_id is None:  # LangGraph",
    ),
    without(
        31,
        "no channels give an empty history",
        "saver.py",
        "            return {}\n        return read_delta_history(",
        '            raise ValueError("no channels")\n        return read_delta_history(',
    ),
    # -- life cycle
    without(
        32,
        "a clone shares what its original has",
        "saver.py",
        "    def __copy__(self)",
        "    def _copy(self)",
    ),
    without(
        32,
        "also whether it is closed",
        "saver.py",
        "        clone.__dict__.update(self.__dict__)\n",
        "        clone.__dict__.update(self.__dict__)\n"
        "        clone._handle = _Handle(self._handle.store)\n",
    ),
    without(
        33,
        "with returns the saver",
        "saver.py",
        "        return self\n\n    def __exit__",
        "        return None\n\n    def __exit__",
    ),
    without(
        33,
        "async with closes it",
        "saver.py",
        "        await self.aclose()\n",
        "        pass\n",
    ),
    without(
        33,
        "close may be called twice",
        "ending.py",
        "            finish, self._finish = self._finish, None\n",
        "            finish = self._finish\n",
    ),
    without(
        33,
        "use after close is an error",
        "saver.py",
        "        if handle.closed:\n            raise ClosedLogError",
        "        if False:\n            raise ClosedLogError",
    ),
    without(
        33,
        "no thread keeps the interpreter alive",
        "durability.py",
        'name="logsaver-flusher", daemon=True',
        'name="logsaver-flusher", daemon=False',
    ),
    without(
        33,
        "the exit syncs what nobody closed",
        "ending.py",
        "    for ending in reversed(list(_to_come)):",
        "    for ending in ():",
    ),
    without(
        33,
        "a saver that is dropped lets go of its file",
        "ending.py",
        "            with contextlib.suppress(RuntimeError):  # out of threads: the exit does it\n"
        "                _thread.start_new_thread(self.quietly, ())\n",
        "            pass\n",
    ),
    *(
        without(
            34,
            f"{name} is a method of the class",
            "thinning.py"
            if "delete_" in name or name in ("acopy_thread", "aprune")
            else "saver.py",
            f"async def {name}(",
            f"async def _{name}(",
        )
        for name in (
            "aput",
            "aput_writes",
            "aget_tuple",
            "alist",
            "adelete_thread",
            "adelete_for_runs",
            "acopy_thread",
            "aprune",
            "aget_delta_channel_history",
        )
    ),
    without(
        35,
        "several threads may call at once",
        "store.py",
        "        self.lock = threading.Lock()\n        self.waiting",
        '        self.lock = __import__("contextlib").nullcontext()\n        self.waiting',
    ),
    without(
        35,
        "a sync method may be called inside a running loop",
        "saver.py",
        "        self._do(call, waits_for_storage(self.fsync, config))\n        return",
        '        __import__("asyncio").run(self._do_async(call, True))\n        return',
    ),
    without(
        36,
        "every capability is there",
        "thinning.py",
        "async def acopy_thread(",
        "async def acopy_a_thread(",
    ),
    without(
        36,
        "and works through the sync methods too",
        "thinning.py",
        "        self._do(self._copy_thread(source_thread_id, target_thread_id),",
        "        self._do(self._copy_thread(source_thread_id, source_thread_id[1:]),",
    ),
    without(
        37,
        "a smaller id is not an ancestor",
        "reading.py",
        "ns.find(next_id)\n                if ns is None",
        "ns.find(max((i for i in ns.ids if i < max(seen)), default=None))\n"
        "                if ns is None",
    ),
    without(
        37,
        "writes are not sorted by task id",
        "reading.py",
        "    return write.order\n",
        "    return write.order[1:]\n",
    ),
    # -- the Agent Server
    without(
        38,
        "closing one saver leaves the others open",
        "registry.py",
        "        if store.users:\n            return\n",
        "",
    ),
    without(
        38,
        "closing it twice leaves them open too",
        "ending.py",
        "            finish, self._finish = self._finish, None\n            try:",
        "            finish = self._finish\n            try:",
    ),
    without(
        39,
        "a write does not block the loop",
        "disk.py",
        "        pwrite = staticmethod(os.pwrite)\n",
        "\n        def pwrite(self, fd, data, at):\n"
        "            os.lseek(fd, at, os.SEEK_SET)\n            return os.write(fd, data)\n",
    ),
    without(
        39,
        "nor does a read",
        "disk.py",
        "        pread = staticmethod(os.pread)\n",
        "\n        def pread(self, fd, size, at):\n"
        "            os.lseek(fd, at, os.SEEK_SET)\n            return os.read(fd, size)\n",
    ),
    without(
        39,
        "a sync is awaited",
        "saver.py",
        "            await log.committer.wait_async(end)\n        elif",
        "            log.committer.wait(end)\n        elif",
    ),
    without(
        40,
        "a look-up does not go through the log",
        "reading.py",
        "    return None if entry is None else found_at(log, key, entry, ns)\n",
        "    for each in ns.listed.values():\n        log.checkpoint(each.offset, each.size)\n"
        "    return None if entry is None else found_at(log, key, entry, ns)\n",
    ),
    without(
        40,
        "nothing else is decoded",
        "reading.py",
        "    holders: dict[int, CheckpointRecord] = {}\n",
        "",
    ),
    without(
        41,
        "before may be the inner dict",
        "config.py",
        'before.get("configurable") or before',
        'before["configurable"]',
    ),
    without(
        42,
        "a run is found by its id",
        "removing.py",
        " and facts.run_id(entry) in run_ids\n",
        "\n",
    ),
    without(
        42,
        "as text or in any other form",
        "removing.py",
        "        return None if run_id is None else str(run_id)\n",
        "        return run_id\n",
    ),
    without(
        42,
        "deleting it again changes nothing",
        "removing.py",
        "    return ForgetRecord(changes) if changes else None\n",
        "    return ForgetRecord(changes)\n",
    ),
    without(
        43,
        "a copy's metadata names the copy",
        "reading.py",
        '        metadata["thread_id"] = key.thread_id\n',
        "        pass\n",
    ),
    without(
        43,
        "only where it named the source",
        "reading.py",
        '        and str(metadata["thread_id"]) == record.thread_id  # 7 names the thread "7"\n',
        "",
    ),
]
