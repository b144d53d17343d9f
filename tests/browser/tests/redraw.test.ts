/**
 * Full-screen programs after a cut in the middle of their output: a reconnected client must show the same as
 * one that stayed connected, cell by cell.
 */

import { expect, test } from "../kit/test.js";
import type { Lab } from "../kit/lab.js";
import type { Proxy } from "../kit/proxy.js";

const SIZE = { cols: 100, rows: 30 };

/** One terminal that stays connected, and one behind a proxy. */
async function two(lab: Lab): Promise<Proxy> {
  const proxy = await lab.proxy();
  await lab.open("stayed", SIZE);
  await lab.open("returned", { ...SIZE, proxy });
  return proxy;
}

/**
 * Cut the connection within the output of `draw`, run `whileCut`, reconnect and compare. A new client is
 * compared too.
 */
async function cut(
  lab: Lab,
  proxy: Proxy,
  draw: () => Promise<void>,
  whileCut: () => Promise<void> = async () => undefined,
): Promise<void> {
  proxy.cutAfter(100 + Math.floor(Math.random() * 700), true);
  await draw();
  await expect.poll(() => proxy.open, { message: "cut while it draws" }).toBe(0);
  await whileCut();
  await lab.settled(["stayed"]);
  proxy.go();
  await lab.state("returned", "connected");
  await lab.same("stayed", "returned");
  await lab.open("new", SIZE);
  await lab.same("stayed", "new");
  await lab.in(({ kit }) => kit.close("new"));
}

// Promises: N2.
test("vim is redrawn", async ({ lab }) => {
  await lab.exec("cp /usr/include/stdio.h /workspace/a.c; ls -R /usr/share/vim > /workspace/list.txt");
  const proxy = await two(lab);
  await lab.type("stayed", "vim -u NONE --cmd 'syntax on' -c 'set number hlsearch mouse=a' /workspace/a.c\n");
  await lab.shows("stayed", "Copyright");
  await cut(lab, proxy, () => lab.type("stayed", "/FILE\nnnn"));
  await cut(
    lab,
    proxy,
    async () => {
      await lab.press("stayed", "Control+f");
      await lab.press("stayed", "Control+f");
    },
    async () => {
      await lab.type("stayed", ":split /workspace/list.txt\n");
      await lab.type("stayed", "ggVGjj");
      await lab.press("stayed", "Escape");
      await lab.type("stayed", "ofünf → 漢字 ✓");
    },
  );
  // Cut while typing. Leaving vim restores the shell's primary screen.
  await cut(lab, proxy, async () => {
    await lab.press("stayed", "Escape");
    await lab.type("stayed", ":qa!\n");
    await lab.type("stayed", "ls --color=always -la /usr/bin | head -50\n");
  });
});

// Promises: N2.
test("htop is redrawn", async ({ lab }) => {
  const proxy = await two(lab);
  await lab.type("stayed", "htop -d 5\n");
  await lab.shows("stayed", "F10");
  proxy.cutAfter(300, true);
  await expect.poll(() => proxy.open).toBe(0);
  await lab.press("stayed", "F5");
  await lab.press("stayed", "ArrowDown");
  // htop keeps updating its screen.
  await lab.exec("sleep 0.7; pkill -STOP -x htop");
  await lab.settled(["stayed"]);
  proxy.go();
  await lab.state("returned", "connected");
  await lab.same("stayed", "returned");
  await lab.open("new", SIZE);
  await lab.same("stayed", "new");
});

// Promises: N2.
test("less is redrawn", async ({ lab }) => {
  await lab.exec("for i in $(seq 1 2000); do printf 'line %04d %0*d\\n' $i $((i % 150)) 7; done > /workspace/long.txt");
  const proxy = await two(lab);
  await lab.type("stayed", "LESS= less -N /workspace/long.txt\n");
  await lab.shows("stayed", "line 0005");
  await cut(lab, proxy, () => lab.type("stayed", "   "), () => lab.type("stayed", "/77\nnn"));
  await cut(lab, proxy, () => lab.type("stayed", "bbb"), () => lab.type("stayed", "Gkkkk"));
  await cut(lab, proxy, () => lab.type("stayed", "gq"), () => lab.type("stayed", "tail -30 long.txt\n"));
});

// Promises: N2.
test("tmux is redrawn", async ({ lab }) => {
  const proxy = await two(lab);
  await lab.type("stayed", "tmux -f /dev/null new-session 'bash --norc'\n");
  await lab.shows("stayed", "[0]");
  await lab.type("stayed", "tmux set -g mouse on; tmux split-window -h 'bash --norc'; ls --color=always /usr/bin | head -40\n");
  await lab.shows("stayed", "│");
  await cut(lab, proxy, () => lab.type("stayed", "ls --color=always /etc\n"));
  await cut(
    lab,
    proxy,
    // tmux draws only the final screen: coloured names, more bytes than the cut waits for.
    () => lab.type("stayed", "ls --color=always -la /usr/bin | head -200\n"),
    () => lab.type("stayed", "tmux split-window -v 'bash --norc'; tmux clock-mode; tmux rename-window changed\n"),
  );
  await lab.exec("tmux kill-server");
  await lab.shows("stayed", "exited");
  await lab.same("stayed", "returned");
});

// Promises: N2.
test("a shell's screen and scrollback are redrawn", async ({ lab }) => {
  const proxy = await two(lab);
  await lab.type("stayed", "seq -f 'scrolled %g' 1 3000; ls --color=always -la /usr/lib\n");
  await lab.settled(["stayed", "returned"]);
  await cut(
    lab,
    proxy,
    () => lab.type("stayed", "for i in $(seq 1 200); do printf '\\e[3%dm%*d\\e[0m ünï→漢' $((i%8)) $((i%70)) $i; done\n"),
    () => lab.type("stayed", "printf '\\e[5;20r\\e[?6h\\e(0lqqk\\e(B\\e[1;4:3;38;5;99;58;5;2mcurly\\e[0m\\e7'\n"),
  );
  await lab.type("stayed", "reset\n");
  await lab.settled(["stayed", "returned"]);
  await lab.same("stayed", "returned");
});

// Promises: N2.
test("a size that changed during an interruption is drawn", async ({ lab }) => {
  await lab.exec("ls -R /usr/share/vim > /workspace/list.txt");
  const proxy = await two(lab);
  await lab.type("stayed", "vim -u NONE /workspace/list.txt\n");
  await lab.shows("stayed", "/usr/share/vim");
  proxy.refuse();
  proxy.cut();
  await lab.in(({ kit }) => {
    kit.shown.stayed.window = { cols: 120, rows: 35 };
    kit.shown.stayed.addon.fit();
  });
  await lab.type("stayed", "jjjGkk");
  await lab.settled(["stayed"]);
  proxy.go();
  await lab.state("returned", "connected");
  await lab.same("stayed", "returned");
  expect(await lab.in(({ kit }) => kit.dump("returned").size)).toBe("120x35");
});
