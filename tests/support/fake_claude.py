#!/usr/bin/env python3
"""A replacement for `claude --print`: reads the conversation, answers with a JSON stream, logs its input.

Like the real program it refuses input that is longer than its window. Its token counts differ from ours.
"""

import json
import os
import sys

WINDOW_CHARS = int(os.environ.get("ANTHROPIC_STAND_IN_CHARS", "1000000000"))


def main() -> None:
    said = sys.stdin.read()
    with open(sys.argv[sys.argv.index("--system-prompt-file") + 1]) as file:
        system = file.read()
    with open(os.path.join(os.path.dirname(__file__), "heard.jsonl"), "a") as file:
        file.write(json.dumps({"system": system, "stdin": said}) + "\n")
    usage = {"input_tokens": 50_000, "output_tokens": 5}
    if len(said) + len(system) > WINDOW_CHARS:
        result = {"is_error": True, "terminal_reason": "prompt_too_long", "result": "Prompt is too long"}
    else:
        text = "NO_REPLY" if "You keep its log" in system else "They talked." if "You summarise" in system else "Yes."
        for piece in (text[:2], text[2:]):
            delta = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": piece}}
            print(json.dumps({"type": "stream_event", "event": delta}))
        result = {"is_error": False, "subtype": "success", "result": text}
    print(json.dumps({"type": "result", "usage": usage, **result}))


main()
