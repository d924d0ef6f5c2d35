"""A small agent without a model: it answers at once, asks a human, or takes its time."""

import asyncio

from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt


async def reply(state: MessagesState) -> dict:
    """Answer the last message."""
    said = state["messages"][-1].content
    if said.startswith("ask"):
        return {"messages": [("ai", f"The human says {interrupt('Really?')}.")]}
    if said.startswith("wait"):
        await asyncio.sleep(30)
    return {"messages": [("ai", f"You said: {said}")]}


builder = StateGraph(MessagesState)
builder.add_node(reply)
builder.add_edge(START, "reply")
graph = builder.compile()
