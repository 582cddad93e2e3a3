"""The HTTP API: one NinjaAPI, a router per app, organisation-scoped by token."""
