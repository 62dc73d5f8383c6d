"""Every SQL statement. One verb a file; functions take a connection and never open or commit one.

Statements name the schema as ``tenure.``; the connection puts the configured one in its place. Where two rows are
locked, they are locked in the order of (part, id). The database's clock decides: ``now()``, never the application's.
"""
