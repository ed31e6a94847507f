"""The HTTP shell turns requests into the core's inputs and its replies and errors into responses.

It validates shape and limits, holds no decision of its own, and never sees a database session.
"""
