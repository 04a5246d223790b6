"""HTTP for providers: retries temporary failures, gives up at once on others, and keeps secrets out of messages.

`client` sends requests, retries them and explains failures, and `endpoint` keeps keys out of addresses and messages.
`serving` runs our own servers, checks their requests and counts them by token and by address, within limits that
`limited_protocol` enforces.
"""

from kept.base.net.client import DOCUMENT_TIMEOUTS, QUERY_TIMEOUTS, HttpClient, RetryPolicy, Timeouts
from kept.base.net.endpoint import (
    Endpoint,
    ProviderAccount,
    choose_account,
    fits_header,
    is_auth_header,
    parse_endpoint,
)

__all__ = [
    "DOCUMENT_TIMEOUTS",
    "QUERY_TIMEOUTS",
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
