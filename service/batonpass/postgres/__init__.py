"""Postgres as the place where the truth is kept: the tables, the record log on them, and a server for one machine."""
