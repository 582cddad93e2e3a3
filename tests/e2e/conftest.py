"""A real browser on a real server: the system's Chromium, driven by Playwright, on loopback.

A missing Chromium fails the tests: a page nobody has seen in a browser is not done.
"""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, sync_playwright

from portal import triggers
from tests.portal.web_data import PASSWORD, Stage, build

ARGUMENTS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
NARROWEST_PX = 640  # 1280 CSS pixels at 200 % zoom.


@pytest.fixture(scope="module", autouse=True)
def _static_root() -> None:
    """WhiteNoise warns about a missing folder, and a warning is an error here."""
    Path(settings.STATIC_ROOT).mkdir(parents=True, exist_ok=True)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium with an empty profile."""
    executable = shutil.which("chromium") or shutil.which("chromium-browser")
    if executable is None:
        pytest.fail("no chromium on PATH: install Debian's package 'chromium'")
    with pytest.MonkeyPatch.context() as patch:
        # Playwright's sync API runs an event loop in this thread; Django would refuse the database.
        patch.setitem(os.environ, "DJANGO_ALLOW_ASYNC_UNSAFE", "1")
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=executable, args=ARGUMENTS)
            yield browser
            browser.close()


@pytest.fixture
def stage(transactional_db: None, tmp_path: Path) -> Iterator[Stage]:
    """The whole portal, committed, so that the server's threads see it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(settings, "IGNITION_HOME", tmp_path)
        yield build(tmp_path)
    triggers.remove()


@dataclass
class Visitor:
    """One person at one browser window, with everything the browser complained about."""

    page: Page
    base: str
    complaints: list[str] = field(default_factory=list)

    def open(self, path: str) -> Page:
        """Go to a path of the portal and wait until its charts, if any, are drawn."""
        self.page.goto(self.base + path)
        for chart in self.page.locator(".chart-plot").all():
            chart.locator("svg.main-svg").first.wait_for()
        return self.page

    def sign_in(self, name: str) -> None:
        """Sign in with the keyboard alone."""
        self.open("/sign-in/")
        assert self.page.evaluate("document.activeElement.id") == "id_username"
        self.page.keyboard.type(name)
        self.page.keyboard.press("Tab")
        self.page.keyboard.type(PASSWORD)
        self.page.keyboard.press("Enter")
        self.page.wait_for_url(self.base + "/")

    def sideways(self) -> int:
        """By how many pixels the page scrolls sideways; tables scroll inside themselves."""
        width: int = self.page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        return width


@pytest.fixture
def visit(browser: Browser, live_server: Any, stage: Stage) -> Iterator[Any]:
    """A function that opens a fresh window; whatever a window complained about fails the test."""
    visitors: list[Visitor] = []
    contexts: list[BrowserContext] = []

    def opened(**options: Any) -> Visitor:
        context = browser.new_context(accept_downloads=True, **options)
        contexts.append(context)
        visitor = Visitor(context.new_page(), live_server.url)
        visitors.append(visitor)

        def heard(message: ConsoleMessage) -> None:
            if message.type in ("error", "warning"):
                visitor.complaints.append(message.text)

        visitor.page.on("console", heard)
        visitor.page.on("pageerror", lambda error: visitor.complaints.append(str(error)))
        return visitor

    yield opened
    complaints = [complaint for visitor in visitors for complaint in visitor.complaints]
    for context in contexts:
        context.close()
    assert complaints == []
