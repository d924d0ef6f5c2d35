"""What a LangGraph config says: which checkpoint, and how durable."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

from langchain_core.runnables import RunnableConfig

from logsaver.errors import InvalidInputError
from logsaver.value import new

FsyncPolicy = Literal["auto", "always", "never"]
FSYNC_POLICIES: Final = ("auto", "always", "never")

# LangGraph's private keys. If they ever disappear we sync more, never less.
_DURABILITY_KEY: Final = "__pregel_durability"
_RUNTIME_KEY: Final = "__pregel_runtime"

# In the `parent_config` of a checkpoint whose parent is hidden: whoever walks back with
# `get_tuple` finds it, by its id alone nobody does. LangGraph keeps "__" keys out of metadata.
_HIDDEN_KEY: Final = "__logsaver_hidden"


class Address(NamedTuple):
    """Names a checkpoint; without an id, the latest. All of them are text."""

    thread_id: str
    ns: str
    checkpoint_id: str | None

    def config(self) -> RunnableConfig:
        return {
            "configurable": {
                "thread_id": self.thread_id,
                "checkpoint_ns": self.ns,
                "checkpoint_id": self.checkpoint_id,
            }
        }

    def hidden_config(self) -> RunnableConfig:
        """The config of a checkpoint that is there only for its descendants."""
        config = self.config()
        config["configurable"][_HIDDEN_KEY] = True
        return config


def address_of(config: RunnableConfig) -> Address:
    """The address in a config. An absent namespace is the root graph's, "" ."""
    configurable: Any = config.get("configurable") if type(config) is dict else None
    if type(configurable) is not dict:
        configurable = _configurable(config)
    get = configurable.get
    thread_id, ns, checkpoint_id = get("thread_id"), get("checkpoint_ns"), get("checkpoint_id")
    if type(thread_id) is not str:
        if thread_id is None:
            raise InvalidInputError(
                'the config has no thread_id; pass {"configurable": {"thread_id": "..."}}'
            )
        thread_id = str(thread_id)
    if ns is None:
        ns = ""
    elif type(ns) is not str:
        ns = str(ns)
    if not checkpoint_id:  # LangGraph says both None and "" for "the latest"
        checkpoint_id = None
    elif type(checkpoint_id) is not str:
        checkpoint_id = str(checkpoint_id)
    return new(Address, (thread_id, ns, checkpoint_id))


def names_namespace(config: RunnableConfig) -> bool:
    """Whether a config picks one namespace; `list` shows all of them otherwise."""
    return _configurable(config).get("checkpoint_ns") is not None


def names_hidden(config: RunnableConfig) -> bool:
    """Whether a config came from `Address.hidden_config`."""
    return bool(_configurable(config).get(_HIDDEN_KEY))


def id_to_stay_below(before: RunnableConfig | None) -> str | None:
    """The checkpoint id in a `before`, which may be a config or the inner dict alone."""
    if before is None:
        return None
    inner: Mapping[str, Any] = before.get("configurable") or before
    checkpoint_id = inner.get("checkpoint_id")
    return str(checkpoint_id) if checkpoint_id else None


def waits_for_storage(policy: FsyncPolicy, config: RunnableConfig) -> bool:
    """Whether a put returns only once it is on stable storage.

    In a graph run without an explicit mode the mode is LangGraph's default, "async". A call
    that is not part of a run (`update_state`, a direct put) has nobody in the background.
    """
    if policy != "auto":
        return policy == "always"
    configurable = config["configurable"]
    mode = configurable.get(_DURABILITY_KEY)
    if mode is None:
        return _RUNTIME_KEY not in configurable
    return bool(mode != "async")


def _configurable(config: RunnableConfig) -> Mapping[str, Any]:
    try:
        configurable = config["configurable"]
    except (KeyError, TypeError):
        configurable = None
    if type(configurable) is not dict and not isinstance(configurable, Mapping):
        raise InvalidInputError(
            'the config has no "configurable"; pass {"configurable": {"thread_id": "..."}}'
        )
    return configurable
