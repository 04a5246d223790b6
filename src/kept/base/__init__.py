"""Foundations of everything else: values, clock, limits, durable writes, locks, secrets and HTTP. It knows nothing of
notes or conversations, and imports nothing of Kept but `errors`. Look a module up by its name.

values, records, reports, listings  `@frozen`; values that several packages share
clock, timings, limits, wording     time and retries; how long work takes; what can be stored; numbers with nouns
durable, file_lock, sqlite          atomic writes and durable appends; locks between processes; opening a database
json_values                         records as JSON
digest, git_remote                  SHA-256 of notes; which repository a folder is a clone of
grants, visibility                  what a token allows; who sees what
safe_yaml, remote_errors            YAML that is not trusted; errors of providers and channels
words                               text to words, for the index and for queries
redact                              secrets, by format, by place and by name
net                                 HTTP of providers and of our own servers
"""
