"""The databases that reports read: the only place of the handlers that speaks to one."""
