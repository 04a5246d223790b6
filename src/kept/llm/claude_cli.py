"""Claude Code as a model: `claude --print`, once for each answer, with the conversation on its standard input.

Command lines can be read by every user of the machine, so nothing private stands on this one: the system prompt, which
holds MEMORY.md and USER.md, is a file in a private folder that is deleted after the answer.

It is run as a model and nothing more. Its own tools, commands, hooks and memory files are off: whoever writes to the
agent must not reach the files of this machine through it. It works in an empty folder, and leaves no session behind.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import field
from typing import Literal

from kept.config import ProviderKeys
from kept.config.schema import ModelSettings
from kept.errors import ModelUnavailable
from kept.llm.base import ChatRequest, Finished, ModelEvent, TextDelta
from kept.llm.claude_stream import LABEL, ClaudeStream, explain
from kept.llm.conversation import render_conversation
from kept.llm.listen import patiently, usage_or_estimate
from kept.llm.process import ProcessExit, run_lines
from kept.llm.turns import tidy_turns
from kept.values import frozen

TOOLS = ("memory_search", "memory_get", "memory_write", "memory_status", "sessions_search")
_SWITCHES = {
    "CLAUDE_CODE_DISABLE_CLAUDE_MDS": "1",
    "CLAUDE_CODE_DISABLE_FILE_MENTIONS": "1",
    "CLAUDE_CODE_DISABLE_TERMINAL_TITLE": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
}
_WISHES = {
    "CLAUDE_CODE_MAX_RETRIES": "2",  # it would try ten times over several minutes
    "MCP_CONNECTION_NONBLOCKING": "0",  # it would ask the model before Kept's tools are there
    "MCP_TIMEOUT": "60000",
    "ENABLE_TOOL_SEARCH": "false",  # five tools need no search among them
}
"""Whoever set these before has the say."""
_REASONS: dict[str, Literal["end", "length", "refused"]] = {"max_tokens": "length", "refusal": "refused"}


@frozen
class KeptServer:
    """How the program starts Kept's tools, on the memory that the agent has."""

    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Settings and keys, which therefore stand in no argument."""

    def config(self) -> str:
        program, *arguments = self.command
        server = {"type": "stdio", "command": program, "args": arguments, "env": dict(self.environment)}
        return json.dumps({"mcpServers": {"kept": server}})


class ClaudeCli:
    provider = "claude_cli"
    runs_tools = False
    """It runs those of Kept by itself, over MCP; those that a request offers it cannot call."""

    def __init__(
        self,
        program: str,
        *,
        name: str | None,
        environment: Mapping[str, str],
        context_window: int,
        timeout_s: float,
        kept: KeptServer | None = None,
    ) -> None:
        self.name = name or "claude"
        self.context_window = context_window
        self._program = program
        self._model = name
        self._environment = {**_WISHES, **environment, **_SWITCHES}
        self._timeout_s = timeout_s
        self._kept = kept

    @classmethod
    def from_settings(cls, settings: ModelSettings, keys: ProviderKeys, *, kept: KeptServer | None = None) -> ClaudeCli:
        environment = dict(keys.claude)
        program = shutil.which(os.path.expanduser(settings.program), path=environment.get("PATH"))
        if program is None:
            raise ModelUnavailable(
                f"Claude Code is not there: '{settings.program}' was not found.",
                hint="Install it (npm install -g @anthropic-ai/claude-code), or set model.program.",
            )
        if settings.api_key:
            environment["ANTHROPIC_API_KEY"] = settings.api_key
        if settings.base_url:
            environment["ANTHROPIC_BASE_URL"] = settings.base_url
        if settings.max_output_tokens:
            environment["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] = str(settings.max_output_tokens)
        return cls(
            os.path.abspath(program),
            name=settings.name,
            environment=environment,
            context_window=settings.context_window,
            timeout_s=settings.timeout_s,
            kept=kept if settings.tools else None,
        )

    async def stream(self, request: ChatRequest) -> AsyncGenerator[ModelEvent, None]:
        with tempfile.TemporaryDirectory(prefix="kept-claude-", ignore_cleanup_errors=True) as folder:
            events = patiently(self._ask(request, folder), timeout_s=self._timeout_s, label=LABEL)
            async with aclosing(events):
                async for event in events:
                    yield event

    async def close(self) -> None:
        """Nothing is open between two answers."""

    async def _ask(self, request: ChatRequest, folder: str) -> AsyncGenerator[ModelEvent | None, None]:
        work = os.path.join(folder, "work")
        os.mkdir(work, 0o700)
        told = ClaudeStream()
        said: list[str] = []
        code, stderr = 0, ""
        lines = run_lines(
            self._command(request, folder),
            stdin=render_conversation(tidy_turns(request.turns)).encode(),
            env=self._environment,
            cwd=work,
            label=LABEL,
        )
        try:
            async with aclosing(lines):
                async for line in lines:
                    if isinstance(line, ProcessExit):
                        code, stderr = line.code, line.stderr
                        continue
                    text = told.take(line)
                    said.append(text)
                    yield TextDelta(text) if text else None
        except OSError as exc:
            raise ModelUnavailable(
                f"{self._program} could not be started ({exc.strerror}).", hint="Check model.program."
            ) from exc
        if told.error is not None:
            raise told.error
        if told.finish is None:
            raise explain(stderr.strip() or f"it ended with code {code} and without an answer")
        yield Finished(_REASONS.get(told.finish, "end"), usage_or_estimate(told.usage, request, "".join(said)))

    def _command(self, request: ChatRequest, folder: str) -> list[str]:
        command = [
            self._program,
            "--print",
            "--output-format",
            "stream-json",
            "--verbose",
            "--include-partial-messages",
        ]
        command += ["--no-session-persistence", "--disable-slash-commands", "--settings", '{"disableAllHooks": true}']
        command += ["--tools", "", "--strict-mcp-config"]
        if self._model:
            command += ["--model", self._model]
        if self._kept and request.purpose == "reply":
            command += ["--mcp-config", _write(folder, "mcp.json", self._kept.config())]
            command += ["--allowedTools", ",".join(f"mcp__kept__{tool}" for tool in TOOLS)]
        if request.system:
            command += ["--system-prompt-file", _write(folder, "system.md", request.system)]
        return command


def _write(folder: str, name: str, text: str) -> str:
    """For the program's eyes only; gone with the folder when the answer is there."""
    path = os.path.join(folder, name)
    with open(
        os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8", errors="replace"
    ) as file:
        file.write(text)
    return path
