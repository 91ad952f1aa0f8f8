"""String formats that a grammar can enforce, as patterns. The calendar is exact, leap years included.

Any thread; pure data. No leap seconds and no year 0: validators do not know them.
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
_TIME = f"{_HOUR}:[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{{1,9}})?(?:Z|[+-]{_HOUR}:[0-5][0-9])"
_HEX = "[0-9a-fA-F]"

PATTERNS = {
    "date": f"^{_DATE}$",
    "time": f"^{_TIME}$",
    "date-time": f"^{_DATE}T{_TIME}$",
    "uuid": f"^{_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}}$",
}

# OpenAPI's formats of numbers: a range of integers, or nothing for a grammar to enforce.
INTEGERS = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}
NUMBERS = frozenset({"float", "double", "int32", "int64"})

# How libraries write a decimal number (Pydantic does): "not only signs and points" ahead of the pattern proper.
DECIMAL_AHEAD = "^(?!^[-+.]*$)"
DECIMAL_NEVER = "^[-+.]*$"
