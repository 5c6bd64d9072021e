"""Bilevel problems: per-record terms, and closed-form solutions where they exist."""
