"""Interactive text generation: conversations and stories, and the sessions that continue them with an engine."""
