"""What the service costs over HTTP and on Postgres, beside a bare ASGI application in the same run."""
