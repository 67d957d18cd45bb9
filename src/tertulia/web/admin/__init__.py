"""The researchers' pages under /admin: accounts, dashboards, transcripts, adjudication, exports, the audit log.

Rendered on the server, with plain forms that work without JavaScript. `access` says who may do what, `dashboard` and
`adjudication` compute what the pages show, and the other modules are their routes.
"""

from tertulia.web.admin.install import install

__all__ = ["install"]
