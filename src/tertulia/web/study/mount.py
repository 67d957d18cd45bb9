"""Studies on an app: its bots, its service, its pages and its API."""

from fastapi import FastAPI

from tertulia.store import StudyStore
from tertulia.web.services import Services
from tertulia.web.study import errors, pages, routes
from tertulia.web.study.bots import StudyBots
from tertulia.web.study.deps import StudyParts
from tertulia.web.study.live import LiveHub, LiveStreams
from tertulia.web.study.pairs import Pairs
from tertulia.web.study.service import StudyService
from tertulia.web.study.stream import ChatReplies


def install(app: FastAPI, services: Services) -> None:
    """Serve the studies of the app's database to participants."""
    store, conversations = StudyStore(services.database), services.conversation_store
    bots = StudyBots(services.workers_by_spec, services.new_worker)
    services.hidden_workers = bots.worker
    services.on_close.append(bots.close)
    service = StudyService(store, bots)
    hub, run = LiveHub(services.database), services.on_store_thread
    services.on_close.append(hub.close)
    pairs = Pairs(service, conversations, hub.tell)
    chat = ChatReplies(service, conversations, services.replies, pairs, run, services.config.max_message)
    app.state.study = StudyParts(service, chat, pairs, LiveStreams(service, pairs, hub, run))
    errors.install(app)
    pages.install(app, service)
    app.include_router(routes.router)
