from tests.artifacts.stores import local_store, s3_bucket, s3_client, s3_endpoint, s3_store, store
from tests.handlers.sources import source_url

__all__ = ["local_store", "s3_bucket", "s3_client", "s3_endpoint", "s3_store", "source_url", "store"]
