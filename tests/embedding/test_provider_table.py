"""The table of providers agrees with the other places that name a provider."""

from __future__ import annotations

import typing
from pathlib import Path

import pytest

from kept.config import KEY_VARIABLES, MemorySearchSettings
from kept.config.search_settings import Provider
from kept.embedding.registry import PROVIDERS, find_price

ROOT = Path(__file__).parent.parent.parent
REMOTE = [provider for provider in PROVIDERS.values() if provider.embedder]


@pytest.mark.parametrize("provider", REMOTE, ids=lambda provider: provider.name)
def test_a_provider_is_named_alike_in_the_table_and_in_its_own_class(provider):
    embedder_class = provider.embedder_class()
    assert embedder_class.provider == provider.name
    assert embedder_class.default_model in embedder_class.known_dims


@pytest.mark.parametrize("provider", REMOTE, ids=lambda provider: provider.name)
def test_a_provider_that_costs_money_has_a_price_for_its_default_model_and_a_variable_for_its_key(provider):
    price = find_price(provider.name, provider.embedder_class().default_model, MemorySearchSettings())
    assert price is not None
    assert (price > 0) == (provider.name in KEY_VARIABLES)


def test_the_settings_know_the_same_names():
    assert set(typing.get_args(Provider)) == set(PROVIDERS)


def test_the_price_of_an_unknown_model_or_of_another_endpoint_is_unknown():
    from kept.config import RemoteSettings

    assert find_price("openai", "text-embedding-9", MemorySearchSettings()) is None
    elsewhere = MemorySearchSettings(remote=RemoteSettings(base_url="http://127.0.0.1:1234/v1"))
    assert find_price("openai", "text-embedding-3-small", elsewhere) is None
    assert find_price("somebody-elses", "a-model", MemorySearchSettings()) is None
