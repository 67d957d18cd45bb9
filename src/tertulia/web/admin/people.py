"""Accounts and the audit log."""

from typing import get_args

from fastapi import APIRouter, Request
from fastapi.responses import Response

from tertulia.core.errors import UsageError
from tertulia.store.accounts import MIN_PASSWORD
from tertulia.store.review import ENTRIES_PER_PAGE
from tertulia.store.study_records import AccountRole
from tertulia.web.admin.access import NAME_LENGTH, SESSION_COOKIE, Forbidden, checked_name, cookie
from tertulia.web.admin.pages import AdminRoute, AdminServices, OwnerForm, SubmittedForm, Viewer, ViewerForm, redirect

router = APIRouter(prefix="/admin", route_class=AdminRoute, include_in_schema=False)
ROLES: dict[str, AccountRole] = {role: role for role in get_args(AccountRole)}
MESSAGES = {
    "added": "The account was added.",
    "role": "The role was changed.",
    "password": "The password was changed; all sessions of the account have ended.",
    "deleted": "The account was deleted.",
}
"""What the accounts page says after a change, by the word in its address."""


@router.get("/audit")
def audit(request: Request, admin: AdminServices, session: Viewer, before: str | None = None) -> Response:
    """Who saw or changed what, the newest first."""
    entries = admin.access.audit.entries(limit=ENTRIES_PER_PAGE + 1, before=before)
    values = {"entries": entries[:ENTRIES_PER_PAGE], "has_more": len(entries) > ENTRIES_PER_PAGE}
    return admin.render(request, "audit.html", session, values)


@router.get("/accounts")
def accounts(request: Request, admin: AdminServices, session: Viewer, done: str = "") -> Response:
    """All accounts for owners; for everybody, their own password."""
    listed = admin.access.accounts.list() if session.may("owner") else ()
    values = {"accounts": listed, "roles": list(ROLES), "message": MESSAGES.get(done, "")}
    limits = {"min_password": MIN_PASSWORD, "name_length": NAME_LENGTH}
    return admin.render(request, "accounts.html", session, values | limits)


@router.post("/accounts/add")
def add(request: Request, admin: AdminServices, form: OwnerForm) -> Response:
    """Add an account."""
    name, role = checked_name(form.get("name")), _role(form)
    admin.access.accounts.create(name, form.fields.get("password", ""), role)
    admin.access.audit.record(form.session.who, "added an account", {"account": name, "role": role})
    return redirect(request, "accounts?done=added")


@router.post("/accounts/role")
def set_role(request: Request, admin: AdminServices, form: OwnerForm) -> Response:
    """Change what an account may do."""
    name, role = form.get("name"), _role(form)
    admin.access.accounts.set_role(name, role)
    admin.access.audit.record(form.session.who, "changed a role", {"account": name, "role": role})
    return redirect(request, "accounts?done=role")


@router.post("/accounts/password")
def reset_password(request: Request, admin: AdminServices, form: OwnerForm) -> Response:
    """Set the password of an account, which ends its sessions."""
    name = form.get("name")
    admin.access.accounts.set_password(name, form.fields.get("password", ""))
    admin.access.audit.record(form.session.who, "reset a password", {"account": name})
    return redirect(request, "accounts?done=password")


@router.post("/accounts/delete")
def delete(request: Request, admin: AdminServices, form: OwnerForm) -> Response:
    """Delete an account with its sessions."""
    name = form.get("name")
    admin.access.accounts.delete(name)
    admin.access.audit.record(form.session.who, "deleted an account", {"account": name})
    return redirect(request, "accounts?done=deleted")


@router.post("/password")
def change_own_password(request: Request, admin: AdminServices, form: ViewerForm) -> Response:
    """Change one's own password, which ends one's sessions."""
    name = form.session.account.name
    admin.access.take_attempt(request.client.host if request.client else "", name)
    token = admin.access.accounts.sign_in(name, form.fields.get("current", ""))
    if token is None:
        raise Forbidden("The current password is wrong.", hint="Go back and try again.")
    admin.access.accounts.set_password(name, form.fields.get("password", ""))
    admin.access.audit.record(form.session.who, "changed their password")
    return redirect(request, "signin", {"Set-Cookie": cookie(request, SESSION_COOKIE, "", 0)})


def _role(form: SubmittedForm) -> AccountRole:
    role = ROLES.get(form.get("role"))
    if role is None:
        raise UsageError("There is no such role.", hint=f"Choose one of {', '.join(ROLES)}.")
    return role
