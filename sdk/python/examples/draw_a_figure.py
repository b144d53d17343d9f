"""Runs code whose variables stay, shows its output as it comes, and keeps the figure that it draws.

python3 examples/draw_a_figure.py

An object that can draw itself is a result as a notebook shows it; with matplotlib in the image a
figure is one too, as ``png``.
"""

from __future__ import annotations

from isolet import CodeEvent, Isolet

DATA = """\
import random
random.seed(1)
heights = []
for day in range(5):
    heights.append(random.randint(20, 90))
    print("day", day, heights[-1])
"""
FIGURE = """\
class Bars:
    def _repr_svg_(self):
        bars = "".join(
            f'<rect x="{20 * at}" y="{100 - high}" width="16" height="{high}"/>'
            for at, high in enumerate(heights)
        )
        return f'<svg xmlns="http://www.w3.org/2000/svg" width="100" height="100">{bars}</svg>'

Bars()
"""


def heard(event: CodeEvent) -> None:
    """Shows what is printed, as it is printed."""
    if event.type == "stdout":
        print(event.text, end="")


def main() -> None:
    """Runs it."""
    with Isolet() as client, client.create_sandbox() as sandbox:
        context = sandbox.create_context(language="python", timeout="1m")
        context.run(DATA, on_event=heard)
        figure = context.run(FIGURE)
        svg = figure.results[0].svg or ""
        print("a figure with", svg.count("<rect"), "bars")
        failed = context.run("1 / 0")
        print("told as it is:", failed.error.name if failed.error else "no error")


if __name__ == "__main__":
    main()
