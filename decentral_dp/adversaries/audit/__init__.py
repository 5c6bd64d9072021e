"""Audits: neighbouring data sets, their transcripts, and what tells them apart."""
