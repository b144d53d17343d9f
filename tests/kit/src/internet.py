"""A simulated internet in a network namespace: a resolver with a zone, web servers with and without
TLS, and plain TCP and UDP, on every address of the namespace. Each answer names the client and the
requested address, and each request is logged. The argument names a folder with `zone.json`, the
certificate of the web servers, and their pages below `www/HOST`."""
import http.server, json, os, socket, socketserver, ssl, subprocess, sys, threading, time

folder = sys.argv[1]
log = open(f"{folder}/log", "a", buffering=1)
turns = {}


def heard(*words):
    log.write(" ".join(str(word) for word in words) + "\n")


class Tcp(socketserver.BaseRequestHandler):
    """Answers with the client and the requested address."""
    def handle(self):
        place = self.request.getsockname()
        heard("tcp", *place, self.client_address[0])
        self.request.sendall(f"{self.client_address[0]} {place[0]}\n".encode())


class Udp(socketserver.BaseRequestHandler):
    def handle(self):
        data, sock = self.request
        heard("udp", sock.getsockname()[1], self.client_address[0], len(data))
        sock.sendto(f"{self.client_address[0]} {len(data)}".encode(), self.client_address)


def answer(data, way):
    """DNS: reads the zone for each query; names whose list holds lists rotate through them."""
    end = data.index(0, 12) + 5
    labels, at = [], 12
    while data[at]:
        labels.append(data[at + 1:at + 1 + data[at]].decode("latin-1"))
        at += data[at] + 1
    exact = ".".join(labels)
    name, kind = exact.lower(), int.from_bytes(data[end - 4:end - 2], "big")
    heard("asked", way, exact, kind)
    with open(f"{folder}/zone.json") as file:
        zone = json.load(file)
    found = zone.get(name) or zone.get("*." + name.partition(".")[2])
    if found is None:
        return data[:2] + b"\x81\x83\0\1\0\0\0\0\0\0" + data[12:end]
    if found and isinstance(found[0], list):
        turns[name, kind] = turns.get((name, kind), -1) + 1
        found = found[min(turns[name, kind], len(found) - 1)]
    family = {1: socket.AF_INET, 28: socket.AF_INET6}.get(kind)
    fits = [a for a in found if family and (":" in a) == (kind == 28)]
    records = b""
    for address in fits:
        raw = socket.inet_pton(family, address)
        records += b"\xc0\x0c" + bytes([0, kind, 0, 1, 0, 0, 0, 1, 0, len(raw)]) + raw
    return data[:2] + b"\x81\x80\0\1" + bytes([0, len(fits)]) + b"\0\0\0\0" + data[12:end] + records


class Names(socketserver.BaseRequestHandler):
    def handle(self):
        data, sock = self.request
        sock.sendto(answer(data, "udp"), self.client_address)


class NamesTcp(socketserver.StreamRequestHandler):
    def handle(self):
        while len(size := self.rfile.read(2)) == 2:
            said = answer(self.rfile.read(int.from_bytes(size, "big")), "tcp")
            self.wfile.write(len(said).to_bytes(2, "big") + said)


class Web(http.server.BaseHTTPRequestHandler):
    """Serves a file of the requested host, or the client and the requested host."""
    protocol_version = "HTTP/1.1"

    def log_message(self, *words):
        pass

    def serve(self):
        hosts = self.headers.get_all("host") or []
        host = hosts[0].partition(":")[0] if hosts else "-"
        sni = getattr(self.connection, "sni", "plain")
        place = self.connection.getsockname()
        heard("web", place[0], place[1], sni, ",".join(hosts) or "-", self.command, self.path)
        length = int(self.headers.get("content-length") or 0)
        body = self.rfile.read(length)
        path = self.path.partition("?")[0]
        if path.startswith("/git/"):
            return self.git(path, body)
        at = os.path.normpath(f"{folder}/www/{host}/{path}")
        if os.path.isdir(at):
            at += "/index.html"
        if os.path.isfile(at):
            with open(at, "rb") as file:
                return self.say(200, file.read(), self.kind(at))
        if os.path.isdir(f"{folder}/www/{host}"):
            return self.say(404, b"no such page\n", "text/plain")
        self.say(200, f"{host} {place[0]} {sni}\n".encode(), "text/plain")

    do_GET = do_HEAD = do_POST = do_PUT = do_CONNECT = do_OPTIONS = serve

    def kind(self, at):
        kinds = {".html": "text/html", ".json": "application/json"}
        return kinds.get(os.path.splitext(at)[1], "application/octet-stream")

    def say(self, status, body, kind):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def git(self, path, body):
        """Git's own program for it."""
        env = dict(os.environ, GIT_PROJECT_ROOT=f"{folder}/git", GIT_HTTP_EXPORT_ALL="1",
                   PATH_INFO=path[4:], QUERY_STRING=self.path.partition("?")[2],
                   REQUEST_METHOD=self.command, REMOTE_ADDR=self.client_address[0],
                   CONTENT_TYPE=self.headers.get("content-type", ""),
                   CONTENT_LENGTH=str(len(body)), GIT_PROTOCOL=self.headers.get("git-protocol", ""),
                   HTTP_CONTENT_ENCODING=self.headers.get("content-encoding", ""))
        ran = subprocess.run(["git", "-c", "safe.directory=*", "http-backend"], input=body, env=env, capture_output=True)
        head, _, said = ran.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if line)
        self.say(int(fields.pop("Status", "200").split()[0]), said, fields.get("Content-Type", ""))


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request, client_address):
        pass


class Tls(Server):
    def finish_request(self, request, client_address):
        place = request.getsockname()
        request.settimeout(20)
        try:
            request = certified.wrap_socket(request, server_side=True)
        except OSError:
            return heard("tls", *place, "failed")
        super().finish_request(request, client_address)


def named(connection, name, _context):
    connection.sni = name or "none"


class UdpServer(socketserver.ThreadingUDPServer):
    def handle_error(self, request, client_address):
        pass


def answers_from(address):
    """Serves UDP on one address, so that answers come from it, once the address exists."""
    while True:
        try:
            return [UdpServer((address, port), kind) for port, kind in
                    ((53, Names), (82, Udp), (443, Udp), (5353, Udp), (7000, Udp))]
        except OSError:
            time.sleep(0.01)


class Six(Server):
    address_family = socket.AF_INET6

    def server_bind(self):
        self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        super().server_bind()


servers = [Six(("::", 80), Web), Server(("0.0.0.0", 80), Web), Server(("0.0.0.0", 8080), Web), Server(("0.0.0.0", 53), NamesTcp)]
servers += [Server(("0.0.0.0", port), Tcp) for port in (22, 25, 7000, 8000)]
certified = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
certified.load_cert_chain(f"{folder}/web.pem", f"{folder}/web.key")
certified.sni_callback = named
servers += [Tls(("0.0.0.0", port), Web) for port in (443, 853, 8443)]
serve = lambda server: threading.Thread(target=server.serve_forever, daemon=True).start()
for server in servers:
    serve(server)
print("ready", flush=True)
for address in sys.argv[2:]:
    for server in answers_from(address):
        serve(server)
heard("up")
sys.stdin.read()
