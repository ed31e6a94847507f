"""Postgres as the store: the tables, the record log on them, and a server for one machine."""
