"""A program that runs a gateway as `kept gateway` does, with a scripted model.

    python gateway_program.py [KEY=VALUE …]

The model repeats the marks (<<...>>) in the message. It appends a line to HOME/asked.log for every call.
"""

import logging
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from kept.config import LoadedConfig, load_config
from kept.models.base import ChatRequest
from kept.server.run_server import ServerAddress, gateway_preset, run_server
from kept.testing import ScriptedChat

_MARK = re.compile(r"<<(.*?)>>")


def open_model(loaded: LoadedConfig) -> ScriptedChat:
    log = Path(loaded.config.home) / "asked.log"

    def answer(request: ChatRequest) -> str:
        text = "\n".join(part.text for part in request.turns[-1].parts if hasattr(part, "text"))
        marks = _MARK.findall(text)
        with log.open("a") as file:
            file.write(" ".join(marks) + "\n")
        return "Answering " + " ".join(f"<<{mark}>>" for mark in marks)

    return ScriptedChat(answer)


def report(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main(settings: Sequence[str]) -> None:
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(message)s")
    loaded = load_config(settings=dict(setting.split("=", 1) for setting in settings))

    def show(address: ServerAddress) -> None:
        report(f"HTTP: {address.url}v1/messages")

    run_server(loaded, gateway_preset(loaded.config), open_model, ready=show, report=report)


if __name__ == "__main__":
    main(sys.argv[1:])
