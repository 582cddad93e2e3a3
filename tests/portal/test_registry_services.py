"""Identity is a fingerprint or a digest, never a typed name."""

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from metering.plan import PriceBook as PriceBookDocument
from portal.accounts.access import NotAllowed
from portal.events.models import Event
from portal.records import IssuedError
from portal.registry.models import ModelMix, PriceBook, System
from portal.registry.services import model_register, price_book_publish, system_register


def test_same_fingerprint_is_the_same_revision(cast, machine, system):
    faster = replace(machine, peak_gflops_per_core=95.0)
    again = system_register(
        actor=cast.owner, organisation=cast.organisation, name="search-1", machine=faster
    )
    assert again.pk == system.pk
    assert Event.objects.filter(action="system.register").count() == 1


def test_other_fingerprint_is_the_next_revision(cast, machine, system):
    other = replace(machine, fingerprint="ef" * 32, cores=4)
    second = system_register(
        actor=cast.owner, organisation=cast.organisation, name="search-1", machine=other
    )
    assert (second.revision, System.objects.count()) == (2, 2)
    back = system_register(
        actor=cast.owner, organisation=cast.organisation, name="search-1", machine=machine
    )
    assert back.pk == system.pk


def test_same_machine_at_two_customers_is_two_rows(cast, machine, system):
    theirs = system_register(
        actor=cast.outsider,
        organisation=cast.outsider.organisation,
        name="search-1",
        machine=machine,
    )
    assert theirs.pk != system.pk


def test_model_is_its_bytes(cast, home, mix):
    again = model_register(
        actor=cast.owner,
        organisation=cast.organisation,
        name="another name",
        path=home / mix.model.path,
        licence="MIT",
        source="",
    )
    assert again.pk == mix.model.pk
    assert ModelMix.objects.get().length_histogram == {"5": 1, "9": 2, "12": 1}


def test_price_book_versions(cast, draft):
    def publish(price: str) -> PriceBook:
        return price_book_publish(
            actor=cast.finance,
            organisation=cast.organisation,
            document=PriceBookDocument(
                "EUR", Decimal(price), datetime(2026, 1, 1, tzinfo=UTC), "framework agreement"
            ),
        )

    assert publish("0.05").version == 1
    assert publish("0.06").version == 2
    assert publish("0.05").version == 1
    book = publish("0.06")
    book.price_per_core_hour = Decimal(1)
    with pytest.raises(IssuedError):
        book.save()
    with pytest.raises(NotAllowed):
        price_book_publish(
            actor=cast.operator,
            organisation=cast.organisation,
            document=PriceBookDocument("EUR", Decimal(1), datetime(2026, 1, 1, tzinfo=UTC), "wish"),
        )
