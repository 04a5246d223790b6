"""Calls to services over HTTP: patient with what passes, quick to give up on what does not, silent about secrets.

An attempt is limited twice. The read timeout ends a connection on which nothing comes; a timer ends one on which a
byte comes now and then, for ever. An endpoint that stays unreachable through all tries is left alone for a minute, so
that it costs one wait and not one for every search.

httpx is imported by the first call: nobody else pays for it.
"""

from kept.net.client import HttpClient
from kept.net.endpoint import Endpoint, fits_header, is_auth_header, parse_endpoint
from kept.net.timing import DOCUMENTS, QUERY, Breaker, Pace, Patience

__all__ = [
    "DOCUMENTS",
    "QUERY",
    "Breaker",
    "Endpoint",
    "HttpClient",
    "Pace",
    "Patience",
    "fits_header",
    "is_auth_header",
    "parse_endpoint",
]
