"""Prints node/engine/src/value/extended/sums.txt: sums as a redis-server on x86-64 computes them.

    python3 tests/scripts/incrbyfloat.py PORT [COUNT]   # redis-server --port PORT --save ''

Each line has two numbers and their sum, or `error`. The seed is fixed, so the lines are the same
each time.
"""

import random
import sys

import redis

KNOWN = [
    ("90071992547409931", "-90071992547409930"),
    ("0.1", "0.2"),
    ("3.0", "1.0000000000000005"),
    ("1e20", "1"),
    ("-1", "1"),
    ("-1e-30", "0"),
    ("0", "-1e-30"),
    ("0.5", "6e-18"),
    ("10.6", "-5e-20"),
    ("9223372036854775807", "1"),
    ("18446744073709551615", "1"),
    ("18446744073709551617", "0"),
    ("1e4932", "0"),
    ("1e4932", "1e4932"),
    ("1.2e4932", "0"),
    ("-1e4933", "0"),
    ("3.6e-4951", "0"),
    ("1e-4951", "0"),
    ("1e-99999999999999999999", "0"),
    ("0e99999999999999999999", "1"),
    ("1e99999999999999999999", "1"),
    ("inf", "1"),
    ("-Infinity", "1"),
    ("nan", "1"),
    ("0x10", "0x1.8p1"),
    ("0x", "1"),
    ("0x.8", "1"),
    ("1e", "1"),
    ("1e+", "1"),
    (".", "1"),
    (".5", "5."),
    ("+5", "-+5"),
    ("1_0", "1"),
    ("", "1"),
]


def number(random):
    """A number of some kind, as text."""
    digits = random.choice([1, 2, 5, 10, 17, 19, 20, 25])
    whole = str(random.randrange(10**digits))
    sign = random.choice(["", "", "-", "+"])
    kind = random.randrange(7)
    if kind == 0:
        return sign + whole
    if kind == 1:
        return f"{sign}{whole}.{random.randrange(10**digits)}"
    if kind == 2:
        return f"{sign}{whole[0]}.{whole[1:]}e{random.randrange(-30, 30)}"
    if kind == 3:
        return f"{sign}{whole}E{random.randrange(-60, 90)}"
    if kind == 4:
        return repr(random.uniform(-1e6, 1e6))
    if kind == 5:
        return f"{sign}0.{'0' * random.randrange(20)}{whole}"
    return f"{sign}{2 ** random.randrange(64, 70) + random.randrange(-3, 4)}"


def main():
    client = redis.Redis(port=int(sys.argv[1]), decode_responses=True)
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 400
    rng = random.Random(2026)
    cases = KNOWN + [(number(rng), number(rng)) for _ in range(count)]
    head = "# Printed by tests/scripts/incrbyfloat.py: two numbers and their sum"
    print(f"{head}, by redis-server on x86-64.")
    for a, b in cases:
        client.set("sum", a)
        try:
            client.execute_command("INCRBYFLOAT", "sum", b)
            # The client would convert the reply to a double.
            total = client.get("sum")
        except redis.ResponseError:
            total = "error"
        if a:
            print(a, b, total)


if __name__ == "__main__":
    main()
