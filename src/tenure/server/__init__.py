"""The composition root: what makes one process of Tenure out of the floors below."""

from tenure.server.child import ParentLine
from tenure.server.listening import listen, refuse_open_door, url_of
from tenure.server.running import new_worker_id, run
from tenure.server.service import Service, embedded_postgres
from tenure.server.supervisor import Supervisor

__all__ = [
    "ParentLine",
    "Service",
    "Supervisor",
    "embedded_postgres",
    "listen",
    "new_worker_id",
    "refuse_open_door",
    "run",
    "url_of",
]
