"""Signing in and out, and the first account. Checks of passwords queue up, so that they never take all cores."""

import secrets
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from tertulia.core.errors import UsageError
from tertulia.core.text import clean
from tertulia.store.accounts import MIN_PASSWORD
from tertulia.web.admin.access import (
    FORM_COOKIE,
    NAME_LENGTH,
    SESSION_COOKIE,
    Forbidden,
    check_origin,
    checked_name,
    cookie,
    cookies_of,
)
from tertulia.web.admin.pages import AdminRoute, AdminServices, ViewerForm, admin_of, error_page, read_form, redirect
from tertulia.web.errors import TooMany
from tertulia.web.threads import on_thread

router = APIRouter(prefix="/admin", route_class=AdminRoute, include_in_schema=False)
FORM_SECONDS = 3600


@router.get("/signin")
async def signin_form(request: Request, admin: AdminServices) -> Response:
    """The form, unless there is a session."""
    if await on_thread(admin.access.session, request) is not None:
        return redirect(request, "")
    return await _show_form(request, "signin.html", 200)


@router.post("/signin")
async def sign_in(request: Request, admin: AdminServices) -> Response:
    """Check the name and the password, and open a session."""
    fields = await _checked_form(request)
    name, password = clean(fields.get("name", "")).strip()[:NAME_LENGTH], fields.get("password", "")
    try:
        admin.access.take_attempt(request.client.host if request.client else "", name)
    except TooMany as error:
        response = await _show_form(request, "signin.html", 429, error=f"{error.message} {error.hint}", name=name)
        response.headers["Retry-After"] = str(error.retry_after)
        return response
    async with admin.checking:
        token = await on_thread(admin.access.sign_in, name, password)
    if token is None:
        error_text = "The name or the password is wrong. Check both and try again."
        return await _show_form(request, "signin.html", 401, error=error_text, name=name)
    return _signed_in(request, token)


@router.get("/setup")
async def setup_form(request: Request, admin: AdminServices, token: str = "") -> Response:
    """The form for the first account, for whoever has the link."""
    if not await on_thread(admin.access.allows_setup, token):
        return error_page(request, _bad_link())
    return await _show_form(request, "setup.html", 200, token=token)


@router.post("/setup")
async def setup(request: Request, admin: AdminServices) -> Response:
    """Create the first account, and sign in."""
    fields = await _checked_form(request)
    token, password = fields.get("token", ""), fields.get("password", "")
    if not await on_thread(admin.access.allows_setup, token):
        raise _bad_link()
    try:
        name = checked_name(clean(fields.get("name", "")))
        if password != fields.get("again", ""):
            raise UsageError("The passwords differ.", hint="Type the same password twice.")
        async with admin.checking:
            session = await on_thread(admin.access.create_first, token, name, password)
    except Forbidden:
        raise
    except UsageError as error:
        values = {"token": token, "name": fields.get("name", "")[:NAME_LENGTH]}
        return await _show_form(request, "setup.html", 422, error=f"{error.message} {error.hint}", **values)
    return _signed_in(request, session or "")


@router.post("/signout")
def sign_out(request: Request, admin: AdminServices, form: ViewerForm) -> Response:
    """End the session."""
    admin.access.sign_out(form.session)
    return redirect(request, "signin", {"Set-Cookie": cookie(request, SESSION_COOKIE, "", 0)})


def _bad_link() -> Forbidden:
    return Forbidden("This link is not valid.", hint="It works once, until there is an account. Sign in instead.")


async def _checked_form(request: Request) -> dict[str, str]:
    """The fields of a form that was shown before there was a session."""
    check_origin(request)
    fields = await read_form(request)
    admin_of(request).access.check_csrf(cookies_of(request).get(FORM_COOKIE, ""), fields)
    return fields


async def _show_form(request: Request, template: str, status: int, **values: Any) -> Response:
    """A form, with a cookie that its token belongs to."""
    admin = admin_of(request)
    key = cookies_of(request).get(FORM_COOKIE) or secrets.token_urlsafe(32)
    values = {"error": "", "name": "", "min_password": MIN_PASSWORD, "name_length": NAME_LENGTH} | values
    empty = await on_thread(admin.access.accounts.count) == 0
    values |= {"no_accounts": empty}
    response = admin.render(request, template, None, values, status=status, csrf=admin.access.csrf_token(key))
    response.headers["Set-Cookie"] = cookie(request, FORM_COOKIE, key, FORM_SECONDS)
    return response


def _signed_in(request: Request, token: str) -> Response:
    max_age = admin_of(request).access.session_seconds
    response = redirect(request, "")
    response.headers.append("Set-Cookie", cookie(request, SESSION_COOKIE, token, max_age))
    response.headers.append("Set-Cookie", cookie(request, FORM_COOKIE, "", 0))
    return response
