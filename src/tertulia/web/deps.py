"""What handlers are given: the desk with the store and the bots behind it, and who is asking."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from tertulia.web.jobs import Desk


@dataclass(frozen=True, slots=True)
class Visit:
    """One request of one visitor."""

    owner: str
    desk: Desk


async def _desk(request: Request) -> Desk:
    desk: Desk = request.app.state.desk
    return desk


async def _visit(request: Request) -> Visit:
    return Visit(request.state.owner, request.app.state.desk)


AtDesk = Annotated[Desk, Depends(_desk)]
Visiting = Annotated[Visit, Depends(_visit)]
