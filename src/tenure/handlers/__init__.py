"""The kinds that come with Tenure."""

from tenure.artifacts import ArtifactStore
from tenure.handlers.demo_sleep import register_demo_sleep
from tenure.handlers.reports.catalog import ReportCatalog
from tenure.handlers.reports.export import register_report_export
from tenure.worker.registry import JobRegistry

__all__ = ["ReportCatalog", "builtin_registry"]


def builtin_registry(*, reports: ReportCatalog | None, artifacts: ArtifactStore) -> JobRegistry:
    """`demo.sleep` and, where the operator defined reports, `report.export`.

    Without a reports file this process does not know `report.export`: such jobs are accepted and wait for a worker that
    has one, as those of any kind do that is served elsewhere.
    """
    registry = JobRegistry()
    register_demo_sleep(registry)
    if reports is not None:
        register_report_export(registry, reports, artifacts)
    return registry
