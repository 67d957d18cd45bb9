"""Dependencies of the handlers, by type."""

from typing import Annotated

from fastapi import Depends, Request

from tertulia.web.services import OwnedConversations, Services


async def _services(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


AppServices = Annotated[Services, Depends(_services)]


async def _conversations(request: Request, services: AppServices) -> OwnedConversations:
    return services.conversations_of(request.state.owner)


VisitorConversations = Annotated[OwnedConversations, Depends(_conversations)]
"""The conversations of the visitor whose cookie came with the request."""


async def _may_inspect(request: Request, services: AppServices) -> bool:
    return services.may_inspect(request)


MayInspect = Annotated[bool, Depends(_may_inspect)]
"""Whether the request may see the state of the bots and the metrics."""
