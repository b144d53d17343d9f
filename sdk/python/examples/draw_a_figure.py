"""Runs code with persistent variables, prints its output as it arrives, and reads the figure that it draws.

    python3 examples/draw_a_figure.py

An object with a notebook representation such as ``_repr_svg_`` becomes a result. If the image contains
matplotlib, its figures become results with ``png``.
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


def print_output(event: CodeEvent) -> None:
    """Print output as it arrives."""
    if event.type == "stdout":
        print(event.text, end="")


def main() -> None:
    """Run the example."""
    with Isolet() as client, client.create_sandbox() as sandbox:
        context = sandbox.create_context(language="python", timeout="1m")
        context.run(DATA, on_event=print_output)
        figure = context.run(FIGURE)
        svg = figure.results[0].svg or ""
        print("a figure with", svg.count("<rect"), "bars")
        failed = context.run("1 / 0")
        print("error of the code:", failed.error.name if failed.error else "no error")


if __name__ == "__main__":
    main()
