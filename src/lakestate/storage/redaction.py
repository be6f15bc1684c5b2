"""Shortens the error text of client libraries and removes credentials from it.

Every text from a library passes through here before it becomes part of one of our errors.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

REASON_CHARS_MAX = 300

_SECRET_NAME = re.compile(r"key|secret|token|password|credential|sas|service_account", re.IGNORECASE)
_SECRET_VARIABLES = ("AWS_", "AZURE_", "GOOGLE_")
_SECRET_CHARS_MIN = 4
"""Shorter values are not secrets, and removing them would make every message unreadable."""

_QUERY = re.compile(r"(https?://[^\s?]*)\?\S*")
_SERVER_ANSWER = re.compile(r"<Code>([^<]*)</Code>(?:.*?<Message>([^<]*)</Message>)?", re.DOTALL)
_MARKUP = re.compile(r"<[?!/A-Za-z].*", re.DOTALL)


@dataclass(frozen=True, slots=True, repr=False)
class Redaction:
    """Knows the secrets of one configuration and removes them from texts."""

    options: Mapping[str, str]

    def reason(self, text: str) -> str:
        """The error text of a library, on one line and without secrets.

        >>> Redaction({"secret_access_key": "s3cr3t"}).reason("PUT http://h/b?X-Sig=1 failed: s3cr3t")
        'PUT http://h/b failed: ***'
        """
        text = _QUERY.sub(r"\1", text.partition("\n\nDebug source:")[0])
        for secret in self._secrets():
            text = text.replace(secret, "***")
        return " ".join(_without_markup(text).split())[:REASON_CHARS_MAX]

    def _secrets(self) -> list[str]:
        given = [value for name, value in self.options.items() if _SECRET_NAME.search(name)]
        ambient = [
            value
            for name, value in os.environ.items()
            if name.startswith(_SECRET_VARIABLES) and _SECRET_NAME.search(name)
        ]
        return [secret for secret in (*given, *ambient) if len(secret) >= _SECRET_CHARS_MIN]


def _without_markup(text: str) -> str:
    # The body of a refusal repeats the signed request, including the key. Keep only code and message.
    answer = _SERVER_ANSWER.search(text)
    said = ": ".join(filter(None, answer.groups())) if answer else ""
    return f"{_MARKUP.sub('', text)} {said}"
