"""Asks the agent and puts the answer into a model of pydantic: `python beside.py`."""

from importlib.metadata import version

import pydantic

import crushpy


class Answer(pydantic.BaseModel):
    text: str
    tokens: int


def main() -> None:
    with crushpy.Agent(model="demo/tour") as agent:
        reply = agent.ask("look around")
    answer = Answer(text=reply.text, tokens=reply.usage.total)
    print(answer.model_dump_json())
    print(", ".join(f"{name} {version(name)}" for name in ("crushpy", "litellm", "pydantic")))


if __name__ == "__main__":
    main()
