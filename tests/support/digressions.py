"""A model that digresses: two nested branches, a command inside, and back.

It goes by what it was last told, so that the work of a killed process can be continued at any step.
"""

import json

from scripted_llm.replies import Body, Call, Reply

from support.binding_claude import BindingClaude

STEPS: tuple[tuple[str, Reply], ...] = (
    ("my own question", Reply("An answer.")),
    ("Branch at depth 1", Reply("Going deeper.", calls=[Call("branch", {"goal": "the inner cause"})])),
    ("Branch at depth 2", Reply("Trying.", calls=[Call("bash", {"command": "echo deep inside"})])),
    ("deep inside", Reply("Found.", calls=[Call("return_to_parent", {"result": "inner result"})])),
    ("inner result", Reply("Back.", calls=[Call("return_to_parent", {"result": "outer result"})])),
    ("outer result", Reply("All done.")),
    ("Digress", Reply("I will look.", calls=[Call("branch", {"goal": "the outer cause"})])),
)


def digress(claude: BindingClaude, body: Body) -> Reply:
    """One step: what was said last decides."""
    last = [message for message in body["messages"] if message["role"] != "system"][-1]
    said = json.dumps(last["content"])
    return next((reply for words, reply in STEPS if words in said), Reply("Finished."))
