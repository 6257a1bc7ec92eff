"""The ordering between machines: views, streams, routes, links.  Imports node."""
