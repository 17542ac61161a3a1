#!/usr/bin/env python3
"""Makes the drawings of the pages, in light and dark: `docs/drawings/draw.py` writes the SVG files
beside itself, and `docs/drawings/draw.py --check` fails if a file is not what it would write.

Each drawing is one file. Its style has a rule for `prefers-color-scheme: dark`, and it paints its
own background, so that it can be read on any page. Widths allow for DejaVu Sans, which is the
widest of the usual fonts. Only the standard library is needed.
"""

import sys
from html import escape
from pathlib import Path

WIDTH = 700
FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif'

# Class: (fill, stroke) in light and in dark. `None`: not painted.
COLOURS = {
    "page": (("#ffffff", "#dfe3ea"), ("#171d27", "#2a3240")),
    "text": (("#151a24", None), ("#e8ecf3", None)),
    "soft": (("#505a6b", None), ("#a5b0c2", None)),
    "line": ((None, "#505a6b"), (None, "#a5b0c2")),
    "head": (("#505a6b", None), ("#a5b0c2", None)),
    "grid": ((None, "#b6bfcd"), (None, "#47536a")),
    "leads": (("#1d4ed8", "#1d4ed8"), ("#8fb0ff", "#8fb0ff")),
    "on-leads": (("#ffffff", None), ("#0d1424", None)),
    "copy": (("#e3ebff", "#1d4ed8"), ("#1e2c4d", "#8fb0ff")),
    "filling": (("#ffffff", "#1d4ed8"), ("#171d27", "#8fb0ff")),
    "waits": (("#fdeecf", "#7d4b00"), ("#3a2a0c", "#f2c168")),
    "on-waits": (("#7d4b00", None), ("#f2c168", None)),
    "cut": ((None, "#a81c1c"), (None, "#ff9a92")),
    "on-gone": (("#a81c1c", None), ("#ff9a92", None)),
    "good": (("#dff3e6", "#12693a"), ("#12321f", "#7bdba0")),
    "on-good": (("#12693a", None), ("#7bdba0", None)),
    "plain": (("#f5f6f9", "#b6bfcd"), ("#0f131a", "#47536a")),
}
# The class of a text that lies on a shape of this class.
TEXT_ON = {"leads": "on-leads", "waits": "on-waits", "good": "on-good"}


def rules(theme):
    """The colours of a theme (0: light, 1: dark) as rules of CSS."""
    lines = []
    for name, themes in COLOURS.items():
        fill, stroke = themes[theme]
        lines.append(f".{name}{{fill:{fill or 'none'};stroke:{stroke or 'none'}}}")
    return "".join(lines)


class Drawing:
    """One SVG file: shapes are added from the back to the front."""

    def __init__(self, title, description, height):
        self.height = height
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
            f'width="{WIDTH}" height="{height}" role="img" aria-labelledby="t d">',
            f'<title id="t">{escape(title)}</title>',
            f'<desc id="d">{escape(description)}</desc>',
            f"<style>text{{font:14px {FONT}}}.small{{font-size:12.5px}}.bold{{font-weight:600}}"
            f"line,path,rect{{stroke-width:1.5}}.dashed{{stroke-dasharray:5 4}}"
            ".cut{stroke-width:2.5}"
            f"{rules(0)}@media (prefers-color-scheme:dark){{{rules(1)}}}</style>",
        ]
        self.box(0.75, 0.75, WIDTH - 1.5, height - 1.5, "page", radius=10)

    def box(self, x, y, width, height, kind, *lines, radius=6, dashed=False):
        """A rectangle with lines of text in its middle."""
        names = f"{kind} dashed" if dashed else kind
        self.parts.append(
            f'<rect class="{names}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" '
            f'rx="{radius}"/>'
        )
        on = TEXT_ON.get(kind, "text")
        first = y + height / 2 + 5 - 8.5 * (len(lines) - 1)
        for number, line in enumerate(lines):
            self.text(x + width / 2, first + 17 * number, line, on, small=True, anchor="middle")

    def text(self, x, y, words, kind="text", small=False, bold=False, anchor="start"):
        names = " ".join([kind] + ["small"] * small + ["bold"] * bold)
        self.parts.append(
            f'<text class="{names}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">'
            f"{escape(words)}</text>"
        )

    def say(self, y, *lines):
        """Sentences below a drawing."""
        for number, line in enumerate(lines):
            self.text(18, y + 19 * number, line, small=True)

    def line(self, x1, y1, x2, y2, kind="grid", dashed=False):
        names = f"{kind} dashed" if dashed else kind
        self.parts.append(
            f'<line class="{names}" x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"/>'
        )

    def arrow(self, x1, x2, y, words=None):
        """A horizontal arrow with words above its middle."""
        back = 8 if x2 > x1 else -8
        self.line(x1, y, x2 - back / 2, y, "line")
        self.parts.append(f'<path class="head" d="M{x2:g} {y:g}l{-back} -4.5v9z"/>')
        if words:
            self.text((x1 + x2) / 2, y - 7, words, small=True, anchor="middle")

    def cross(self, x, y):
        """Marks a connection that is cut, or a process that died."""
        self.parts.append(
            f'<path class="cut" d="M{x - 7:g} {y - 7:g}l14 14m0 -14l-14 14"/>'
        )

    def svg(self):
        return "\n".join([*self.parts, "</svg>"]) + "\n"


