"""What is measured: one module a mode, each with its cases and one coroutine that measures a case once."""
