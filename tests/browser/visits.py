"""Visits of one Chromium that follow each other keep what it has read of a studio's files: reading
and compiling Gradio anew costs each page two seconds of a processor.

Whatever else a visit leaves (cookies, storage, open pages, routes) is gone before the next begins.
A visit that ended badly is not followed by another.
"""

from __future__ import annotations

import json
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, Page

LEFT = "cookies,local_storage,indexeddb,file_systems,cache_storage,service_workers"


class Visits:
    """A Browser that lends its contexts; with one of its own (`new_context`) everything is fetched
    again.
    """

    def __init__(self, chrome: Browser):
        self._chrome = chrome
        self._free: dict[str, list[BrowserContext]] = {}
        self._lent: dict[BrowserContext, str] = {}

    def __getattr__(self, name):
        return getattr(self._chrome, name)

    def begin(self, url: str, options: dict) -> Page:
        """`options`: of Browser.new_context."""
        kind = json.dumps(options, sort_keys=True)
        free = self._free.setdefault(kind, [])
        if free:
            context = free.pop()
        else:
            context = self._chrome.new_context(**options)
            context.new_page().goto(
                f"{url}/health/live"
            )  # while it is open its process stays, and what that has compiled
        self._lent[context] = kind
        page = context.new_page()
        at = urlsplit(url)
        debugger = context.new_cdp_session(page)
        debugger.send(
            "Storage.clearDataForOrigin",
            {"origin": f"{at.scheme}://{at.netloc}", "storageTypes": LEFT},
        )
        debugger.detach()
        return page

    def end(self, context: BrowserContext, went_well: bool) -> None:
        kind = self._lent.pop(context)
        if not went_well:
            context.close()
            return
        for page in context.pages[1:]:
            page.close()
        context.unroute_all()
        context.clear_cookies()
        self._free[kind].append(context)
