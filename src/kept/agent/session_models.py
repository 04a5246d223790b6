"""The model and the thinking level of each session: what the settings offer, and what a person chose with a command."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import get_args

from kept.agent.services import AgentServices, ModelLimits
from kept.agent.session_log import SessionLog
from kept.config.schema import ThinkingLevel
from kept.errors import KeptError
from kept.llm.base import DEFAULT_CHOICE, ChatModel, ModelFamily
from kept.sessions.entries import MODEL, THINKING, StateEntry
from kept.sessions.record import SessionRecord
from kept.sessions.store import SessionStore

LEVELS: tuple[ThinkingLevel, ...] = get_args(ThinkingLevel)

logger = logging.getLogger(__name__)


class SessionModels:
    """Models of an agent. What is learned about a model's window is shared by all sessions that use it."""

    def __init__(self, services: AgentServices) -> None:
        self._main = services
        self._family = services.model if isinstance(services.model, ModelFamily) else None
        self._limits: dict[int, ModelLimits] = {id(services.model): services.limits}
        self._background = self._family.background if self._family else None

    def equip(self, services: AgentServices, log: SessionLog) -> AgentServices:
        """Return the services for a conversation: its memory, its model and its thinking level."""
        return self._choose(log.services_for(services), log.sessions.get(log.session_id))

    def _choose(self, services: AgentServices, record: SessionRecord) -> AgentServices:
        level = self._level_of(record)
        if self._family is None:
            return services if level == services.thinking else replace(services, thinking=level)
        model = self._find_model(self._family, record) or services.model
        equipped = replace(services, model=model, limits=self._limits_of(model), thinking=level)
        if self._background is None:
            return equipped
        writer = replace(services, model=self._background, limits=self._limits_of(self._background), thinking=None)
        return replace(equipped, background=writer)

    def _find_model(self, family: ModelFamily, record: SessionRecord) -> ChatModel | None:
        """Return the model that a session has chosen. One that the settings do not offer, as in an imported session,
        or that cannot be opened, is not used."""
        try:
            return family.find(record.model_override)
        except KeptError as exc:
            logger.warning("session %s: its model cannot be used: %s", record.id, exc.message)
            return None

    def _limits_of(self, model: ChatModel) -> ModelLimits:
        return self._limits.setdefault(id(model), ModelLimits(model, clock=self._main.clock))

    def _level_of(self, record: SessionRecord) -> ThinkingLevel | None:
        known = next((level for level in LEVELS if level == record.thinking_override), None)
        return known or self._main.config.agent.model.thinking

    def describe(self, record: SessionRecord) -> str:
        """Return the model and the thinking level of a session, in words."""
        services = self._choose(self._main, record)
        level = f", thinking {services.thinking}" if services.thinking else ""
        chosen = record.model_override
        remark = ""
        if chosen and chosen != DEFAULT_CHOICE:
            known = self._family is not None and chosen in self._family.choices
            remark = f" as '{chosen}'" if known else f"; '{chosen}', which the session names, is not in the settings"
        return f"model {services.model.name} ({services.model.provider}){remark}{level}"

    # commands

    def choose_model(self, sessions: SessionStore, session_id: str, choice: str) -> str:
        """Choose the model of a session, and return a reply."""
        record = sessions.get(session_id)
        names = (DEFAULT_CHOICE, *(self._family.choices if self._family else ()))
        listed = ", ".join(names)
        if not choice:
            return f"This conversation uses {self.describe(record)}. You can choose: {listed}."
        if choice not in names:
            return f"'{choice}' is not a model that you can choose. There are: {listed}."
        if self._family is not None and choice != DEFAULT_CHOICE:
            try:
                self._family.find(choice)
            except KeptError as exc:
                logger.warning("the model '%s' cannot be used: %s %s", choice, exc.message, exc.hint)
                return f"The model '{choice}' cannot be used at the moment."
        sessions.append(session_id, StateEntry(MODEL, None if choice == DEFAULT_CHOICE else choice))
        return f"From now on, this conversation uses {self.describe(sessions.get(session_id))}."

    def choose_thinking(self, sessions: SessionStore, session_id: str, level: str) -> str:
        """Choose how much the model thinks in a session, and return a reply."""
        names = (*LEVELS, DEFAULT_CHOICE)
        if not level:
            current = self._level_of(sessions.get(session_id)) or f"the model's {DEFAULT_CHOICE}"
            return f"Thinking: {current}. You can choose: {', '.join(names)}."
        if level.lower() not in names:
            return f"'{level}' is not a level. Choose one of: {', '.join(names)}."
        level = level.lower()
        sessions.append(session_id, StateEntry(THINKING, None if level == DEFAULT_CHOICE else level))
        return f"Thinking: {level}."
