"""Schedules: messages to the agent at set times. Rules are pure; the list is a file.

The responder runs what is due (`kept.responder.scheduler`).
"""
