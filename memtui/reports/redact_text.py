"""Free text without secrets: labels for names that are known, and a mask for every word that could be one."""

from __future__ import annotations

import re

from memtui.core.samples import Hello

MASK = "***"
_TOKEN = re.compile(r"[^\s,;()'\"<>\[\]{}|]+")
_ADDRESS = re.compile(r"(?:0x)?(?=[0-9a-f]*[0-9])[0-9a-f]{8,}(?:-(?:0x)?[0-9a-f]+)?|0x[0-9a-f]+", re.IGNORECASE)
_PARTS = re.compile(r"[^\w-]+")
_HARMLESS = frozenset(("n/a", "and/or", "/s"))


class Labels(dict[str, str]):
    """``file-1``, ``file-2`` ... in the order of appearance."""

    def __init__(self, word: str) -> None:
        super().__init__()
        self._word = word

    def __missing__(self, text: str) -> str:
        self[text] = f"{self._word}-{len(self) + 1}"
        return self[text]


class Scrubber:
    """Removes secrets from free text."""

    def __init__(self, hello: Hello, commands: Labels, names: Labels) -> None:
        self._cache: dict[str, str] = {}
        whole = commands | {name: label for name, label in names.items() if re.search(r"\s", name)}
        self._whole = sorted(((text, label) for text, label in whole.items() if text), key=lambda item: -len(item[0]))
        self._names = names
        always = {hello.host.hostname, hello.host.hostname.partition(".")[0], hello.target.user}
        candidates: set[str] = set()
        for command in commands:
            candidates.update(part for word in command.split() for part in (word, *_PARTS.split(word)))
        for name in names:
            candidates.add(name.rpartition("/")[2])
        # Short words and numbers of a command line identify nobody: "-m", "64".
        identifying = {word for word in candidates if len(word) > 2 and not re.fullmatch(r"[0-9.]+", word)}
        self._secret = {word.casefold() for word in always | identifying} - {"", "root", "memtui"}

    def scrub(self, text: str) -> str:
        """Return the text with labels for whole commands and files, and ``***`` for a word that could be a secret."""
        if text not in self._cache:
            labelled = text
            for secret, label in self._whole:
                labelled = labelled.replace(secret, label)
            self._cache[text] = _TOKEN.sub(lambda token: self._token(token[0]), labelled)
        return self._cache[text]

    def _token(self, token: str) -> str:
        bare = token.rstrip(".:!?")
        rest = token[len(bare) :]
        if bare in self._names:
            return self._names[bare] + rest
        if bare.casefold() in _HARMLESS:
            return token
        if "/" in bare or "\\" in bare:
            return "path" + rest
        if _ADDRESS.fullmatch(bare):
            return "address" + rest
        if any(part.casefold() in self._secret for part in (bare, *_PARTS.split(bare))):
            return MASK + rest
        return _ADDRESS.sub("address", token) if "0x" in token.lower() else token
