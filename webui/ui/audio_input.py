"""A sound that comes into the page: the part that takes it, and the draft of what it took.

Blind to what it is for.
"""

from __future__ import annotations

from pathlib import Path

from ..errors import KaikouError
from ..studio.drafts import Draft
from . import view_models
from .html_part import number
from .uploads import Uploads


def draft_of(studio, uploads: Uploads, owner: str, path: str | None, after: str = "") -> Draft:
    """Return the draft of the upload that `path` names; asked again, the same one.

    after: id of a draft that this recording goes on from. Raises NotAllowed, TooLarge, BadInput,
      NotFound.
    """
    upload = uploads.get(owner, path or "")
    if upload.draft_id:
        return studio.drafts.get(owner, upload.draft_id)
    draft = studio.drafts.make(owner, upload.data, after)
    uploads.replace(path, draft.id)
    return draft


def clip_view(studio, uploads: Uploads, owner: str, event: dict) -> dict:
    """Return what the page draws of the upload that `event` names: its draft, or why there is none.

    what: `path` as the answer to the upload gave it, `n` counts what the page asked for, `after` is
      the id of the draft that a recording goes on from, if any.
    """
    n = int(number(event["n"]))
    try:
        path = str(event["path"])
        draft = draft_of(studio, uploads, owner, path, str(event.get("after") or ""))
        return view_models.draft(draft) | {"n": n, "name": Path(path).stem[:40]}
    except KaikouError as error:
        return {"error": view_models.fault(error), "n": n}
