"""String formats that a grammar can enforce, as patterns. The calendar is exact, with leap years. Host names have up to
eight labels of 30 characters; mail addresses have up to four, and 32 characters before the @ (more with dots).

Any thread; pure data. There are no leap seconds and no year 0, because validators do not know them.
"""

_YEAR = "(?:000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})"
_BY_FOUR = "(?:0[48]|[2468][048]|[13579][26])"  # 04 to 96
_LEAP = f"(?:[0-9]{{2}}{_BY_FOUR}|{_BY_FOUR}00)"
_DAYS = "|".join(
    [
        "(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])",
        "(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)",
        "02-(?:0[1-9]|1[0-9]|2[0-8])",
    ]
)
_DATE = f"(?:{_YEAR}-(?:{_DAYS})|{_LEAP}-02-29)"
_HOUR = "(?:[01][0-9]|2[0-3])"
_CLOCK = f"{_HOUR}:[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{{1,9}})?"
_TIME = f"{_CLOCK}(?:Z|[+-]{_HOUR}:[0-5][0-9])"
_HEX = "[0-9a-fA-F]"

_OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4 = f"(?:{_OCTET}\\.){{3}}{_OCTET}"
_H16 = f"{_HEX}{{1,4}}"
_LS32 = f"(?:{_H16}:{_H16}|{_IPV4})"
_IPV6 = "|".join(
    [
        f"(?:{_H16}:){{6}}{_LS32}",
        f"::(?:{_H16}:){{5}}{_LS32}",
        *(f"(?:(?:{_H16}:){{0,{n}}}{_H16})?::(?:{_H16}:){{{4 - n}}}{_LS32}" for n in range(5)),
        f"(?:(?:{_H16}:){{0,5}}{_H16})?::{_H16}",
        f"(?:(?:{_H16}:){{0,6}}{_H16})?::",
    ]
)
_BITS32 = "(?:3[0-2]|[12]?[0-9])"
_BITS128 = "(?:12[0-8]|1[01][0-9]|[1-9]?[0-9])"
_NETWORK4 = "(?:{})".format(
    "|".join(f"(?:{_OCTET}\\.){{{n}}}{_OCTET}(?:\\.0){{{3 - n}}}/{8 * n + 8}" for n in range(4))
)
_B64 = "[a-zA-Z0-9+/]"
_BASE64 = f"(?:{_B64}{{4}})*(?:{_B64}[AQgw]==|{_B64}{{2}}[AEIMQUYcgkosw048]=)?"
# Names with up to eight labels of 30 characters stay below every limit on a whole name.
_LABEL = "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,28}[a-zA-Z0-9])?"
_LAST_LABEL = "[a-zA-Z](?:[a-zA-Z0-9-]{0,28}[a-zA-Z0-9])?"
_ATOM = "[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]"
_URI_CHAR = "(?:[a-zA-Z0-9._~!$&'()*+,;=:@-]|%[0-9a-fA-F]{2})"
_NAME_CHAR = "(?:[a-zA-Z0-9._~!$&'()*+,;=-]|%[0-9a-fA-F]{2})"
_AUTHORITY = f"(?:(?:{_NAME_CHAR}|:)*@)?{_NAME_CHAR}*(?::[0-9]{{0,5}})?"
_PATH = f"(?://{_AUTHORITY}(?:/{_URI_CHAR}*)*|/?{_URI_CHAR}+(?:/{_URI_CHAR}*)*)"
_URI = f"[a-zA-Z][a-zA-Z0-9+.-]*:{_PATH}(?:\\?(?:{_URI_CHAR}|[/?])*)?(?:#(?:{_URI_CHAR}|[/?])*)?"
_N = "[0-9]+"
_DURATION_DAYS = f"(?:{_N}Y(?:{_N}M)?(?:{_N}D)?|{_N}M(?:{_N}D)?|{_N}D)"
_DURATION_TIME = f"T(?:{_N}H(?:{_N}M)?(?:{_N}S)?|{_N}M(?:{_N}S)?|{_N}S)"


def _uuid(version: str = _HEX, variant: str = _HEX) -> str:
    return f"^{_HEX}{{8}}-{_HEX}{{4}}-{version}{_HEX}{{3}}-{variant}{_HEX}{{3}}-{_HEX}{{12}}$"


