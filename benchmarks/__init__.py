"""Tenure measured beside other job queues on PostgreSQL: see README.md in this folder."""
