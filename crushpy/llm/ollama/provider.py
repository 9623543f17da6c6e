"""Client for Ollama's own chat protocol, `/api/chat`.

Ollama's OpenAI-compatible endpoint cannot set the context size: it cuts a prompt at the server's default,
often 4,096 tokens, without an error. Here every request sends the same `num_ctx`, since another value would
load the model again.
"""

from types import NoneType

from crushpy.core.messages import Json
from crushpy.llm.http_provider import HttpProvider, ReplyReader
from crushpy.llm.openai.chat_reply import ChunkReader
from crushpy.llm.openai.chat_request import OLLAMA, chat_tools, encoded_chat_messages
from crushpy.llm.protocol import Piece, Request
from crushpy.llm.vendors import OLLAMA_BASE, server_root
from crushpy.util.read_json import as_object, as_objects


class OllamaProvider(HttpProvider[None]):
    """The window of its endpoint is that to load the model with; None: the server's default."""

    quirks = NoneType
    api_base = OLLAMA_BASE
    ndjson = True

    def _url(self, request: Request) -> str:
        return f"{server_root(self._base)}/api/chat"

    def _reader(self, request: Request) -> ReplyReader:
        return OllamaReader(self._text_calls(request))

    def _body(self, request: Request, unfinished: list[Json]) -> Json:
        name = self._name(request)
        limits = {"num_ctx": self._endpoint.window, "num_predict": request.max_output_tokens}
        options = limits | {"temperature": request.temperature}
        body: Json = {
            "model": name,
            "messages": encoded_chat_messages(request, self._histories, OLLAMA),
            "options": {option: value for option, value in options.items() if value is not None},
            # A prompt that does not fit is an error, which makes the engine compact, instead of being cut.
            "truncate": False,
            "shift": False,
        }
        if tools := chat_tools(request):
            body["tools"] = tools
        if request.effort and "gpt-oss" in name:  # others only turn thinking on or off
            body["think"] = request.effort
        return body


class OllamaReader(ChunkReader):
    """Reads each line as a chunk in OpenAI's form. Tool calls arrive complete."""

    def feed(self, event: Json) -> list[Piece]:
        message = as_object(event.get("message"))
        calls: list[Json] = [
            {"id": call.get("id"), "index": index, "function": call.get("function")}
            for index, call in enumerate(as_objects(message.get("tool_calls")), len(self._calls))
        ]
        delta = {
            "content": message.get("content"),
            "reasoning_content": message.get("thinking"),
            "tool_calls": calls,
        }
        chunk: Json = {"choices": [{"delta": delta}]}
        if event.get("done") is True:
            chunk["choices"][0]["finish_reason"] = event.get("done_reason") or "stop"
            chunk["usage"] = {
                "prompt_tokens": event.get("prompt_eval_count"),
                "completion_tokens": event.get("eval_count"),
            }
            self.ended = True
        return super().feed(chunk)

    def read_whole(self, reply: Json) -> list[Piece] | None:
        return self.feed(reply) if "message" in reply else None
