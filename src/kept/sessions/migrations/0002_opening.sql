-- The first words asked, which are the title of a conversation without another one. Imported conversations have a key
-- each. Every row is read from its transcript again.

ALTER TABLE sessions ADD COLUMN opening TEXT NOT NULL DEFAULT '';
DELETE FROM sessions;
