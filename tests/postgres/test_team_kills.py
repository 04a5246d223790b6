"""Three gateways on machines of their own, killed and cut off on the way: each message is answered once, in order."""

from __future__ import annotations

import random

import pytest

from tests.support.team_gateways import GatewayHost, count_wrong, wait_for_answers

pytestmark = pytest.mark.kills

ROUNDS = 12


def test_each_message_is_answered_once_whatever_happens_to_the_gateways(team, tmp_path):
    chance = random.Random(18)
    hosts = [GatewayHost(tmp_path / name, team.environment) for name in ("a", "b", "c")]
    accepted: list[str] = []
    for number in range(ROUNDS):
        for user in ("ada", "bob", "eve"):
            message_id = f"{number}-{user}"
            while not chance.choice(hosts).post(user, message_id):
                pass  # a client tries again, perhaps elsewhere
            accepted.append(message_id)
        if number % 4 == 1:
            victim = chance.choice(hosts)
            victim.kill()
            victim.start()
        elif number % 4 == 3:
            team.end_connections()
    inbox = wait_for_answers(team.database)
    for host in hosts:
        host.kill()
    assert len(inbox.messages()) == len(accepted)
    assert count_wrong(inbox, accepted) == {"lost": 0, "twice": 0, "out of order": 0}
