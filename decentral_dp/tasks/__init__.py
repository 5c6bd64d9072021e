"""Keyed tasks: independent work in parallel, with outcomes stored beside the request."""
