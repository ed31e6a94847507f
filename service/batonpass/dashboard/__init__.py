"""The dashboard: pages for operators, rendered on the server, kept fresh by the coordinator's own event stream.

It is a process of its own and knows nothing but the public REST API. `view_models` turn answers of that API into what
a page shows, and are pure; `pages` ask, and render; what is served to the browser lies in `templates` and
`static`, and nothing comes from another host.
"""
