"""The compiled loops that turn LETOR text into arrays.

Each loop relies on the text ending in a newline: inside a line no loop then needs to ask whether the text
is over. A line that cannot be parsed is only reported as bad; saying what is wrong with it is left to
Python, which sees one line at a time and has all the time it wants.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fultr.compiled import compiled

Bytes = NDArray[np.uint8]

DONE, BAD_LINE, TEXT_QUERY, TOO_NARROW, TOO_MANY_UNSURE = 0, 1, 2, 3, 4
"""Why `parse_lines` stopped; after all but DONE and BAD_LINE it can go on where it stopped."""

LARGEST_INDEX = 1_000_000
RELEVANCE_COLUMN = -1
"""Stands for the label where a column number is expected."""

EXACT, UNSURE, MALFORMED = 0, 1, 2
NEWLINE, SPACE, HASH, PLUS, MINUS, POINT, ZERO, COLON = 10, 32, 35, 43, 45, 46, 48, 58
LETTER_E, CASE_BIT = ord("e"), 32

MOST_DIGITS = 18  # so many always fit in an int64
EXACT_DOUBLE = 2**53  # whole numbers up to here are doubles
EXACT_POWER = 22  # powers of ten up to here are doubles
LARGEST_POWER = 64
POWERS_OF_TEN = np.array([float(f"1e{power}") for power in range(LARGEST_POWER + 1)])
LARGEST_EXPONENT = 100_000
LOWEST = -(2**63)
LOWEST_TENTH = -(2**63 // 10)  # and 8 more when multiplied by ten
DOUBT = 2.0**-50
"""More than the relative error of a product of rounded doubles, and of the double nearest to the text."""


@compiled
def _at(text: Bytes, position: int) -> int:
    """Return a character; an unsigned position spares the test for one counted from the end."""
    return np.int64(text[np.uintp(position)])  # type: ignore[return-value]


@compiled
def _skip_blanks(text: Bytes, position: int) -> int:
    """Return the position of the next character of the line that is no blank, or of its end."""
    while _at(text, position) <= SPACE and _at(text, position) != NEWLINE:
        position += 1
    return position


@compiled
def _long_mantissa(text: Bytes, position: int) -> tuple[int, int, bool]:
    """Return the first 18 significant digits, the power of ten they lack, and whether digits were dropped."""
    mantissa, digits, power = 0, 0, 0
    fraction, dropped = False, False
    while True:
        character = _at(text, position)
        if character == POINT:
            fraction = True
        elif ZERO <= character < ZERO + 10:
            if digits < MOST_DIGITS:
                mantissa = mantissa * 10 + (character - ZERO)
                digits += mantissa > 0
                power -= fraction
            else:
                dropped = True
                power += not fraction
        else:
            return mantissa, power, dropped
        position += 1


@compiled
def _scaled(mantissa: int, power: int, dropped: bool) -> tuple[int, float]:
    """Return mantissa * 10 ** power as the float32 nearest to the double nearest to it, if that is sure."""
    if mantissa == 0:
        return EXACT, 0.0
    if power < -LARGEST_POWER or power > LARGEST_POWER:
        return UNSURE, 0.0
    value = float(mantissa)
    if power < 0:
        value /= POWERS_OF_TEN[-power]
    elif power > 0:
        value *= POWERS_OF_TEN[power]
    # one rounding of two exact doubles is right; with more than one, see whether the doubt reaches float32
    rounded_once = not dropped and mantissa <= EXACT_DOUBLE and -EXACT_POWER <= power <= EXACT_POWER
    sure = rounded_once or np.float32(value * (1.0 - DOUBT)) == np.float32(value * (1.0 + DOUBT))
    if not sure or np.isinf(np.float32(value)):
        return UNSURE, 0.0
    return EXACT, value


@compiled
def _exponent(text: Bytes, position: int) -> tuple[int, int, int]:
    """Parse a signed whole number; return its status, the position after it and its value."""
    negative = _at(text, position) == MINUS
    if negative or _at(text, position) == PLUS:
        position += 1
    start, value = position, 0
    while ZERO <= _at(text, position) < ZERO + 10:
        value = min(value * 10 + (_at(text, position) - ZERO), LARGEST_EXPONENT)
        position += 1
    return (MALFORMED if position == start else EXACT), position, (-value if negative else value)


@compiled
def parse_number(text: Bytes, position: int) -> tuple[int, int, float]:
    """Parse a decimal number that ends a word; return its status, the position after it and its value.

    The value is the float32 nearest to what Python's `float` makes of the text, or the status is UNSURE.
    """
    negative = _at(text, position) == MINUS
    if negative or _at(text, position) == PLUS:
        position += 1
    start, mantissa, points, power = position, 0, 0, 0
    while ZERO <= _at(text, position) < ZERO + 10:
        mantissa = mantissa * 10 + (_at(text, position) - ZERO)
        position += 1
    if _at(text, position) == POINT:
        points, position = 1, position + 1
        fraction = position
        while ZERO <= _at(text, position) < ZERO + 10:
            mantissa = mantissa * 10 + (_at(text, position) - ZERO)
            position += 1
        power = fraction - position
    digits, dropped = position - start - points, False
    if digits == 0:
        return MALFORMED, position, 0.0
    if digits > MOST_DIGITS:  # the mantissa above has overflown
        mantissa, power, dropped = _long_mantissa(text, start)
    if _at(text, position) | CASE_BIT == LETTER_E:
        status, position, exponent = _exponent(text, position + 1)
        if status == MALFORMED:
            return MALFORMED, position, 0.0
        power += exponent
    if _at(text, position) > SPACE and _at(text, position) != HASH:
        return MALFORMED, position, 0.0
    if power == 0 and mantissa <= EXACT_DOUBLE:
        status, value = EXACT, float(mantissa)
    else:
        status, value = _scaled(mantissa, power, dropped)
    return status, position, (-value if negative else value)


@compiled
def _parse_value(text: Bytes, position: int) -> tuple[int, int, float]:
    """Do what `parse_number` does, with a short way for the many values of one digit."""
    digit = _at(text, position) - ZERO
    if 0 <= digit < 10 and _at(text, position + 1) == SPACE:
        return EXACT, position + 1, float(digit)
    return parse_number(text, position)


@compiled
def _parse_features(
    text: Bytes, position: int, values: NDArray[np.float32], unsure: NDArray[np.int64], found: int
) -> tuple[bool, int, int, int]:
    """Parse index:value pairs up to a comment or the end of the line.

    Returns whether they are good, the position after them, the number of unsure values and the largest
    index, which may lie beyond `values`.
    """
    width, largest, stored = values.size, 0, 0
    values[:] = np.nan  # marks what is not set yet: no value that is stored is NaN
    while True:
        position = _skip_blanks(text, position)
        if _at(text, position) == NEWLINE or _at(text, position) == HASH:
            break
        index = 0
        while ZERO <= _at(text, position) < ZERO + 10 and index <= LARGEST_INDEX:
            index = index * 10 + (_at(text, position) - ZERO)
            position += 1
        if _at(text, position) != COLON or index == 0 or index > LARGEST_INDEX:
            return False, position, found, largest
        start = position + 1
        status, position, value = _parse_value(text, start)
        repeated = index <= largest and index <= width and not np.isnan(values[index - 1])
        if status == MALFORMED or repeated:
            return False, position, found, largest
        largest = max(largest, index)
        if index > width:
            continue
        values[index - 1] = value
        stored += 1
        if status == UNSURE:
            found = _remember(unsure, found, index - 1, start, position)
    if stored < width:
        for column in range(width):
            if np.isnan(values[column]):
                values[column] = 0.0
    return True, position, found, largest


@compiled
def _remember(unsure: NDArray[np.int64], found: int, column: int, start: int, stop: int) -> int:
    """Note where a number stands that Python must parse; count it even if there is no room."""
    if found < unsure.shape[0]:
        unsure[found, 1] = column
        unsure[found, 2] = start
        unsure[found, 3] = stop
    return found + 1


@compiled
def _parse_query(text: Bytes, position: int) -> tuple[bool, int, int]:
    """Parse a word as an int64; return whether it is one, where the word ends, and the number."""
    negative = _at(text, position) == MINUS
    if negative or _at(text, position) == PLUS:
        position += 1
    start, value, whole = position, 0, True
    # counted downwards: the lowest int64 has no positive counterpart
    while ZERO <= _at(text, position) < ZERO + 10:
        digit = _at(text, position) - ZERO
        if value < LOWEST_TENTH or (value == LOWEST_TENTH and digit > 8):
            whole = False
        value = value * 10 - digit
        position += 1
    whole &= position > start and (negative or value != LOWEST)
    while _at(text, position) > SPACE and _at(text, position) != HASH:
        whole = False
        position += 1
    return whole, position, (value if negative else -value)


@compiled
def _is_query_word(text: Bytes, position: int) -> bool:
    """Tell whether `qid:` and at least one character more stand here."""
    for character in (ord("q"), ord("i"), ord("d"), COLON):
        if _at(text, position) != character:
            return False
        position += 1
    return bool(_at(text, position) > SPACE and _at(text, position) != HASH)


@compiled
def _parse_row(
    text: Bytes,
    position: int,
    values: NDArray[np.float32],
    span: NDArray[np.int64],
    unsure: NDArray[np.int64],
    found: int,
    integer_queries: bool,
) -> tuple[int, int, float, int, int, int]:
    """Parse one row into `values`; return a reason to stop or DONE, the position of its comment or its end,
    the label, the query id, the number of unsure values and the largest index.
    """  # noqa: D205 - five results do not fit in one line
    start = position
    status, position, label = parse_number(text, start)
    if status == MALFORMED or label < 0.0:
        return BAD_LINE, position, label, 0, found, 0
    if status == UNSURE:
        found = _remember(unsure, found, RELEVANCE_COLUMN, start, position)
    position = _skip_blanks(text, position)
    if not _is_query_word(text, position):
        return BAD_LINE, position, label, 0, found, 0
    span[0] = position + 4
    whole, position, query = _parse_query(text, position + 4)
    span[1] = position
    if integer_queries and not whole:
        return TEXT_QUERY, position, label, query, found, 0
    good, position, found, largest = _parse_features(text, position, values, unsure, found)
    span[2] = position
    if not good:
        return BAD_LINE, position, label, query, found, largest
    if largest > values.size:
        return TOO_NARROW, position, label, query, found, largest
    if found > unsure.shape[0]:
        return TOO_MANY_UNSURE, position, label, query, found, largest
    return DONE, position, label, query, found, largest


@compiled
def parse_lines(
    text: Bytes,
    position: int,
    row: int,
    features: NDArray[np.float32],
    relevance: NDArray[np.float32],
    query: NDArray[np.int64],
    spans: NDArray[np.int64],
    unsure: NDArray[np.int64],
    integer_queries: bool,
) -> tuple[int, int, int, int, int, int]:
    """Parse lines from `position` to the end of the text into the rows from `row` on.

    `spans` gets, for each of these rows, where its query id and its comment start and stop. `unsure` gets
    row, column, start, stop and line of the numbers left to Python. Returns the reason for stopping, the
    position of the first line not parsed, the next row, the lines parsed, the numbers left to Python and
    the largest feature index.
    """
    first_row, lines, found, largest = row, 0, 0, 0
    while position < text.size:
        line_start = position
        position = _skip_blanks(text, position)
        holds_row = _at(text, position) != NEWLINE and _at(text, position) != HASH
        if holds_row:
            span, known = spans[row - first_row], found
            reason, position, label, number, found, index = _parse_row(
                text, position, features[row], span, unsure, found, integer_queries
            )
            if reason != DONE:
                return reason, line_start, row, lines, known, max(largest, index)
            unsure[known:found, 0] = row
            unsure[known:found, 4] = lines
            relevance[row], query[row] = label, number
            largest = max(largest, index)
            row += 1
        while _at(text, position) != NEWLINE:
            position += 1
        if holds_row:
            span[3] = position
        position += 1
        lines += 1
    return DONE, position, row, lines, found, largest
