"""The queues beside Tenure, each used through its own public interface, and the smallest one that is possible."""
