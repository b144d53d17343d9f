"""Web servers of the simulated network, with TLS on port 8443 and without on 8081. Each prints every
request as one line of JSON. A path of /to/URL is a redirect to that URL."""
import http.server, json, ssl, sys, threading

class Web(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        told = {"tls": self.server.tls, "path": self.path, "host": self.headers["Host"],
                "at": self.connection.getsockname()[0],
                "headers": {name.lower(): value for name, value in self.headers.items()}}
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()
        to = self.path.removeprefix("/to/")
        self.send_response(302 if to != self.path else 200)
        if to != self.path:
            self.send_header("Location", to)
        self.send_header("Content-Length", "3")
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(b"hi\n")
    def log_message(self, *_):
        pass

class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    def handle_error(self, *_):
        pass

context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(*sys.argv[1:3])
for port, tls in ((8443, True), (8081, False)):
    server = Server(("0.0.0.0", port), Web)
    server.tls = tls
    if tls:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, daemon=True).start()
print("ready", flush=True)
threading.Event().wait()
