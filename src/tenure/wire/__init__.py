"""What crosses HTTP: models that the service and its clients share, strict JSON, and errors as problem documents.

Requests are strict: no field is ignored, no value is coerced. Answers are read leniently, so that an older client goes
on working when a newer service says more.
"""
