"""The dashboard: pages for operators, rendered on the server, kept fresh by the coordinator's event stream.

It is a separate process that uses only the public REST API. `view_models` turn answers of that API into what a page
shows, and are pure. `pages` call the API and render. `templates` and `static` have what is served to the browser;
nothing comes from another host.
"""
