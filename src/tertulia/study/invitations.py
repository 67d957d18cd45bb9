"""Signed invitations: links for people who come from no recruiting platform. Pure: the key is the study's.

An invitation names one person, so that the same link always leads to the same participant.
"""

import hashlib
import hmac
import re

from tertulia.core.errors import UsageError
from tertulia.study.config import StudyConfig

_INVITATION = re.compile(r"([A-Za-z0-9_-]{1,64})\.([0-9a-f]{32})")


def invitation(config: StudyConfig, study: str, name: str) -> str:
    """The value of the parameter `invite` for one person, whom the name stands for."""
    if re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) is None:
        raise UsageError(f"Nobody can be invited as {name!r}.", hint="Use at most 64 letters, digits, '-' and '_'.")
    if not config.invitation_key:
        raise UsageError("The study has no key for invitations.", hint="Open it first.")
    return f"{name}.{_signature(config, study, name)}"


def invited_name(config: StudyConfig, study: str, value: str) -> str | None:
    """The name in an invitation to this study; None if it is forged."""
    match = _INVITATION.fullmatch(value)
    if match is None or not config.invitation_key:
        return None
    return match[1] if hmac.compare_digest(match[2], _signature(config, study, match[1])) else None


def _signature(config: StudyConfig, study: str, name: str) -> str:
    return hmac.new(config.invitation_key.encode(), f"{study}:{name}".encode(), hashlib.sha256).hexdigest()[:32]
