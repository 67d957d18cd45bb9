"""Adds the researchers' pages to an app."""

from fastapi import FastAPI

from tertulia.store import Database
from tertulia.web.admin import counterfactual, people, review, signin, studies
from tertulia.web.admin.pages import Admin
from tertulia.web.config import ServeConfig


def install(app: FastAPI, database: Database, config: ServeConfig) -> None:
    """Serve /admin from this database. It needs an account, whatever the rest of the server needs."""
    app.state.admin = Admin(database, config)
    for module in (signin, studies, review, counterfactual, people):
        app.include_router(module.router)
