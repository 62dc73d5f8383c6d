"""The HTTP face: parse, call one verb, answer. No SQL and no policy; what is answered has been committed before."""
