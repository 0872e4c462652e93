"""The compiled loop that turns plain lines of LETOR text into arrays.

In a plain line indices ascend and numbers have up to 18 digits. Any other line is left to Python, which
parses it or says what is wrong with it. The text must end in a newline: inside a line no loop then needs to
ask whether the text is over.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fultr.compiled import compiled

Bytes = NDArray[np.uint8]

START, QUERY, QUERY_END, FIRST_INDEX, FEATURES_END, END = 0, 1, 2, 3, 4, 5
"""Where a line, its query id and its features start or end; and the index of its first feature."""

LARGEST_INDEX = 1_000_000
NEWLINE, SPACE, HASH, PLUS, MINUS, POINT, ZERO, COLON = 10, 32, 35, 43, 45, 46, 48, 58
LETTER_E, CASE_BIT = ord("e"), 32

MOST_DIGITS = 18  # so many always fit in an int64
EXACT_DOUBLE = 2**53  # integers up to here are doubles
EXACT_POWER = 22  # powers of ten up to here are doubles
LARGEST_POWER = 64
POWERS_OF_TEN = np.array([float(f"1e{power}") for power in range(LARGEST_POWER + 1)])
DOUBT = 2.0**-50
"""More than the relative error of a product of rounded doubles, and of the double nearest to the text."""

FLOAT32_LIMIT = float.fromhex("0x1.ffffffp+127")
"""The smallest double that is beyond float32 when rounded."""


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
def _digits(text: Bytes, position: int, value: int) -> tuple[int, int]:
    """Return the position after some digits, and the value that they continue."""
    while ZERO <= _at(text, position) < ZERO + 10:
        value = value * 10 + (_at(text, position) - ZERO)
        position += 1
    return position, value


@compiled
def parse_number(text: Bytes, position: int) -> tuple[bool, int, float]:
    """Parse a decimal number that ends a word; return whether that is sure, where it ends, and its value.

    The value is then the float32 nearest to what Python's `float` makes of the text.
    """
    negative = _at(text, position) == MINUS
    if negative or _at(text, position) == PLUS:
        position += 1
    start = position
    position, mantissa = _digits(text, position, 0)
    digits, power = position - start, 0
    if _at(text, position) == POINT:
        first = fraction = position + 1
        while mantissa == 0 and _at(text, first) == ZERO:  # zeros before all digits are none of the 18
            first += 1
        position, mantissa = _digits(text, first, mantissa)
        digits, power = digits + position - first, fraction - position
    good = 0 < digits <= MOST_DIGITS
    if _at(text, position) | CASE_BIT == LETTER_E:
        sign = -1 if _at(text, position + 1) == MINUS else 1
        start = position + 1 + (sign < 0 or _at(text, position + 1) == PLUS)
        position, exponent = _digits(text, start, 0)
        good &= 0 < position - start <= MOST_DIGITS
        power += sign * exponent
    if (
        not good
        or abs(power) > LARGEST_POWER
        or not (_at(text, position) <= SPACE or _at(text, position) == HASH)
    ):
        return False, position, 0.0
    value = mantissa / POWERS_OF_TEN[-power] if power < 0 else mantissa * POWERS_OF_TEN[power]
    # one rounding of two exact doubles is right; with more than one, see whether the doubt reaches float32
    rounded_once = mantissa <= EXACT_DOUBLE and abs(power) <= EXACT_POWER
    sure = rounded_once or np.float32(value * (1.0 - DOUBT)) == np.float32(value * (1.0 + DOUBT))
    return sure and value < FLOAT32_LIMIT, position, (-value if negative else value)


@compiled
def _parse_features(
    text: Bytes, position: int, values: NDArray[np.float32], span: NDArray[np.int64], first_index: int
) -> tuple[bool, int]:
    """Parse index:value pairs up to a comment or the end of the line; return whether all were plain."""
    previous = -1
    span[FIRST_INDEX] = LARGEST_INDEX
    while True:
        position = _skip_blanks(text, position)
        if _at(text, position) == NEWLINE or _at(text, position) == HASH:
            return True, position
        start = position
        position, index = _digits(text, start, 0)
        column = index - first_index
        if not (0 < position - start < MOST_DIGITS and previous < column < values.size):
            return False, position
        if _at(text, position) != COLON:
            return False, position
        good, position, value = parse_number(text, position + 1)
        if not good:
            return False, position
        values[column] = value
        span[FIRST_INDEX] = min(index, span[FIRST_INDEX])
        previous = column


@compiled
def _parse_line(
    text: Bytes, start: int, values: NDArray[np.float32], span: NDArray[np.int64], first_index: int
) -> tuple[bool, int, float]:
    """Parse a line; return whether it is plain, a position in it, and its label."""
    good, position, label = parse_number(text, _skip_blanks(text, start))
    if not good or label < 0.0:
        return False, position, 0.0
    position = _skip_blanks(text, position)
    span[QUERY] = span[QUERY_END] = position
    if _at(text, position) == ord("q"):
        for character in (ord("q"), ord("i"), ord("d"), COLON):
            if _at(text, position) != character:
                return False, position, 0.0
            position += 1
        span[QUERY] = position
        while _at(text, position) > SPACE and _at(text, position) != HASH:
            position += 1
        span[QUERY_END] = position
    good, position = _parse_features(text, position, values, span, first_index)
    return good, position, label


@compiled
def parse_lines(
    text: Bytes,
    features: NDArray[np.float32],
    labels: NDArray[np.float32],
    spans: NDArray[np.int64],
    first_index: int,
) -> NDArray[np.bool_]:
    """Parse the lines of a text into a row each; return which of them were plain.

    The first column of `features` has the index `first_index`. A row of `spans` says where the parts of its
    line stand, by the numbers above; of a line that is not plain, only where it starts and ends.
    """
    plain = np.zeros(labels.size, dtype=np.bool_)
    position = 0
    for row in range(labels.size):
        span = spans[row]
        span[START] = position
        plain[row], position, labels[row] = _parse_line(text, position, features[row], span, first_index)
        span[FEATURES_END] = position
        while _at(text, position) != NEWLINE:
            position += 1
        span[END] = position
        position += 1
    return plain
