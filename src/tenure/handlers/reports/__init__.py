"""`report.export`: reports that the operator defined, run read-only and streamed into artifacts."""