def write():
    drawing = Drawing(
        "How a write goes",
        "A client sends SET to any node. That node forwards it to the primary. The primary writes "
        "it and sends the entry to the copy. When the copy has acknowledged, the answer goes back "
        "to the client.",
        372,
    )
    client, node, primary, copy = 80, 250, 430, 610
    for x, kind, lines in (
        (client, "plain", ("client",)),
        (node, "plain", ("n1", "any node")),
        (primary, "leads", ("n2", "leads the key")),
        (copy, "copy", ("n3", "has a copy")),
    ):
        drawing.box(x - 62, 18, 124, 46, kind, *lines)
        drawing.line(x, 64, x, 354, dashed=True)
    drawing.arrow(client, node, 98, "SET user:42")
    drawing.arrow(node, primary, 128, "forwarded")
    drawing.box(primary - 72, 140, 144, 44, "leads", "executes it, and", "appends it to its log")
    drawing.arrow(primary, copy, 210, "entry of the log")
    drawing.box(copy - 62, 222, 124, 28, "copy", "applies it")
    drawing.arrow(copy, primary, 274, "ack")
    drawing.box(primary - 72, 286, 144, 44, "good", "every copy has it,", "and n2 still leads")
    drawing.arrow(primary - 72, node, 308, "OK")
    drawing.arrow(node, client, 336, "OK")
    return drawing


def death():
    drawing = Drawing(
        "What happens at a death",
        "n1, which leads the keys, is killed. Commands wait. The others notice it, agree on a "
        "table without n1, and n2, which had a copy, leads and answers. Then n3 gets a copy, and "
        "the data is safe against the next death.",
        346,
    )
    left, killed, noticed, opened, safe, right = 96, 206, 332, 462, 606, 682
    for x, above, words in (
        (killed, "0 s", "kill -9"),
        (noticed, "0.25 to 0.45 s", "noticed"),
        (opened, "0.45 s (median)", "served again"),
        (safe, "", "safe again"),
    ):
        drawing.text(x, 24, words, bold=True, small=True, anchor="middle")
        drawing.text(x, 41, above, "soft", small=True, anchor="middle")
        drawing.line(x, 50, x, 284, dashed=True)
    for y, name in ((60, "clients"), (118, "n1"), (176, "n2"), (234, "n3")):
        drawing.text(18, y + 26, name, bold=True)
    drawing.box(left, 60, killed - left, 42, "good", "answered")
    drawing.box(killed, 60, opened - killed, 42, "waits", "commands on its keys wait")
    drawing.box(opened, 60, right - opened, 42, "good", "answered")
    drawing.box(left, 118, killed - left, 42, "leads", "leads")
    drawing.cross(killed, 139)
    drawing.text(killed + 16, 144, "dead", "on-gone", small=True)
    drawing.box(left, 176, noticed - left, 42, "copy", "has every acknowledged write")
    drawing.box(noticed, 176, opened - noticed, 42, "waits", "aligns the copies,", "waits")
    drawing.box(opened, 176, right - opened, 42, "leads", "leads")
    drawing.box(opened, 234, safe - opened, 42, "filling", "gets a copy", dashed=True)
    drawing.box(safe, 234, right - safe, 42, "copy", "copy")
    drawing.say(
        308,
        "Noticed: a majority of the voters agrees that n2 leads.",
        "Then n2 waits until n1, if it were alive, could answer no read any more.",
    )
    return drawing


def rows(title, description, heads, steps, note=None):
    """A drawing of steps: members side by side, time downwards, and what each step is."""
    row, top = 58, 62
    drawing = Drawing(title, description, top + row * len(steps) + (30 if note else 6))
    width, gap, left = 112, 12, 40
    for number, head in enumerate(heads):
        middle = left + number * (width + gap) + width / 2
        drawing.text(middle, 40, head, bold=True, anchor="middle")
    told = left + len(heads) * (width + gap) + 8
    for number, (cells, words) in enumerate(steps):
        y = top + row * number
        drawing.text(18, y + 27, str(number + 1), "soft", bold=True)
        for place, cell in enumerate(cells):
            x = left + place * (width + gap)
            parts = cell if cell and isinstance(cell[0], tuple) else (cell,)
            wide = (width - 4 * (len(parts) - 1)) / len(parts)
            for number_of_part, part in enumerate(parts):
                at = x + (wide + 4) * number_of_part
                if part:
                    kind, *lines = part
                    drawing.box(at, y, wide, 44, kind, *lines, dashed=kind == "filling")
                else:
                    drawing.line(at + wide / 2 - 8, y + 22, at + wide / 2 + 8, y + 22)
        first = y + 27 - 8.5 * (len(words) - 1)
        for place, line in enumerate(words):
            drawing.text(told, first + 17 * place, line, small=True)
    if note:
        drawing.text(18, top + row * len(steps) + 14, note, "soft", small=True)
    return drawing


