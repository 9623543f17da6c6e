"""A model for lists of tasks: answers by the first line of a task's prompt, whoever asks first."""

from collections.abc import Mapping
from typing import Any

from scripted_llm.replies import Answer, Call, Reply


def asked(body: Mapping[str, Any]) -> str:
    """The first line of what a task is told to do."""
    return str(body["messages"][1]["content"]).split("\n")[0]


def told(body: Mapping[str, Any]) -> str:
    """All that a task is told."""
    return str(body["messages"][1]["content"])


class TaskModel:
    """`answers` gives for each prompt its steps, one after the other; the last one again and again."""

    def __init__(self, answers: Mapping[str, Any]) -> None:
        self._answers: dict[str, list[Any]] = {
            prompt: answer if isinstance(answer, list) else [answer] for prompt, answer in answers.items()
        }
        self.prompts: list[str] = []
        """In the order in which tasks asked for the first time."""
        self.told: dict[str, str] = {}
        self.steps: dict[str, int] = {}

    def __call__(self, body: dict[str, Any]) -> Answer:
        prompt = asked(body)
        if prompt not in self.told:
            self.prompts.append(prompt)
        self.told[prompt] = told(body)
        step = self.steps.get(prompt, 0)
        self.steps[prompt] = step + 1
        steps = self._answers[prompt]
        answer: Any = steps[min(step, len(steps) - 1)]
        return Reply(answer) if isinstance(answer, str) else answer


def writes(path: str, content: str) -> Reply:
    return Reply(calls=[Call("write", {"file_path": path, "content": content})])


def runs(command: str) -> Reply:
    return Reply(calls=[Call("bash", {"command": command})])
