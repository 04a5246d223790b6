"""HTTP for providers: retries temporary failures, gives up at once on others, and keeps secrets out of messages.

`client` retries calls and explains failures; `transport` sends one request; `answers` reads error replies; `retry` has
timeouts, policy and circuit breaker. `endpoint` and `account` keep keys out of addresses and messages.
`serving` runs our own servers, within limits that `limited_protocol` enforces, and `guard` checks their requests.
"""

from kept.net.account import ProviderAccount, choose_account
from kept.net.client import HttpClient
from kept.net.endpoint import Endpoint, fits_header, is_auth_header, parse_endpoint
from kept.net.retry import DOCUMENT_TIMEOUTS, QUERY_TIMEOUTS, CircuitBreaker, RetryPolicy, Timeouts

__all__ = [
    "DOCUMENT_TIMEOUTS",
    "QUERY_TIMEOUTS",
    "CircuitBreaker",
    "Endpoint",
    "HttpClient",
    "ProviderAccount",
    "RetryPolicy",
    "Timeouts",
    "choose_account",
    "fits_header",
    "is_auth_header",
    "parse_endpoint",
]
