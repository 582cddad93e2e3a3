"""Writes of systems, models, mixes, price books: one transaction and one event each.

Registering the same thing again returns the row that is there: identity is the fingerprint or
the digest, never a name that was typed twice.
"""

from collections.abc import Mapping
from pathlib import Path

from django.db import transaction
from django.db.models import Max

from kernelgen.machine import Machine
from metering.plan import PriceBook as PriceBookDocument
from portal.accounts.access import Actor, require
from portal.accounts.models import Organisation
from portal.events.services import event_record
from portal.registry.models import Model, ModelMix, PriceBook, System
from portal.workspace import relative, sha256_file


@transaction.atomic
def system_register(
    *, actor: Actor, organisation: Organisation, name: str, machine: Machine
) -> System:
    """Register a machine; another fingerprint under the same name becomes the next revision."""
    require(actor, "system.register", organisation)
    rows = System.objects.filter(organisation=organisation, name=name)
    found = rows.filter(fingerprint=machine.fingerprint).first()
    if found:
        return found
    latest = rows.aggregate(last=Max("revision"))["last"] or 0
    system = System(
        organisation=organisation,
        name=name,
        revision=latest + 1,
        fingerprint=machine.fingerprint,
        machine=machine.to_dict(),
    )
    system.save(force_insert=True)
    event_record(
        action="system.register",
        actor=actor,
        subject=system,
        organisation=organisation,
        data={"name": name, "revision": system.revision, "fingerprint": machine.fingerprint},
    )
    return system


@transaction.atomic
def model_register(
    *,
    actor: Actor,
    organisation: Organisation,
    name: str,
    path: Path,
    licence: str,
    source: str,
) -> Model:
    """Register a model file that lies under the home; known by its digest."""
    require(actor, "model.register", organisation)
    sha256 = sha256_file(path)
    found = Model.objects.filter(organisation=organisation, sha256=sha256).first()
    if found:
        return found
    model = Model(
        organisation=organisation,
        name=name,
        sha256=sha256,
        size_bytes=path.stat().st_size,
        licence=licence,
        source=source,
        path=relative(path),
    )
    model.save(force_insert=True)
    event_record(
        action="model.register",
        actor=actor,
        subject=model,
        organisation=organisation,
        data={"name": name, "sha256": sha256, "licence": licence},
    )
    return model


@transaction.atomic
def mix_register(
    *,
    actor: Actor,
    organisation: Organisation,
    name: str,
    model: Model,
    traffic_source: str,
    length_histogram: Mapping[int, int],
    samples: Path,
    sample_count: int,
    held_out: Path,
    held_out_count: int,
) -> ModelMix:
    """Register the traffic of a model: samples to measure on, samples nobody tunes on."""
    require(actor, "mix.register", organisation)
    samples_sha256, held_out_sha256 = sha256_file(samples), sha256_file(held_out)
    found = ModelMix.objects.filter(
        organisation=organisation,
        name=name,
        samples_sha256=samples_sha256,
        held_out_sha256=held_out_sha256,
    ).first()
    if found:
        return found
    mix = ModelMix(
        organisation=organisation,
        name=name,
        model=model,
        traffic_source=traffic_source,
        length_histogram={str(length): count for length, count in length_histogram.items()},
        sample_count=sample_count,
        samples_path=relative(samples),
        samples_sha256=samples_sha256,
        held_out_count=held_out_count,
        held_out_path=relative(held_out),
        held_out_sha256=held_out_sha256,
    )
    mix.save(force_insert=True)
    event_record(
        action="mix.register",
        actor=actor,
        subject=mix,
        organisation=organisation,
        data={
            "name": name,
            "model": model.sha256,
            "samples": samples_sha256,
            "held_out": held_out_sha256,
        },
    )
    return mix


@transaction.atomic
def price_book_publish(
    *, actor: Actor, organisation: Organisation, document: PriceBookDocument
) -> PriceBook:
    """Publish a price; the same document again returns the version that is there."""
    require(actor, "price_book.publish", organisation)
    rows = PriceBook.objects.filter(organisation=organisation)
    found = rows.filter(sha256=document.digest).first()
    if found:
        return PriceBook.objects.get(pk=found.pk)
    latest = rows.aggregate(last=Max("version"))["last"] or 0
    book = PriceBook(
        organisation=organisation,
        version=latest + 1,
        currency=document.currency,
        price_per_core_hour=document.price_per_core_hour,
        valid_from=document.valid_from,
        source=document.source,
        document=document.to_json(),
        sha256=document.digest,
    )
    book.save(force_insert=True)
    event_record(
        action="price_book.publish",
        actor=actor,
        subject=book,
        organisation=organisation,
        data={"version": book.version, "sha256": book.sha256, "currency": book.currency},
    )
    return book
