from tests.artifacts.stores import local_store, s3_bucket, s3_client, s3_endpoint, s3_store, store

__all__ = ["local_store", "s3_bucket", "s3_client", "s3_endpoint", "s3_store", "store"]
