-- What providers do to messages, and what they need back with them.

-- What only the engine reads: members of a model's message that its maker gets back, or that a message is refused by a
-- provider. JSON.
ALTER TABLE messages ADD COLUMN opaque TEXT;
-- Why the provider cut the message short: `length` or `content_filter`.
ALTER TABLE messages ADD COLUMN truncated TEXT;
-- The turn failed while the model wrote it: it is the beginning of a message.
ALTER TABLE messages ADD COLUMN failed INTEGER NOT NULL DEFAULT 0;
