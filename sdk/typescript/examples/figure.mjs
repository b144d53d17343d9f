/**
 * Runs code with persistent variables, prints its output as it arrives, and reads the figure that it draws.
 * An object with a notebook representation such as `_repr_svg_` becomes a result. If the image contains
 * matplotlib, its figures become results with `png`.
 *
 * Set ISOLET_URL and ISOLET_API_KEY, then run: `node examples/figure.mjs`.
 */

import { getSandbox, Isolet } from "@isolet/sdk";

const figure = `
class Bars:
    def _repr_svg_(self):
        bars = "".join(f'<rect x="{20 * at}" width="16" height="{high}"/>' for at, high in enumerate(heights))
        return f'<svg xmlns="http://www.w3.org/2000/svg" width="100" height="100">{bars}</svg>'
Bars()
`;

const sandbox = getSandbox(new Isolet(), `example-${Date.now()}`);
try {
  const context = await sandbox.createCodeContext({ language: "python" });
  await sandbox.runCode("heights = [30, 50, 20]\nprint(sum(heights), 'in all')", {
    context,
    onStdout: ({ text }) => process.stdout.write(text),
  });
  const { results } = await sandbox.runCode(figure, { context });
  console.log("a figure with", results[0].svg.split("<rect").length - 1, "bars");
  const { error } = await sandbox.runCode("1 / 0", { context });
  console.log("error of the code:", error.name);
} finally {
  await sandbox.destroy();
}
