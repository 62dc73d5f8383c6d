"""The composition root: what makes one process of Tenure out of the floors below."""

from tenure.server.running import new_worker_id, run
from tenure.server.service import Service, embedded_postgres

__all__ = ["Service", "embedded_postgres", "new_worker_id", "run"]
