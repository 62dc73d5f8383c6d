"""What a job is. Pure: no I/O, no SQL, no HTTP; time and randomness are passed in."""
