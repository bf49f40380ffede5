"""Certificates read: scores, tables, curves, a page."""
