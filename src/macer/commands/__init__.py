"""The commands, by what they are for; cli.py puts them together.

torch is imported inside them: help and a mistyped flag do not wait for it.
"""
