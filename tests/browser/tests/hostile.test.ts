/** Malicious output of programs, and what it must not do to a page or to the shell (I12). */

import { expect, test } from "../kit/test.js";

/** `cat -v` shows text that a terminal query left in the shell's input. */
const NOTHING = "cat -v\n";

// Promises: N7.
test("the clipboard is neither written nor read", async ({ lab, context }) => {
  await context.grantPermissions(["clipboard-read", "clipboard-write"], { origin: lab.pages.origin });
  await lab.page.evaluate(() => navigator.clipboard.writeText("mine"));
  await lab.open("one");
  await lab.type("one", "printf '\\e]52;c;%s\\a\\e]52;c;?\\a' $(printf theirs | base64); echo do''ne\n");
  await lab.shows("one", /done$/m);
  expect(await lab.page.evaluate(() => navigator.clipboard.readText())).toBe("mine");
  expect(await lab.in(({ kit }) => kit.shown.one.typed.join(""))).not.toContain("\x1b");
});

// Promises: N7.
test("a link that is a script does nothing", async ({ lab }) => {
  await lab.open("one");
  const asked: string[] = [];
  lab.page.on("dialog", (dialog) => {
    asked.push(dialog.message());
    void dialog.accept();
  });
  await lab.type("one", "clear; printf '\\e]8;;javascript:window.ran=1\\e\\\\%s\\e]8;;\\e\\\\\\n' $(printf 'x%.0s' {1..60})\n");
  await lab.shows("one", /x{60}/);
  const box = (await lab.page.locator("#one .xterm-screen").boundingBox())!;
  for (let y = 5; y < 60; y += 5) {
    await lab.page.mouse.move(box.x + 50, box.y + y);
    await lab.page.mouse.click(box.x + 50, box.y + y);
  }
  expect(asked).toEqual([]);
  expect(await lab.page.evaluate(() => (window as { ran?: number }).ran)).toBeUndefined();
  expect(lab.page.context().pages()).toHaveLength(1);
});

// Promises: N7.
test("a title is text, and is not sent back to the shell", async ({ lab }) => {
  await lab.open("one");
  await lab.type("one", "printf '\\e]0;<img src=x onerror=ran=1>\\nrm -rf /\\a\\e[21t\\e[20t'; echo do''ne\n");
  await lab.shows("one", /done$/m);
  await lab.type("one", `echo read''y; ${NOTHING}`);
  // What is typed while Bash still edits its line reaches `cat` with another end of the line.
  await lab.shows("one", /^ready$/m);
  await lab.type("one", "typed\n");
  await lab.shows("one", /^typed\ntyped$/m);
  expect(await lab.in(({ kit }) => kit.shown.one.typed.join(""))).not.toContain("\x1b");
});

// Promises: N7.
test("a megabyte of OSC, and sequences without an end, leave a terminal that works", async ({ lab }) => {
  await lab.open("one");
  await lab.type("one", "printf '\\e]0;'; head -c 1048576 /dev/zero | tr '\\0' a; printf '\\a'; echo who''le\n");
  await lab.shows("one", /whole$/m);
  await lab.type("one", "printf '\\e]8;;http://'; head -c 1048576 /dev/zero | tr '\\0' a; printf '\\e\\\\x\\e]8;;\\e\\\\'; echo link''ed\n");
  await lab.shows("one", /linked$/m);
  await lab.open("new");
  await lab.settled(["one", "new"]);
  await lab.type("one", "printf '\\eP+q'; printf '\\030'; printf '\\e[38;5;9;'; printf '\\030\\n'; echo ali''ve\n");
  await lab.shows("one", /alive$/m);
  await lab.shows("new", /alive$/m);
});

// Promises: N7.
test("a count of thousands of millions does not hold the page", async ({ lab }) => {
  await lab.open("one");
  // Each of these alone takes xterm.js minutes.
  const counted = ["@", "L", "M", "P", "S", "T", "b", "I", "Z", "'}", "'~", " @", " A"];
  const all = counted.map((final) => `x\\e[4000000000${final}`).join("");
  await lab.type("one", `printf "${all}"; echo; echo ali''ve\n`);
  await lab.shows("one", /alive$/m);
});

// Promises: N2.
test("a sequence that arrives in two parts is complete for a client that attaches in between", async ({ lab }) => {
  await lab.open("stayed");
  await lab.type("stayed", "clear; stty -echo; printf '\\e[38;5'; read; printf ';9mred \\xe6\\xbc'; read; printf '\\xa2\\e[0m\\n'; stty echo\n");
  await lab.settled(["stayed"]);
  await lab.open("first");
  await lab.type("stayed", "\n");
  await lab.same("stayed", "first");
  await lab.open("second");
  await lab.type("stayed", "\n");
  await lab.shows("stayed", "red 漢");
  await lab.same("stayed", "first");
  await lab.same("stayed", "second");
});

// Promises: N7.
test("a paste cannot end itself", async ({ lab }) => {
  await lab.open("one");
  await lab.settled(["one"]);
  expect(await lab.in(({ kit }) => kit.shown.one.xterm.modes.bracketedPasteMode)).toBe(true);
  await lab.in(({ kit }) =>
    kit.shown.one.xterm.paste("echo a\x1b[201~\rtouch /tmp/ran\r\x1b[20\x1b[201~1~\rtouch /tmp/ran\r"),
  );
  await lab.settled(["one"]);
  expect(await lab.exec("ls /tmp")).not.toContain("ran");
  await lab.press("one", "Control+c");
  await lab.type("one", "echo fine\n");
  await lab.shows("one", /^fine$/m);
});

// Promises: N7.
test("a client that reconnects does not answer earlier queries", async ({ lab }) => {
  const proxy = await lab.proxy();
  await lab.open("stayed");
  await lab.open("returned", { proxy });
  const questions = "\\e[6n\\e[c\\e[>c\\e[5n\\e[?6n\\e]10;?\\a\\e]11;?\\a\\e]4;1;?\\a\\e[?1004$p\\eP$qm\\e\\\\\\e[18t\\e[14t";
  await lab.type("stayed", `stty -echo; printf '${questions}'; read -t 20 -n 1 -d '' got; sleep 1; read -t 1 -n 10000 -d '' got; stty echo; echo as''ked\n`);
  await lab.shows("returned", /asked$/m);
  await lab.type("stayed", NOTHING);
  proxy.cut();
  await lab.state("returned", "connected");
  await lab.open("new");
  await lab.settled(["stayed", "returned", "new"]);
  await lab.type("stayed", "nothing else\n");
  await lab.shows("stayed", /^nothing else\nnothing else$/m);
});

// Promises: N7.
test("a terminal query is answered once", async ({ lab }) => {
  await lab.open("one");
  await lab.open("two");
  await lab.open("viewer", { mode: "view" });
  await lab.type("one", "clear; stty -echo; printf '\\e[c'; IFS= read -t 20 -s -n 1 -d '' first; IFS= read -t 2 -s -n 1000 -d '' got; stty echo; printf '%q\\n' \"$first$got\" | cat -v\n");
  await lab.shows("one", /\$'\\E\[\?[\d;]+c'$/m);
});

// Promises: N7.
test("focus is reported when a program asks for it, and a replay reports nothing", async ({ lab }) => {
  await lab.open("one");
  await lab.type("one", "printf '\\e[?1004h'; cat -v\n");
  await lab.settled(["one"]);
  const before = await lab.in(({ kit }) => kit.screen("one"));
  await lab.open("new");
  await lab.settled(["one", "new"]);
  expect(await lab.in(({ kit }) => kit.screen("one"))).toBe(before);
});
