"""The model of each session: what the settings offer, and what a person chose with a command."""

from __future__ import annotations

import logging
from dataclasses import replace

from kept.agent.services import AgentServices, ModelLimits
from kept.agent.session_log import SessionLog
from kept.errors import KeptError
from kept.llm.base import DEFAULT_CHOICE, ChatModel, ModelFamily
from kept.sessions.entries import MODEL, StateEntry
from kept.sessions.record import SessionRecord
from kept.sessions.store import SessionStore

logger = logging.getLogger(__name__)


class SessionModels:
    """Models of an agent. What is learned about a model's window is shared by all sessions that use it."""

    def __init__(self, services: AgentServices) -> None:
        self._main = services
        self._family = services.model if isinstance(services.model, ModelFamily) else None
        self._limits: dict[int, ModelLimits] = {id(services.model): services.limits}

    def equip(self, services: AgentServices, log: SessionLog) -> AgentServices:
        """Return the services for a conversation: its memory and its model."""
        services = log.services_for(services)
        if self._family is None:
            return services
        equipped = self._with_model(services, self._find_model(log.sessions.get(log.session_id)))
        background = self._family.background
        if background is None:
            return equipped
        return replace(equipped, background=replace(self._with_model(services, background), thinking=None))

    def _with_model(self, services: AgentServices, model: ChatModel) -> AgentServices:
        limits = self._limits.setdefault(id(model), ModelLimits(model))
        return replace(services, model=model, limits=limits)

    def _find_model(self, record: SessionRecord) -> ChatModel:
        """Return the model of a session. A choice that the settings do not offer, as in an imported session, or that
        cannot be opened, is not used."""
        if self._family is not None:
            try:
                return self._family.find(record.model_override) or self._main.model
            except KeptError as exc:
                logger.warning("session %s: its model cannot be used: %s", record.id, exc.message)
        return self._main.model

    def describe(self, record: SessionRecord) -> str:
        """Return the model of a session and how much it thinks, in words."""
        model, thinking = self._find_model(record), self._main.thinking
        return f"model {model.name} ({model.provider}){f', thinking {thinking}' if thinking else ''}"

    def choose(self, sessions: SessionStore, session_id: str, choice: str) -> str:
        """Choose the model of a session, and return a reply."""
        names = (DEFAULT_CHOICE, *(self._family.choices if self._family else ()))
        if choice not in names:
            uses = f"This conversation uses {self.describe(sessions.get(session_id))}."
            return f"{uses} You can choose: {', '.join(names)}."
        if self._family is not None and choice != DEFAULT_CHOICE:
            self._family.find(choice)  # raises if it cannot be used
        sessions.append(session_id, StateEntry(MODEL, None if choice == DEFAULT_CHOICE else choice))
        return f"From now on, this conversation uses {self.describe(sessions.get(session_id))}."
