"""The dashboard: pages for operators, rendered on the server, kept fresh by the coordinator's own event stream.

It is a process of its own and knows nothing but the public REST API. `shapes` turns answers of that API into what a
page shows and is pure; `pages` asks, shapes and renders; what is served to the browser lies in `templates` and
`static`, and nothing comes from another host.
"""