PATTERNS = {
    "date": f"^{_DATE}$",
    "time": f"^{_TIME}$",
    "date-time": f"^{_DATE}T{_TIME}$",
    "duration": f"^P(?:{_DURATION_DAYS}(?:{_DURATION_TIME})?|{_DURATION_TIME}|{_N}W)$",
    "uuid": _uuid(),
    **{f"uuid{n}": _uuid(str(n), "[89abAB]") for n in range(1, 9)},
    "email": f"^{_ATOM}(?:\\.?{_ATOM}){{0,31}}@(?:{_LABEL}\\.){{1,3}}{_LAST_LABEL}$",
    "hostname": f"^(?:{_LABEL}\\.){{0,7}}{_LAST_LABEL}$",
    "ipv4": f"^{_IPV4}$",
    "ipv6": f"^(?:{_IPV6})$",
    "uri": f"^{_URI}$",
    "url": f"^{_URI}$",
    "uri-reference": f"^{_URI}$",
    "iri": f"^{_URI}$",
    "json-pointer": "^(?:/(?:[^~/]|~[01])*)*$",
    # Zod's formats. Ids have the length that their generators use, even if a validator accepts longer ones.
    "base64": f"^{_BASE64}$",
    "byte": f"^{_BASE64}$",
    "base64url": "^(?:[a-zA-Z0-9_-]{4})*$",
    "cidrv4": f"^{_IPV4}/{_BITS32}$",
    "cidrv6": f"^(?:{_IPV6})/{_BITS128}$",
    "e164": "^\\+[1-9][0-9]{6,14}$",
    "cuid": "^c[0-9a-z]{24}$",
    "cuid2": "^[a-z][0-9a-z]{23}$",
    "ksuid": "^[0-9a-zA-Z]{27}$",
    "nanoid": "^[a-zA-Z0-9_-]{21}$",
    "ulid": "^[0-7][0-9A-HJKMNP-TV-Z]{25}$",
    "xid": "^[0-9a-v]{20}$",
    # Pydantic's formats. In networks all host bits are 0, as its types demand.
    "ipvanyaddress": f"^(?:{_IPV4}|{_IPV6})$",
    "ipv4interface": f"^{_IPV4}/{_BITS32}$",
    "ipv6interface": f"^(?:{_IPV6})/{_BITS128}$",
    "ipvanyinterface": f"^(?:{_IPV4}/{_BITS32}|(?:{_IPV6})/{_BITS128})$",
    "ipv4network": f"^{_NETWORK4}$",
    "ipv6network": f"^(?:{_IPV6})/128$",
    "ipvanynetwork": f"^(?:{_NETWORK4}|(?:{_IPV6})/128)$",
}

# Some formats allow more if the schema also has a `pattern`: Zod's times have no offset.
BESIDE_PATTERN = {**PATTERNS, "time": f"^(?:{_TIME}|{_HOUR}:[0-5][0-9]|{_CLOCK})$"}

# Formats whose pieces have limits, which would make the automaton of a `maxLength` too large. A text of at most
# SHORT_MAX characters keeps these limits anyway, so the patterns of short texts have none.
SHORT_MAX = 63
_SHORT_LABEL = "[a-zA-Z0-9](?:-*[a-zA-Z0-9])*"
_SHORT_HOST = f"(?:{_SHORT_LABEL}\\.)*[a-zA-Z](?:-*[a-zA-Z0-9])*"
SHORT = {
    "email": f"^{_ATOM}(?:\\.?{_ATOM})*@{_SHORT_LABEL}\\.{_SHORT_HOST}$",
    "hostname": f"^{_SHORT_HOST}$",
}

# Formats with large automata: their grammar is shorter if the pattern is written as it is.
WRITTEN = (
    "email",
    "hostname",
    "ipv6",
    "cidrv6",
    "ipvanyaddress",
    "ipv6interface",
    "ipvanyinterface",
    "ipv6network",
    "ipvanynetwork",
)

# Formats that any string satisfies: they say how it is shown or what it means.
ANY_TEXT = frozenset({"password", "binary", "path", "file-path", "directory-path"})

# OpenAPI's and Rust's formats of numbers: a range of integers, or nothing that a grammar can enforce.
_SIZES = {"8": 8, "16": 16, "32": 32, "64": 64, "": 64}
INTEGERS = {
    **{f"int{name}": (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for name, bits in _SIZES.items()},
    **{f"uint{name}": (0, 2**bits - 1) for name, bits in _SIZES.items()},
}
NUMBERS = frozenset({"float", "double", *INTEGERS})
