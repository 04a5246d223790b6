"""The services of an agent for one conversation: memory and tools as the person or group in it sees them."""

from __future__ import annotations

from dataclasses import replace

from kept.agent.services import AgentServices
from kept.agent.session_log import SessionLog
from kept.indexing.viewpoint import find_viewer


def services_for(services: AgentServices, log: SessionLog) -> AgentServices:
    """Return the services for a conversation. Everything that its model recalls, reads or writes goes through them."""
    memory = services.memory
    viewer = find_viewer(services.config, memory.workspace, services.sessions, log.record.key)
    if viewer == memory.viewer:
        return services
    if log.services is None or log.services.memory.viewer != viewer:
        view = memory.seen_by(viewer)
        log.services = replace(services, memory=view, toolbox=services.toolbox.seen_by(view))
    return log.services
