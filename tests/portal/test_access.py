"""One table says who sees and does what; every service asks it, nothing slips past."""

import ast
from datetime import timedelta
from pathlib import Path

import pytest
from django.http import Http404
from django.utils import timezone

import portal
from portal.accounts.access import MAY, SEES, NotAllowed, Platform, require, scope, sees
from portal.accounts.models import Membership, Role
from portal.accounts.selectors import (
    member_list,
    memberships_of,
    organisation_list,
    token_get,
    token_list,
)
from portal.accounts.services import AccountsError, member_add, token_create
from portal.registry.models import System
from portal.registry.selectors import system_get, system_list

PORTAL = Path(portal.__file__).parent


def called_with(function: str, position: int) -> set[str]:
    """Every literal text that any module of the portal passes to `function` at `position`."""
    found = set()
    for path in PORTAL.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id == function
                and len(node.args) > position
            ):
                argument = node.args[position]
                if isinstance(argument, ast.Constant):
                    found.add(str(argument.value))
    return found


def test_every_action_and_subject_is_in_the_table():
    assert called_with("require", 1) <= set(MAY)
    assert called_with("scope", 2) <= set(SEES)
    assert called_with("scope", 2), "the walk found no scope() call: it no longer looks right"


def test_roles_in_the_tables_exist():
    for table in (SEES, MAY):
        for roles in table.values():
            assert roles <= set(Role.values)


def test_expired_auditor_sees_nothing(cast, system):
    assert system_list(actor=cast.auditor).count() == 1
    cast.auditor.expires_at = timezone.now() - timedelta(seconds=1)
    cast.auditor.save()
    assert system_list(actor=cast.auditor).count() == 0
    assert not sees(cast.auditor, "systems")
    assert memberships_of(user_id=cast.auditor.user_id).count() == 0
    assert organisation_list(actor=cast.auditor).count() == 0


def test_inactive_account_sees_nothing(cast, system):
    cast.owner.user.is_active = False
    cast.owner.user.save()
    assert system_list(actor=Membership.objects.get(pk=cast.owner.pk)).count() == 0


def test_another_organisations_system_is_not_there(cast, system):
    assert system_get(actor=cast.owner, system_id=system.pk) == system
    with pytest.raises(Http404):
        system_get(actor=cast.outsider, system_id=system.pk)


@pytest.mark.parametrize("key", ["", "x", "0", "../../etc", None, 7, "0" * 400])
def test_ids_that_are_none_are_404(cast, key):
    with pytest.raises(Http404):
        system_get(actor=cast.owner, system_id=key)


def test_operator_of_the_host_sees_all_systems_but_no_money(cast, system):
    assert system_list(actor=cast.host).count() == 1
    assert not sees(cast.host, "billing")


def test_unknown_subject_is_a_mistake_not_a_hole(cast):
    with pytest.raises(KeyError):
        scope(cast.owner, System.objects.all(), "everything")


def test_require_tells_what_it_takes(cast):
    with pytest.raises(NotAllowed, match="role auditor may not; it takes one of: finance"):
        require(cast.auditor, "invoice.issue", cast.organisation)
    with pytest.raises(Http404):
        require(cast.finance, "invoice.issue", cast.outsider.organisation)
    with pytest.raises(Http404):
        require(Platform(cast.organisation), "invoice.issue", cast.outsider.organisation)


def test_members_of_one_organisation(cast):
    assert {member.user.username for member in member_list(actor=cast.owner)} == {
        "owner", "colleague", "auditor", "finance", "operator",
    }  # fmt: skip
    assert [member.user.username for member in member_list(actor=cast.outsider)] == ["outsider"]


def test_member_add_rules(cast):
    with pytest.raises(AccountsError, match="wanted one of customer"):
        member_add(actor=cast.owner, organisation=cast.organisation, username="x", role="superuser")
    with pytest.raises(AccountsError, match="only an auditor's access expires"):
        member_add(
            actor=cast.owner,
            organisation=cast.organisation,
            username="x",
            role="finance",
            expires_at=timezone.now(),
        )
    with pytest.raises(NotAllowed):
        member_add(actor=cast.finance, organisation=cast.organisation, username="x", role="finance")
    with pytest.raises(Http404):
        member_add(
            actor=cast.outsider, organisation=cast.organisation, username="x", role="customer"
        )


def test_tokens_are_their_members_own(cast):
    token, _ = token_create(actor=cast.colleague, name="t", scopes=["read"])
    finance, _ = token_create(actor=cast.finance, name="t", scopes=["read"])
    assert token_get(actor=cast.owner, token_id=token.pk) == token
    assert list(token_list(actor=cast.finance)) == [finance]
    with pytest.raises(Http404):
        token_get(actor=cast.outsider, token_id=token.pk)
