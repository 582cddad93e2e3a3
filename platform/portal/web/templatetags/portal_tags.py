"""What templates may say beyond plain HTML: numbers, instants, periods, marks and figures.

All of it is text formatting; a tag never reads the database.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django import template
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from portal.web import formats
from portal.web.figures import Figure
from portal.web.navigation import Group
from portal.web.navigation import navigation as navigation_of

register = template.Library()

register.filter("number", formats.number)
register.filter("fixed", formats.fixed)
register.filter("percent", formats.percent)
register.filter("signed_percent", formats.signed_percent)
register.filter("duration", formats.duration)
register.filter("byte_size", formats.byte_size)


@register.filter
def money(amount: Any, currency: str) -> str:
    """An amount with its currency."""
    return formats.money(amount, currency)


@register.filter
def grouped(amount: Any) -> str:
    """Every stored digit of an amount, thousands grouped, without a currency."""
    return formats.money(amount, "")


@register.filter
def taken_off(amount: Any) -> str:
    """An amount that is subtracted: with its minus sign, and zero without one."""
    text = formats.money(amount, "")
    return f"-{text}" if formats.as_decimal(amount) else text


@register.filter
def signed(amount: Any) -> str:
    """A change of an amount: every stored digit, its sign always written; zero is 0."""
    number = formats.as_decimal(amount)
    return formats.ABSENT if number is None else f"{number:+,f}" if number else "0"


@register.filter
def sentence(text: str) -> str:
    """Stored words as one sentence: exactly one full stop at the end."""
    return f"{text.rstrip('. ')}."


@register.filter
def instant(value: datetime | str | None) -> str | SafeString:
    """A `<time>` element in UTC, or words when there is none."""
    text = formats.instant(value)
    if text == formats.ABSENT:
        return text
    return format_html('<time class="nowrap" datetime="{}">{}</time>', text.replace(" ", "T"), text)


@register.filter
def digest(value: str | None) -> str | SafeString:
    """A digest or key id, shortened, its full text in a title and for copying in a data value."""
    if not value:
        return formats.ABSENT
    return format_html(
        '<code class="digest" title="{}">{}</code>', value, formats.short_digest(str(value))
    )


@register.filter
def entry(mapping: Mapping[str, Any] | None, key: str) -> Any:
    """A mapping's value by key, empty text when there is none."""
    return "" if mapping is None else mapping.get(key, "")


@register.simple_tag
def mark(state: Any, words: str = "") -> SafeString:
    """A state as a pill: a sign, words, and a colour that only repeats them."""
    text = str(state)
    shown = (words or text).replace("_", " ")
    shown = shown if not shown.isupper() else shown.lower()
    return format_html('<span class="mark {}">{}</span>', formats.mark_class(text), shown)


@register.simple_tag
def period(start: Any, end: Any, zone: str) -> SafeString:
    """A half-open range with its zone, so no reader has to guess either."""
    return format_html(
        '<span class="num">[{}, {})</span> <span class="soft">{}</span>',
        _edge(start), _edge(end), zone,
    )  # fmt: skip


def _edge(value: Any) -> str:
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


@register.simple_tag(takes_context=True)
def navigation(context: Mapping[str, Any]) -> tuple[Group, ...]:
    """The side bar of the request's actor."""
    request = context["request"]
    return navigation_of(request.actor, request.path)


@register.simple_tag
def now() -> str:
    """When the page was made, in UTC."""
    return formats.instant(timezone.now())


@register.inclusion_tag("portal/parts/figure.html")
def figure(item: Figure) -> dict[str, Figure]:
    """A figure block that opens to how it was made."""
    return {"figure": item}


@register.inclusion_tag("portal/parts/how.html")
def how(item: Figure, words: str = "") -> dict[str, Any]:
    """What opens beneath a number that stands in a table: how it was made."""
    return {"figure": item, "words": words}
