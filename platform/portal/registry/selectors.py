"""Reads of systems, models, mixes and price books; every one takes the actor."""

from django.db.models import QuerySet

from portal.accounts.access import get_or_404, scope
from portal.accounts.models import Membership
from portal.registry.models import Model, ModelMix, PriceBook, System


def system_list(*, actor: Membership) -> QuerySet[System]:
    """Every revision of every system the actor may see, newest revision first per name."""
    return scope(actor, System.objects.select_related("organisation"), "systems")


def system_get(*, actor: Membership, system_id: object) -> System:
    """One of `system_list`, or Http404."""
    return get_or_404(system_list(actor=actor), system_id)


def model_list(*, actor: Membership) -> QuerySet[Model]:
    """Registered models."""
    return scope(actor, Model.objects.all(), "models")


def model_get(*, actor: Membership, model_id: object) -> Model:
    """One of `model_list`, or Http404."""
    return get_or_404(model_list(actor=actor), model_id)


def mix_list(*, actor: Membership) -> QuerySet[ModelMix]:
    """Model mixes with their model."""
    return scope(actor, ModelMix.objects.select_related("model"), "mixes")


def mix_get(*, actor: Membership, mix_id: object) -> ModelMix:
    """One of `mix_list`, or Http404."""
    return get_or_404(mix_list(actor=actor), mix_id)


def price_book_list(*, actor: Membership) -> QuerySet[PriceBook]:
    """Price books, newest version first."""
    return scope(actor, PriceBook.objects.all(), "prices")


def price_book_get(*, actor: Membership, price_book_id: object) -> PriceBook:
    """One of `price_book_list`, or Http404."""
    return get_or_404(price_book_list(actor=actor), price_book_id)
