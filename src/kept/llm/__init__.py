"""Chat models: messages and tools in, streamed events out."""
