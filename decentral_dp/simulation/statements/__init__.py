"""What a job promises: its privacy statement, by setting."""
