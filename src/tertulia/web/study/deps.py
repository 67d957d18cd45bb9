"""What the handlers of a study get: the participant's request, and the study's services."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request
from fastapi.responses import Response

from tertulia.core.dialogue import Json as JsonValue
from tertulia.web.deps import AppServices
from tertulia.web.responses import Json
from tertulia.web.services import Services
from tertulia.web.study.live import LiveStreams
from tertulia.web.study.pages import cookie_name
from tertulia.web.study.pairs import Pairs
from tertulia.web.study.rater import Rater
from tertulia.web.study.schemas import StudyId
from tertulia.web.study.service import StudyService
from tertulia.web.study.stream import ChatReplies


@dataclass(frozen=True, slots=True)
class StudyParts:
    """The services of all studies of an app."""

    service: StudyService
    chat: ChatReplies
    pairs: Pairs
    live: LiveStreams


@dataclass(frozen=True, slots=True)
class ParticipantCall:
    """A request of a participant."""

    request: Request
    study: str
    services: Services
    parts: StudyParts

    @property
    def _token(self) -> str | None:
        return self.request.cookies.get(cookie_name(self.study))

    async def act(self, action: Callable[[StudyService, Rater], dict[str, JsonValue]]) -> Response:
        """Let the participant do something, on a thread."""

        def run() -> dict[str, JsonValue]:
            with self.parts.service.acting(self.study, self._token) as rater:
                self.request.state.study_language = rater.language
                return action(self.parts.service, rater)

        return Json(await self.services.on_store_thread(run))

    def read_rater(self) -> Rater:
        """The participant whose request it is. Blocks."""
        rater = self.parts.service.rater(self.study, self._token)
        self.request.state.study_language = rater.language
        return rater

    async def rater(self) -> Rater:
        """The participant whose request it is."""
        return await self.services.on_store_thread(self.read_rater)


async def _call(request: Request, study: StudyId, services: AppServices) -> ParticipantCall:
    return ParticipantCall(request, study, services, request.app.state.study)


Call = Annotated[ParticipantCall, Depends(_call)]