def move():
    leads, copy = ("leads", "leads"), ("copy", "copy")
    return rows(
        "What a move is",
        "A partition moves from n1 to n3. n3 is filled while n1 serves, is compared, counts as a "
        "copy, and then leads. n1 drops its copy a minute later.",
        ("n1", "n2", "n3"),
        (
            ((leads, copy, None), ("The plan: n3 shall lead this", "partition in place of n1.")),
            (
                (leads, copy, ("filling", "is filled")),
                ("n1 sends what it has, and each new", "write, as fast as clients allow."),
            ),
            (
                (leads, copy, ("copy", "copy")),
                ("Checksums are equal: the copy", "counts, and writes wait for it, too."),
            ),
            (
                (("copy", "copy"), copy, leads),
                ("n3 leads. n1 forwards commands", "that still arrive at it."),
            ),
            ((None, copy, leads), ("n1 counts no more, and drops its", "copy a minute later.")),
        ),
        "If n1, n2 or n3 dies at any step, the copies that count have every acknowledged write.",
    )


def split():
    return rows(
        "What a split is",
        "A partition with the keys a to z is split. Its writes wait for some 20 ms until all "
        "copies are equal. Then two new partitions serve at once, and take their keys from the "
        "former one.",
        ("n1", "n2"),
        (
            (
                (("leads", "a–z", "leads"), ("copy", "a–z", "copy")),
                ("A range of keys has grown beyond 64 MiB, or is busy.",),
            ),
            (
                (("waits", "a–z", "writes wait"), ("copy", "a–z", "copy")),
                (
                    "Its writes wait, some 20 ms, until each copy has",
                    "confirmed that it has everything.",
                ),
            ),
            (
                (
                    (("leads", "a–m", "leads"), ("leads", "n–z", "leads")),
                    (("copy", "a–m", "copy"), ("copy", "n–z", "copy")),
                ),
                (
                    "Two partitions take its place, and serve at once.",
                    "Each may now move by itself.",
                ),
            ),
        ),
        "The two take their keys from the former partition: first those that are asked for, "
        "then the rest.",
    )


def cut():
    drawing = Drawing(
        "What happens at a cut",
        "A cut separates n1 from n2 and n3. n1 has no majority: its lease ends, and it answers "
        "nothing. n2 and n3 are a majority, and go on. After the cut, n1 joins again.",
        246,
    )
    drawing.box(18, 46, 236, 132, "plain")
    drawing.box(320, 46, 362, 132, "plain")
    drawing.text(136, 32, "one of three voters", bold=True, small=True, anchor="middle")
    drawing.text(501, 32, "two of three voters: a majority", bold=True, small=True, anchor="middle")
    drawing.box(80, 62, 112, 44, "waits", "n1", "led the key")
    drawing.box(342, 62, 150, 44, "leads", "n2 had a copy,", "leads the key now")
    drawing.box(510, 62, 150, 44, "copy", "n3", "gets a copy")
    drawing.line(287, 40, 287, 184, "line", dashed=True)
    drawing.cross(287, 84)
    drawing.box(34, 124, 204, 40, "waits", "its lease ends after 0.5 s:", "it answers nothing")
    went_on = ("after a second: serves and acknowledges,", "has all that n1 acknowledged")
    drawing.box(342, 124, 318, 40, "good", *went_on)
    drawing.say(
        208,
        "A key never has two answers. At n1, commands fail after 5 s, and the error says",
        "whether anything happened. When the cut ends, n1 joins again as a new member.",
    )
    return drawing


DRAWINGS = {"write": write, "death": death, "move": move, "split": split, "cut": cut}


def main():
    here, wrong = Path(__file__).resolve().parent, []
    for name, draw in DRAWINGS.items():
        path, svg = here / f"{name}.svg", draw().svg()
        if sys.argv[1:] == ["--check"]:
            if not path.exists() or path.read_text(encoding="utf-8") != svg:
                wrong.append(path.name)
        else:
            path.write_text(svg, encoding="utf-8")
    if wrong:
        sys.exit(f"run docs/drawings/draw.py: it would write other text into {', '.join(wrong)}")


if __name__ == "__main__":
    main()
