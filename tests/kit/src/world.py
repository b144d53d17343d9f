"""A host of the simulated network, in its own network namespace: it answers on each of its addresses
with the address of the client."""
import socket, socketserver, sys, threading

class Tcp(socketserver.BaseRequestHandler):
    def handle(self):
        self.request.sendall(f"{self.client_address[0]} {self.request.getsockname()[0]}\n".encode())

class Much(socketserver.BaseRequestHandler):
    """Sends zeroes until the client stops reading."""
    def handle(self):
        block = bytes(1 << 18)
        try:
            while True:
                self.request.sendall(block)
        except OSError:
            pass

class Udp(socketserver.BaseRequestHandler):
    def handle(self):
        data, sock = self.request
        sock.sendto(f"{self.client_address[0]} {data.decode()}".encode(), self.client_address)

class Web(socketserver.StreamRequestHandler):
    """HTTP: answers with the requested host."""
    def handle(self):
        host = ""
        while (line := self.rfile.readline().strip()):
            if line.lower().startswith(b"host:"):
                host = line[5:].strip().decode()
        body = f"{host} {self.request.getsockname()[0]}\n".encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        self.wfile.write(head.encode() + body)

class Names(socketserver.BaseRequestHandler):
    """DNS: every name resolves to one address, private names to another."""
    def handle(self):
        data, sock = self.request
        end = data.index(0, 12) + 5
        address = "10.9.9.9" if b"private" in data[12:end] else "198.51.100.10"
        kind = data[end - 4:end - 2]
        count = 1 if kind == b"\0\1" else 0
        answer = b"\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4" + socket.inet_aton(address)
        head = data[:2] + b"\x81\x80\0\1" + bytes([0, count]) + b"\0\0\0\0"
        sock.sendto(head + data[12:end] + answer * count, self.client_address)

class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 256

servers = [Server(("0.0.0.0", port), Tcp) for port in (80, 443)]
servers.append(Server(("0.0.0.0", 8080), Web))
servers.append(socketserver.ThreadingUDPServer(("0.0.0.0", 53), Names))
servers.append(Server(("0.0.0.0", 81), Much))
servers.append(socketserver.ThreadingUDPServer(("0.0.0.0", 82), Udp))
for server in servers:
    threading.Thread(target=server.serve_forever, daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
