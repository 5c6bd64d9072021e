"""Bilevel problems, one file each: per-record terms, and exact solutions where there are some."""
