// Processes and ports through the official MCP client. Prints what failed, or `all answered`.
import assert from "node:assert/strict";
import { call, connected, gone, url } from "./client.mjs";

const one = await connected();
const text = async (name, args, options) => (await call(one, name, args, options)).text;
const data = async (name, args, options) => {
  const said = await call(one, name, args, options);
  assert.ok(!said.failed, said.text);
  return said.data;
};

// A server program: started, awaited, requested, listed, ended.
await call(one, "file_write", {
  path: "serve.py",
  content: `
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self):
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        self.send_response(404 if self.path == "/none" else 302 if self.path == "/away" else 200)
        if self.path == "/away": self.send_header("location", "https://elsewhere.example/")
        self.send_header("content-type", "text/plain")
        self.end_headers()
        said = [self.command, self.path, self.headers.get("content-type") or "-", body.decode()]
        self.wfile.write(b"x" * 5000 if self.path == "/long" else " ".join(said).encode())
    do_GET = do_POST = answer
    def log_message(self, *_): print("asked", self.path, flush=True)
http.server.HTTPServer(("127.0.0.1", 8123), Handler).serve_forever()
`,
});
const refused = await call(one, "port_fetch", { port: 8123 });
assert.ok(refused.failed && refused.text.includes("not_listening"), refused.text);
const begun = await data("process_start", { process: "web", command: "exec python3 serve.py" });
assert.deepEqual([begun.id, begun.status], ["web", "running"]);
const taken = await call(one, "process_start", { process: "web", command: "true" });
assert.ok(taken.failed && taken.text.includes("id_in_use"), taken.text);
const waited = await data("process_wait", { process: "web", port: 8123, path: "/health" });
assert.equal(waited.outcome, "met");
assert.deepEqual((await data("port_list")).ports.map((one) => one.port), [8123]);
assert.equal(await text("port_fetch", { port: 8123 }), "GET / - \n[200; content-type: text/plain]");
const posted = { port: 8123, path: "/a b?c=ä", method: "post", content: "{}" };
assert.match(await text("port_fetch", posted), /^POST \/a%20b\?c=%C3%A4 application\/json \{\}\n/);
const away = await call(one, "port_fetch", { port: 8123, path: "/away" });
assert.deepEqual([away.data.status, away.data.headers.location], [302, "https://elsewhere.example/"]);
const none = await call(one, "port_fetch", { port: 8123, path: "none" });
assert.deepEqual([none.failed, none.data.status], [false, 404]);
const long = await call(one, "port_fetch", { port: 8123, path: "/long", max_bytes: 10 });
assert.ok(long.text.startsWith("xxxxxxxxxx\n") && long.text.includes("bytes 0 to 10 of 5000"), long.text);
const line = await data("process_wait", { process: "web", regex: "^asked /l.*g" });
assert.equal(line.line, "asked /long");
const ended = await data("process_wait", { process: "web", text: "never", since: line.position, timeout_ms: 50 });
assert.equal(ended.outcome, "timeout");

// A port URL needs no key and works until it is withdrawn.
const link = await data("port_link", { port: 8123, name: "page" });
assert.ok(link.url.startsWith(url), `${link.url} begins with ${url}`);
assert.equal((await fetch(link.url)).status, 200);
assert.equal((await data("port_list")).links[0].name, "page");
assert.equal((await call(one, "port_withdraw", { port: 8123 })).failed, false);
assert.equal((await fetch(link.url)).status, 401);

assert.equal((await data("process_kill", { process: "web", grace_ms: 2000 })).status, "killed");
assert.match(await text("process_logs", { process: "web" }), /\[killed; exit 143; position \d+\]$/);
await data("process_kill", { process: "web", forget: true });
assert.ok((await call(one, "process_logs", { process: "web" })).failed, "it is forgotten");

// A program that reads input: its output is reported as it arrives, and a wait reports progress.
await data("process_start", { process: "echo", command: "trap 'echo hup' HUP; while read -r x; do echo \"<$x>\"; done; exit 5", stdin: true });
const notes = [];
const line1 = await data(
  "process_wait",
  { process: "echo", text: "<go>", timeout_ms: 60_000 },
  {
    onprogress: (note) => {
      if (notes.push(note) === 1) call(one, "process_input", { process: "echo", content: "go\n" });
    },
  },
);
assert.deepEqual([line1.outcome, line1.line], ["met", "<go>"]);
assert.ok(notes[0].progress > 0 && notes[0].total === 60, JSON.stringify(notes));
assert.equal((await call(one, "process_signal", { process: "echo", signal: "HUP" })).failed, false);
assert.equal((await data("process_wait", { process: "echo", text: "hup" })).outcome, "met");
await call(one, "process_input", { process: "echo", content: "end\n", eof: true });
assert.equal((await data("process_wait", { process: "echo" })).process.exit_code, 5);
const rest = await call(one, "process_logs", { process: "echo", since: line1.position });
assert.equal(rest.text, "hup\n<end>\n[exited; exit 5; position 15]");
const tail = await text("process_logs", { process: "echo", max_bytes: 6 });
assert.equal(tail, "<end>\n[exited; exit 5; 9 bytes before this are not shown; position 15]");
assert.deepEqual((await data("process_list")).processes.map((one) => [one.id, one.status]), [["echo", "exited"]]);
const both = await call(one, "process_wait", { process: "echo", text: "a", port: 1 });
assert.ok(both.failed && both.text.includes("one of them"), both.text);

// A long command reports progress, too; when its wait is cancelled, the process keeps running.
const told = [];
const stop = new AbortController();
await data("process_start", { process: "slow", command: "exec sleep 1000" });
const given = call(one, "process_wait", { process: "slow" }, { signal: stop.signal, onprogress: () => stop.abort() });
await assert.rejects(given);
assert.equal((await data("process_list")).processes[1].status, "running");
// Its answer may arrive after that of the command which waits for the file.
let written;
const slow = call(
  one,
  "shell_run",
  { command: "until [ -e /tmp/told ]; do sleep 0.05; done; echo done" },
  {
    onprogress: (note) => {
      if (told.push(note) === 1) written = call(one, "file_write", { path: "/tmp/told", content: "" });
    },
  },
);
assert.equal((await slow).text, "done\n[exit 0]");
assert.ok(told.length > 0);
await written;
await gone(one);
console.log("all answered");
