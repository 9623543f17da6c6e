# pyright: basic
"""Runs in a peer's own environment: drives its summarising manager over the generations of a conversation.

    driver.py NAME < {"base": URL, "window": tokens, "generations": [[messages], ...]}

Prints one JSON object: the texts of the history after each generation, and the seconds its manager took.
Knows nothing of crushpy: messages are those of OpenAI's chat protocol.
"""

import asyncio
import json
import sys
import time


def texts(value):
    """Every text in a history, whatever its form."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for item in value.values() for text in texts(item)]
    if isinstance(value, list | tuple):
        return [text for item in value for text in texts(item)]
    return []


def size(history):
    """About how many tokens."""
    return sum(map(len, texts(history))) // 4


class Strands:
    """`SummarizingConversationManager` as it comes, called as on overflows until half of it all is gone."""

    def __init__(self, given):
        from strands import Agent
        from strands.agent.conversation_manager import SummarizingConversationManager
        from strands.models.openai import OpenAIModel

        model = OpenAIModel(client_args={"base_url": given["base"], "api_key": "none"}, model_id="bench")
        self.manager = SummarizingConversationManager()
        self.agent = Agent(model=model, conversation_manager=self.manager, callback_handler=None)

    def add(self, message):
        self.agent.messages.append(self.converted(message))

    def converted(self, message):
        if message["role"] == "tool":
            result = {"toolUseId": message["tool_call_id"], "status": "success"}
            return {
                "role": "user",
                "content": [{"toolResult": {**result, "content": [{"text": message["content"]}]}}],
            }
        content = [{"text": message["content"]}] if message.get("content") else []
        for call in message.get("tool_calls", ()):
            args = json.loads(call["function"]["arguments"])
            use = {"toolUseId": call["id"], "name": call["function"]["name"], "input": args}
            content.append({"toolUse": use})
        return {"role": message["role"], "content": content}

    def compact(self, limit):
        for _ in range(20):
            if size(self.history) <= limit:
                return
            before = len(self.agent.messages)
            self.manager.reduce_context(self.agent, e=None)
            if len(self.agent.messages) >= before:
                return

    @property
    def history(self):
        return self.agent.messages


class CrewAI:
    """`summarize_messages`, which `handle_context_length` calls on an overflow, with the given window."""

    def __init__(self, given):
        from crewai import LLM
        from crewai.llms import context_window

        context_window.OPENAI_CONTEXT_WINDOWS["bench"] = given["window"]
        self.llm = LLM(model="openai/bench", base_url=given["base"], api_key="none", stream=False)
        self.history = []

    def add(self, message):
        self.history.append(dict(message))

    def compact(self, limit):
        from crewai.utilities import agent_utils
        from crewai.utilities.printer import Printer

        agent_utils.handle_context_length(
            respect_context_window=True,
            printer=Printer(),
            messages=self.history,
            llm=self.llm,
            callbacks=[],
            verbose=False,
        )


class PraisonAI:
    """`ContextCompactor` with its strategy for a model's summary, and half of the history as its limit."""

    def __init__(self, given):
        from openai import AsyncOpenAI

        async def ask(prompt):
            client = AsyncOpenAI(base_url=given["base"], api_key="none")
            told = [{"role": "user", "content": prompt}]
            reply = await client.chat.completions.create(model="bench", messages=told)
            return reply.choices[0].message.content

        self.ask = ask
        self.compactor = None
        self.history = []

    def add(self, message):
        self.history.append(dict(message))

    def compact(self, limit):
        from praisonaiagents.compaction import CompactionStrategy, ContextCompactor

        if self.compactor is None:
            self.compactor = ContextCompactor(
                max_tokens=limit, strategy=CompactionStrategy.LLM_SUMMARIZE, llm_summarize_fn=self.ask
            )
        done = asyncio.run(self.compactor.compact_async(self.history))
        self.history = list(done[0] if isinstance(done, tuple) else done)


PEERS = {"strands": Strands, "crewai": CrewAI, "praisonai": PraisonAI}


def main():
    given = json.load(sys.stdin)
    printed, sys.stdout = sys.stdout, sys.stderr  # what the packages print is not the answer
    peer = PEERS[sys.argv[1]](given)
    kept, seconds = [], 0.0
    for generation in given["generations"]:
        for message in generation:
            peer.add(message)
        started = time.monotonic()
        peer.compact(size(peer.history) // 2)
        seconds += time.monotonic() - started
        kept.append([text for message in peer.history for text in ["\n".join(texts(message))]])
    json.dump({"kept": kept, "seconds": seconds}, printed)


if __name__ == "__main__":
    main()
