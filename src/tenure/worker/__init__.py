"""Running jobs: the registry of handlers, the attempts, and the runtime around them."""
