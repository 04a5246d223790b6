"""Tokens for the clients of `kept serve`.

``token_book`` says what a token is. ``token_file`` stores tokens in `tokens.json` of a home, and ``shared_tokens`` in
the database of a team; ``open_tokens`` opens whichever the settings name.
"""
