"""The table of providers agrees with the other places that name a provider."""

import typing

import pytest

from kept.config.agent_config import KEY_VARIABLES
from kept.config.schema import MemorySearchSettings, Provider, RemoteSettings
from kept.embedding.registry import PROVIDERS, find_price, find_remote


@pytest.mark.parametrize("name", ["openai", "gemini", "voyage", "ollama"])
def test_a_provider_knows_its_own_name_its_default_model_and_what_it_costs(name):
    remote = find_remote(name)
    assert remote.provider == name
    price = find_price(name, remote.default_model, MemorySearchSettings())
    assert (price > 0) == (name in KEY_VARIABLES)


def test_the_settings_know_the_same_names():
    assert set(typing.get_args(Provider)) == set(PROVIDERS)


def test_the_price_of_an_unknown_model_or_of_another_endpoint_is_unknown():
    assert find_price("openai", "text-embedding-9", MemorySearchSettings()) is None
    elsewhere = MemorySearchSettings(remote=RemoteSettings(base_url="http://127.0.0.1:1234/v1"))
    assert find_price("openai", "text-embedding-3-small", elsewhere) is None
    assert find_price("somebody-elses", "a-model", MemorySearchSettings()) is None
