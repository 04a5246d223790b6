"""An agent whose model is asked over HTTP, in a provider's wire format."""

import asyncio
from contextlib import contextmanager

from kept.agent.events import Inbound
from kept.config import load_config
from kept.models.registry import make_model
from tests.support.agents import open_agent


@contextmanager
def remote(tmp_path, server, provider, window=200_000, **settings):
    """An agent whose model is asked over HTTP. All turns of a test share a loop, as a program's do."""
    url = server.anthropic_url if provider == "anthropic" else server.openai_url
    given = {
        "provider": provider,
        "base_url": url,
        "name": "m",
        "api_key": "sk-test-01234567",
        "context_window": window,
    }
    config = load_config(settings={f"model.{name}": value for name, value in given.items()}).config
    model = make_model(config.agent.model, config.keys)
    with open_agent(tmp_path, model, **settings) as at, asyncio.Runner() as runner:

        def say(text, as_id=None):
            session = at.session().id
            return runner.run(at.collect(session, [Inbound(as_id or f"in-{len(at.messages())}", text)]))

        at.say = say
        try:
            yield at
        finally:
            runner.run(model.close())
