"""What keeps the tables in order without being asked: a roster of tasks, each a single step, and a loop that runs them.

Every step is safe to run in several processes at once: rows are locked with SKIP LOCKED and judged again under the lock.
"""
