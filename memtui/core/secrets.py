"""Masks secrets in command lines: passwords in options, in NAME=value words, in URLs, and bearer tokens.

Masking errs on the side of hiding: a masked word too many is a smaller loss than a key in a file that is passed on.
"""

from __future__ import annotations

import re
import shlex

MASK = "***"

# A word as a shell reads it. The last two alternatives are unmatched quotes and backslashes.
_WORD = re.compile(r"""(?:[^\s'"\\]|'[^']*'|"(?:\\.|[^"\\])*"|\\.|['"\\])+""", re.DOTALL)
_SECRET = r"(?:key|token|secret|passw|passphrase|credential|authorization)"
_SECRET_NAME = re.compile(rf"{_SECRET}|(?:^|[-_.])pass$", re.IGNORECASE)
# Names in machine learning that contain "token" or "key" and are not secret.
_HARMLESS = re.compile(
    r"tokeni[sz]|(?:^|[-_.])(?:max|min|num|n|pad|eos|bos|unk)[-_].*(?:token|key)|tokens$"
    r"|key(?:board|frame|point|word|[-_](?:value|dim|size|head))",
    re.IGNORECASE,
)
_PRIVATE = re.compile(r"secret|passw|passphrase|credential|authorization", re.IGNORECASE)  # never harmless
_ASSIGNED = re.compile(r"(?s)(-{0,2}[A-Za-z_+~][\w.+~-]*)=(.+)")
# Possessive and bounded, so that the time is linear in the length of any command line.
_INSIDE = re.compile(
    rf"(?<![\w.-])(?=[\w.-]{{0,64}}?{_SECRET})(?P<name>[\w.-]++)"
    r"(?P<sign>[\"']?\s*+[=:]\s*+[\"']?)(?P<value>[^\s\"'&,;}\])]++)",
    re.IGNORECASE,
)
_URL = re.compile(r"(?<![A-Za-z0-9+.-])([A-Za-z0-9+.-]++://)(?:[^/?#\s@:]{0,256}:\S{0,512}|[^/?#\s]{0,512})@")
_BEARER = re.compile(r"\b(bearer|authorization[\"']?\s*+[=:]\s*+basic)(\s++)[^\s\"']+", re.IGNORECASE)


def mask_secrets(command: str) -> str:
    """Return the command line with ``***`` for every secret; unchanged, to the character, where there is none.

    ``command`` is quoted as for a shell (``shlex.join``), so that a value with a blank in it is one word. Text that is
    not quoted that way is taken word by word.
    """
    out: list[str] = []
    end, hide_next = 0, False
    for match in _WORD.finditer(command):
        word = match.group()
        bare = _unquoted(word)
        if hide_next and not _is_option(bare):
            masked, hide_next = MASK, False
        else:
            masked = _masked_word(word, bare)
            hide_next = _hides_next(bare)
        out += (command[end : match.start()], masked)
        end = match.end()
    out.append(command[end:])
    # Without quotes, ``Bearer abc`` is two words, of which the second is secret.
    return _BEARER.sub(rf"\1\2{MASK}", "".join(out)) if "earer" in command.lower() else "".join(out)


def _masked_word(word: str, bare: str) -> str:
    if (match := _ASSIGNED.fullmatch(bare)) and _is_secret(match[1]):
        return f"{match[1]}={MASK}"
    masked = _URL.sub(rf"\1{MASK}@", bare)
    masked = _BEARER.sub(rf"\1\2{MASK}", masked)
    masked = _INSIDE.sub(_mask_value, masked)
    if masked == bare:
        return word
    if word == bare:
        return masked
    return masked if masked.replace(MASK, "") == shlex.quote(masked.replace(MASK, "")) else shlex.quote(masked)


def _mask_value(match: re.Match[str]) -> str:
    if not _is_secret(match["name"]) or match["value"].startswith((MASK, "//")):  # masked already; a URL's scheme
        return match[0]
    if match["value"].lower() in ("bearer", "basic"):  # the word before the secret, which is masked by itself
        return match[0]
    return f"{match['name']}{match['sign']}{MASK}"


def _hides_next(bare: str) -> bool:
    """Whether the word is an option whose value, the next word, is secret."""
    return bare.startswith("-") and "=" not in bare and not re.search(r"\s", bare) and _is_secret(bare.lstrip("-"))


def _is_option(bare: str) -> bool:
    return bare.startswith("--") or (bare.startswith("-") and len(bare) == 2)


def _is_secret(name: str) -> bool:
    if not _SECRET_NAME.search(name):
        return False
    return bool(_PRIVATE.search(name)) or not _HARMLESS.search(name)


def _unquoted(word: str) -> str:
    try:
        return "".join(shlex.split(word, posix=True)) if set(word) & set("'\"\\") else word
    except ValueError:
        return word  # a quote that is never closed
