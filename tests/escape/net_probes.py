"""Attempts from inside a sandbox to reach network destinations that its rules do not allow. The one
argument is a JSON object with the addresses to try. Prints one JSON object: probe -> outcome. An
outcome that begins with "out" got out: a destination that is not allowed answered, or the kernel
accepted what it must refuse.

The rules allow one name, the names below another one (to test whether a wildcard can be abused),
and one address with one port."""
import ctypes, errno, json, os, re, select, socket, ssl, struct, sys, time
from concurrent.futures import ThreadPoolExecutor

about = json.loads(sys.argv[1])
NAME, SIDE, AWAY = "web.example", "side.example", "other.example"
PUBLIC, OTHER, THIRD = about["public"], about["other"], about["third"]
RESOLVER, GATEWAY, NEIGHBOUR = about["resolver"], about["gateway"], about["neighbour"]
libc = ctypes.CDLL(None, use_errno=True)
WAIT, probes = 3, {}


def probe(name):
    def add(action):
        probes[name] = action
    return add


def outcome(action):
    try:
        return action() or "nothing came"
    except OSError as error:
        return errno.errorcode.get(error.errno, type(error).__name__)
    except Exception as error:  # a probe that breaks is a failed probe, not a safe one
        return "out? broken: %r" % error


def stream(place, data=b"", kind=socket.SOCK_STREAM, protocol=0, family=socket.AF_INET):
    """Connects, sends, and returns everything that comes back."""
    with socket.socket(family, kind, protocol) as it:
        it.settimeout(WAIT)
        it.connect(place)
        return exchange(it, data)


def exchange(it, data):
    if data:
        it.sendall(data)
    said = b""
    try:
        while more := it.recv(65536):
            said += more
    except OSError:
        pass
    return said


def answered(place, data=b"", **more):
    said = stream(place, data, **more)
    return said and "out: %r" % said[:80]


def connects(place):
    with socket.create_connection(place, timeout=WAIT):
        return "out: connected"


def datagram(place, data=b"probe", family=socket.AF_INET, size=None, options=(), sends=False):
    """Out when the destination answers; with `sends`, when the kernel accepts the packet."""
    with socket.socket(family, socket.SOCK_DGRAM) as it:
        it.settimeout(1.5)
        for option in options:
            it.setsockopt(*option)
        it.sendto(data if size is None else bytes(size), place)
        if sends:
            return "out: sent"
        said = it.recvfrom(9999)
        return said[1][0] != about["own"] and "out: %r" % (said,)


# Answers of the internet's web servers, which must not arrive by any other route.
PAGE = re.compile(rb"^(\S+) (\d+\.\d+\.\d+\.\d+) (\S+)$", re.M)
def pages(said):
    wrong = [page for page in PAGE.findall(said) if page[:2] != (NAME.encode(), PUBLIC.encode())]
    return wrong and "out: %r" % wrong[:2]


def http(text, at=PUBLIC, port=80):
    return pages(stream((at, port), text.replace("\n", "\r\n").replace("\r\r", "\r").encode("latin-1")))


def tls(sni, host, at=PUBLIC, port=443, path="/"):
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection((at, port), timeout=WAIT) as it:
        with context.wrap_socket(it, server_hostname=sni) as it:
            return exchange(it, f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())


def question(name, kind, raw=None, count=1, flags=b"\1\0"):
    labels = raw if raw is not None else b"".join(bytes([len(l)]) + l for l in (p.encode("latin-1") for p in name.split("."))) + b"\0"
    return b"\x12\x34" + flags + bytes([0, count]) + b"\0\0\0\0\0\0" + (labels + struct.pack("!HH", kind, 1)) * count


def ask(name, kind=1, server=None, tcp=False, **more):
    """The answer to a question: its code, and its records' data."""
    packet = question(name, kind, **more)
    if tcp:
        with socket.create_connection((server or RESOLVER, 53), timeout=WAIT) as it:
            it.sendall(struct.pack("!H", len(packet)) + packet)
            said = it.recv(4096)[2:]
    else:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as it:
            it.settimeout(WAIT)
            it.connect((server or RESOLVER, 53))
            it.send(packet)
            said = it.recv(4096)
    if len(said) < 12:
        return None, b""
    return said[3] & 15, said[len(packet):] if said[7] else b""


def answers(*words, **more):
    code, data = ask(*words, **more)
    return code == 0 and "out: answered %r" % data


get = lambda host: f"GET / HTTP/1.1\nHost: {host}\nConnection: close\n\n"

# Addresses without a rule, and other ports of the allowed addresses.
for port in (22, 25, 7000, 8000):
    probe(f"tcp {OTHER}:{port}")(lambda port=port: answered((OTHER, port)))
    probe(f"tcp of the name's address, port {port}")(lambda port=port: answered((PUBLIC, port)))
for at in (OTHER, about["private"], about["metadata"]):
    for host in (at, AWAY, "-"):
        probe(f"http {at}, host {host}")(lambda at=at, host=host: http(get(host), at))
    probe(f"tls {at}")(lambda at=at: pages(tls(AWAY, AWAY, at)))
for port in (22, 25, 7000):
    probe(f"tcp of the allowed address, port {port}")(lambda port=port: answered((THIRD, port)))
for port in (82, 443, 7000, 53, 5353):
    for at in (OTHER, PUBLIC, THIRD):
        probe(f"udp {at}:{port}")(lambda at=at, port=port: datagram((at, port)))
probe("udp in parts")(lambda: datagram((OTHER, 7000), size=4000))
probe("udp in parts to the name's address")(lambda: datagram((PUBLIC, 7000), size=4000))
probe("data with the first packet")(lambda: pages(first_packet()))
def first_packet():
    with socket.socket() as it:
        it.sendto(get(AWAY).replace("\n", "\r\n").encode(), 0x20000000, (OTHER, 80))
        it.settimeout(WAIT)
        return exchange(it, b"")

# Another name at the address of the allowed one.
HOSTS = [SIDE, SIDE.upper(), SIDE + ".", PUBLIC, OTHER, f"{NAME}@{SIDE}", f"{SIDE}#{NAME}", f"{SIDE}\\.{NAME}", f"{SIDE}\0.{NAME}",
         f"{NAME}, {SIDE}", f"{SIDE}:80:{NAME}", f"x.{NAME}", f"{NAME}.{SIDE}", "", " ", "[::1]", "*"]
for host in HOSTS:
    probe(f"http, host {host!r}")(lambda host=host: http(get(host)))
HEADS = {
    "no host": "GET / HTTP/1.0\n\n",
    "two hosts": f"GET / HTTP/1.1\nHost: {NAME}\nHost: {SIDE}\nConnection: close\n\n",
    "two hosts, the other first": f"GET / HTTP/1.1\nHost: {SIDE}\nHost: {NAME}\nConnection: close\n\n",
    "absolute form": f"GET http://{SIDE}/ HTTP/1.1\nHost: {NAME}\nConnection: close\n\n",
    "absolute form of the allowed one": f"GET http://{NAME}/ HTTP/1.1\nHost: {SIDE}\nConnection: close\n\n",
    "absolute form of another scheme": f"GET ftp://{SIDE}/ HTTP/1.1\nHost: {NAME}\nConnection: close\n\n",
    "folded host": f"GET / HTTP/1.1\nHost: {NAME}\n {SIDE}\nConnection: close\n\n",
    "host before a space": f"GET / HTTP/1.1\nHost : {SIDE}\nConnection: close\n\n",
    "host after a bare newline": f"GET / HTTP/1.1\r\nHost: {NAME}\r\nX: a\rHost: {SIDE}\r\nConnection: close\r\n\r\n",
    "two requests": f"GET / HTTP/1.1\nHost: {NAME}\n\n" + get(SIDE),
    "a second request that needs no host": f"GET / HTTP/1.1\nHost: {NAME}\n\nGET / HTTP/1.0\n\n",
    "connect": f"CONNECT {SIDE}:443 HTTP/1.1\nHost: {NAME}\n\n" + get(SIDE),
    "connect to the other": f"CONNECT {AWAY}:443 HTTP/1.1\nHost: {AWAY}:443\n\n",
    "an upgrade": f"GET / HTTP/1.1\nHost: {NAME}\nConnection: upgrade\nUpgrade: websocket\n\n" + get(SIDE),
    "HTTP/2 at once": "PRI * HTTP/2.0\n\nSM\n\n",
    "length and chunks": f"POST / HTTP/1.1\nHost: {NAME}\nContent-Length: 6\nTransfer-Encoding: chunked\n\n0\n\n" + get(SIDE),
    "chunks before a space": f"POST / HTTP/1.1\nHost: {NAME}\nContent-Length: 5\nTransfer-Encoding : chunked\n\n0\n\n" + get(SIDE),
    "chunks of a strange kind": f"POST / HTTP/1.1\nHost: {NAME}\nTransfer-Encoding: xchunked\nContent-Length: 5\n\n0\n\n" + get(SIDE),
    "two lengths": f"POST / HTTP/1.1\nHost: {NAME}\nContent-Length: 0\nContent-Length: 60\n\n" + get(SIDE),
    "a length with a sign": f"POST / HTTP/1.1\nHost: {NAME}\nContent-Length: +0\n\n" + get(SIDE),
    "a body that is a request": f"GET / HTTP/1.1\nHost: {NAME}\nContent-Length: 0\n\n" + get(SIDE),
}
for name, text in HEADS.items():
    probe("http, " + name)(lambda text=text: http(text))
probe("http, the next request")(lambda: keep())
def keep():
    with socket.create_connection((PUBLIC, 80), timeout=WAIT) as it:
        it.sendall(f"GET / HTTP/1.1\r\nHost: {NAME}\r\n\r\n".encode())
        it.recv(65536)
        return pages(exchange(it, get(SIDE).replace("\n", "\r\n").encode()))
for sni in (SIDE, None, AWAY, "x." + NAME, NAME + "." + SIDE, SIDE.upper()):
    probe(f"tls, name {sni}")(lambda sni=sni: pages(tls(sni, SIDE)))
    probe(f"tls, name {sni}, the host that is allowed")(lambda sni=sni: (said := tls(sni, NAME)) and "out: %r" % said[-50:])
probe("tls on another port")(lambda: pages(tls(SIDE, SIDE, port=8443)))
probe("http on another port")(lambda: http(get(SIDE), port=8080))

# Names: other resolvers, and data in queries.
for server in (PUBLIC, OTHER, THIRD):
    for tcp in (False, True):
        probe(f"ask {server} by {'tcp' if tcp else 'udp'}")(lambda server=server, tcp=tcp: answers(AWAY, server=server, tcp=tcp))
        probe(f"ask {server} for what is allowed by {'tcp' if tcp else 'udp'}")(lambda server=server, tcp=tcp: answers(NAME, server=server, tcp=tcp))
probe("dns over tls")(lambda: pages(tls("dns.example", "dns.example", port=853)))
for at in (PUBLIC, OTHER):
    probe(f"dns over https at {at}")(lambda at=at: pages(tls("dns.example", "dns.example", at, path="/dns-query?dns=AAAB")))
for kind in (1, 28, 16, 5, 10, 12, 15, 2, 6, 33, 35, 64, 65, 255, 257):
    probe(f"a tunnel by questions of kind {kind}")(lambda kind=kind: answers(f"data{kind}.tunnel.example", kind))
for name in (f"data.{NAME}", f"{NAME}.tunnel.example", "d" * 63 + ".tunnel.example", AWAY):
    probe(f"a question for {name}")(lambda name=name: answers(name))
    probe(f"a question for {name} by tcp")(lambda name=name: answers(name, tcp=True))
probe("two questions at once")(lambda: answers(AWAY, count=2))
probe("a label with a dot")(lambda: answers("", raw=b"\x0bweb.example\0"))
probe("a label with an end")(lambda: answers("", raw=b"\x04dat\0\x06tunnel\x07example\0"))
def rebound(name):
    code, data = ask(name)
    found = [socket.inet_ntoa(data[at + 10:at + 14]) for at in range(2, len(data) - 13, 16)]
    closed = [at for at in found if at not in (PUBLIC, OTHER, THIRD)]
    if closed:
        return "out: %s, %s" % (closed, outcome(lambda: http(get(name), closed[0])))
for name in about["turned"]:
    probe(f"{name} leads home")(lambda name=name: rebound(name))
    probe(f"{name} by http")(lambda name=name: http(get(name), about["turned"][name]))
def turns():
    for _ in range(3):
        if found := rebound("turns.rebind.example"):
            return found
        time.sleep(5.5)
probe("an answer that turns")(turns)

# This host: its addresses, the gateway, and its services.
for at in about["host"]:
    for port in (about["api"], 7000):
        probe(f"the host {at}:{port}")(lambda at=at, port=port: connects((at, port)))
        probe(f"the host {at}:{port} by name")(lambda at=at, port=port: (said := stream((at, port), get(NAME).replace("\n", "\r\n").encode())) and "out: %r" % said[:50])
for port in (1, 22, 80, 111, 443, 2375, 3128, 5355, 7000, 7300, 8080, 15000, 15001, 15002, about["api"]):
    probe(f"the gateway's port {port}")(lambda port=port: connects((GATEWAY, port)))
for port in (67, 123, 5353, 7000):
    probe(f"the gateway's port {port} by udp")(lambda port=port: datagram((GATEWAY, port)))
for port in (80, 15001):
    probe(f"a proxy at the gateway's {port}")(lambda port=port: (said := stream((GATEWAY, port), f"CONNECT {AWAY}:443 HTTP/1.1\r\nHost: {AWAY}\r\n\r\n".encode())) and "out: %r" % said)
for at in ("127.0.0.1", "0.0.0.0", "127.9.9.9"):
    probe(f"loopback {at}")(lambda at=at: connects((at, about["api"])))

# Other sandboxes, broadcast and multicast.
probe("a neighbour by tcp")(lambda: connects((NEIGHBOUR, 7000)))
probe("a neighbour by http")(lambda: (said := stream((NEIGHBOUR, 80), get(NAME).replace("\n", "\r\n").encode())) and "out: %r" % said[:50])
probe("a neighbour by udp")(lambda: datagram((NEIGHBOUR, 7000)))
cast = (socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
for at in ("255.255.255.255", about["broadcast"], "224.0.0.1", "224.0.0.251", "239.1.2.3"):
    probe(f"everybody at {at}")(lambda at=at: datagram((at, 7000), options=[cast]))

# Data in the first packet of a connection (TCP Fast Open), before any handshake.
def fast(place, data, way):
    with socket.socket() as it:
        it.settimeout(1.5)
        if way == "without a cookie":
            it.setsockopt(socket.SOL_TCP, 34, 1)
        if way == "by connecting":
            it.setsockopt(socket.SOL_TCP, 30, 1)
            it.connect(place)
            it.sendall(data)
        else:
            try:
                it.sendto(data, socket.MSG_FASTOPEN, place)
            except BlockingIOError:  # no cookie yet: the connection is begun without data
                select.select([], [it], [], 1.5)
                it.sendall(data)
        return exchange(it, b"")
REQUEST = get(SIDE).replace("\n", "\r\n").encode()
for way in ("with a cookie", "without a cookie", "by connecting"):
    for place in ((OTHER, 8000), (THIRD, 7000), (NEIGHBOUR, 7000), (about["private"], 7000), (about["metadata"], 7000), (about["host"][0], 7000)):
        probe(f"fast open {way} to {place[0]}:{place[1]}")(lambda place=place, way=way: (said := fast(place, b"probe", way)) and "out: %r" % said[:80])
    for at in (PUBLIC, OTHER):
        probe(f"fast open {way} of another host at {at}")(lambda at=at, way=way: pages(fast((at, 80), REQUEST, way)))

# IPv6.
SIX = about["six"]
def six(at, port):
    place = socket.getaddrinfo(at, port, proto=6)[0][4]
    said = stream(place, b"GET / HTTP/1.0\r\n\r\n", family=socket.AF_INET6)
    return said and b" 403 " not in said and "out: %r" % said[:50]
for at in (SIX, "::ffff:" + OTHER, "64:ff9b::" + OTHER, "fe80::1%eth0", "::1"):
    for port in (80, 8000):
        probe(f"tcp [{at}]:{port}")(lambda at=at, port=port: six(at, port))
probe("udp of six")(lambda: datagram((SIX, 7000, 0, 0), family=socket.AF_INET6, sends=True))
probe("everybody of six")(lambda: datagram(("ff02::1", 7000, 0, socket.if_nametoindex("eth0")), family=socket.AF_INET6, sends=True))
def address_of_six():
    code, data = ask(NAME, 28)
    return socket.inet_pton(socket.AF_INET6, SIX) in data and "out: answered"
probe("an address of six")(address_of_six)
def ping(family, protocol, at, kind):
    with socket.socket(family, socket.SOCK_DGRAM, protocol) as it:
        it.settimeout(1.5)
        it.sendto(bytes([kind, 0, 0, 0, 0, 0, 0, 1]) + b"x" * 8, at)
        return "out: %d bytes" % len(it.recv(999))
for at in (OTHER, PUBLIC, THIRD, GATEWAY, NEIGHBOUR, about["host"][0]):
    probe(f"ping {at}")(lambda at=at: ping(socket.AF_INET, 1, (at, 0), 8))
probe("ping of six")(lambda: ping(socket.AF_INET6, 58, (SIX, 0, 0, 0), 128))

# Forged packets.
def packet(source, to, protocol, body, part=0):
    return struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(body), 7, part, 64, protocol, 0, socket.inet_aton(source), socket.inet_aton(to)) + body
udp = struct.pack("!HHHH", 9, 7000, 12, 0) + b"ping"
def by_hand(kind, *packets):
    with socket.socket(*kind) as it:
        if kind[0] == socket.AF_INET:
            if kind[2] != 255:
                it.setsockopt(socket.SOL_IP, 3, 1)
            for to, data in packets:
                it.sendto(data, (to, 0))
        else:
            it.bind(("eth0", 0))
            for _, data in packets:
                it.send(b"\xff" * 6 + bytes(6) + b"\x08\0" + data)
    return "out: sent"
MADE = {
    "another's address": [(OTHER, packet("203.0.113.99", OTHER, 17, udp))],
    "a neighbour's address": [(THIRD, packet(NEIGHBOUR, THIRD, 17, udp))],
    "in fragments": [(OTHER, packet("0.0.0.0", OTHER, 17, udp[:8], 0x2000)), (OTHER, packet("0.0.0.0", OTHER, 17, udp[8:], 1))],
    "in fragments that overlap": [(THIRD, packet("0.0.0.0", THIRD, 6, bytes(8), 0x2000)), (THIRD, packet("0.0.0.0", THIRD, 6, bytes(24), 0))],
    "in a tunnel": [(THIRD, packet("0.0.0.0", THIRD, 4, packet("10.0.0.1", OTHER, 17, udp))), (THIRD, packet("0.0.0.0", THIRD, 47, bytes(4) + packet("10.0.0.1", OTHER, 17, udp)))],
    "a redirect": [(NEIGHBOUR, packet(GATEWAY, NEIGHBOUR, 1, bytes([5, 1, 0, 0]) + bytes(28)))],
}
for name, packets in MADE.items():
    probe("by hand, " + name)(lambda packets=packets: by_hand((socket.AF_INET, socket.SOCK_RAW, 255), *packets))
    probe("by hand on the wire, " + name)(lambda packets=packets: by_hand((socket.AF_PACKET, socket.SOCK_RAW, 0x300), *packets))
for protocol in (1, 2, 6, 17, 47, 132):
    probe(f"raw socket {protocol}")(lambda protocol=protocol: socket.socket(socket.AF_INET, socket.SOCK_RAW, protocol).close() or "out: made")
for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW, 10):
    probe(f"packet socket {int(kind)}")(lambda kind=kind: socket.socket(socket.AF_PACKET, kind, 0x300).close() or "out: made")
def spoofed(source, *options):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as it:
        for option in options:
            it.setsockopt(*option)
        it.bind((source, 0))
        it.sendto(b"spoofed", (THIRD, 8000))
        return "out: sent"
for source in ("203.0.113.99", NEIGHBOUR, GATEWAY):
    for number, name in ((15, "free"), (19, "transparent")):
        probe(f"bound to {source}, {name}")(lambda source=source, number=number: spoofed(source, (socket.SOL_IP, number, 1)))
    def by_hint(source=source):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as it:
            hint = struct.pack("=I4s4s", 0, socket.inet_aton(source), bytes(4))
            it.sendmsg([b"spoofed"], [(socket.SOL_IP, 8, hint)], 0, (THIRD, 8000))
            return "out: sent"
    probe(f"sent as {source}")(by_hint)
def from_loopback():
    with socket.socket() as it:
        it.settimeout(1.5)
        it.bind(("127.0.0.1", 0))
        it.connect((THIRD, 8000))
        return "out: connected"
probe("bound to loopback")(from_loopback)
def routed(kind, port):
    """Routed through the allowed address to another one: the filter sees the allowed one first."""
    with socket.socket() as it:
        it.settimeout(1.5)
        it.setsockopt(socket.SOL_IP, 4, bytes([kind, 7, 4]) + socket.inet_aton(THIRD) + b"\0")
        it.connect((OTHER, port))
        said = it.recv(99)
        return OTHER.encode() in said and "out: %r" % said
for kind, name in ((131, "loosely"), (137, "strictly")):
    probe(f"routed by the source, {name}")(lambda kind=kind: routed(kind, 8000))
for protocol, kind, name in ((132, 1, "sctp"), (132, 5, "sctp in messages"), (33, 6, "dccp"), (262, 1, "multipath tcp"), (136, 2, "udp lite")):
    probe(name)(lambda protocol=protocol, kind=kind: answered((OTHER, 8000), b"x", kind=kind, protocol=protocol))
probe("a mark")(lambda: socket.socket().setsockopt(socket.SOL_SOCKET, 36, 1) or "out: set")

# The kernel's tables, and other networks.
def told(kind, body, flags=5):
    """Requests a change; out unless it was refused for lack of permission."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as it:
        it.settimeout(WAIT)
        it.send(struct.pack("=IHHII", 16 + len(body), kind, flags | 0x400, 1, 0) + body)
        number = struct.unpack_from("=i", it.recv(4096), 16)[0]
        if -number not in (errno.EPERM, errno.EACCES):
            return "out: %s" % errno.errorcode.get(-number, number)
        raise OSError(-number, "")
attribute = lambda kind, data: struct.pack("=HH", 4 + len(data), kind) + data
try:
    here = socket.if_nametoindex("eth0")
except OSError:
    here = 1
near = socket.inet_aton(NEIGHBOUR)
for name, kind, body in [
        ("an address", 20, struct.pack("=BBBBI", 2, 32, 0, 0, here) + attribute(2, near)),
        ("no address", 21, struct.pack("=BBBBI", 2, 32, 0, 0, here) + attribute(2, near)),
        ("a route", 24, struct.pack("=BBBBBBBBI", 2, 32, 0, 0, 254, 3, 253, 1, 0) + attribute(1, near) + attribute(4, struct.pack("=I", here))),
        ("a neighbour", 28, struct.pack("=BBHIHBB", 2, 0, 0, here, 128, 0, 1) + attribute(1, near) + attribute(2, b"\2\0\0\0\0\1")),
        ("no neighbour", 29, struct.pack("=BBHIHBB", 2, 0, 0, here, 0, 0, 1) + attribute(1, near)),
        ("a hardware address", 19, struct.pack("=BBHiII", 0, 0, 0, here, 0, 0) + attribute(1, b"\2\0\0\0\0\1")),
        ("a link", 16, struct.pack("=BBHiII", 0, 0, 0, 0, 0, 0) + attribute(3, b"mine\0\0\0\0") + attribute(18, attribute(1, b"dummy\0\0\0"))),
        ("a rule", 32, struct.pack("=BBBBBBBBI", 2, 0, 0, 0, 254, 0, 0, 1, 0)),
        ("a queue", 36, struct.pack("=BBHiIII", 0, 0, 0, here, 0, 0xffffffff, 0) + attribute(1, b"pfifo\0\0\0"))]:
    probe(f"netlink, {name}")(lambda kind=kind, body=body: told(kind, body))
for family, kind, protocol, name in [(40, 1, 0, "vsock"), (40, 2, 0, "vsock, messages"), (44, 3, 0, "xdp"), (38, 5, 0, "alg"), (30, 5, 0, "tipc"), (21, 5, 0, "rds"),
                                     (29, 3, 1, "can"), (15, 3, 2, "key"), (31, 3, 1, "bluetooth"), (43, 1, 0, "smc")] + [
                                     (16, 3, number, f"netlink {number}") for number in (4, 6, 9, 12, 15, 16, 20, 21)]:
    probe(f"a socket of {name}")(lambda family=family, kind=kind, protocol=protocol: socket.socket(family, kind, protocol).close() or "out: made")
def call(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "")
    return "out: taken"
def child(action):
    """Runs a probe that changes its own process in a child."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write, outcome(action).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    os.close(write)
    said = os.read(read, 999).decode()
    os.close(read)
    return said
for pid in ["self"] + sorted(filter(str.isdigit, os.listdir("/proc")), key=int)[:4]:
    probe(f"join the network of {pid}")(lambda pid=pid: call(libc.setns(os.open(f"/proc/{pid}/ns/net", os.O_RDONLY), 0x40000000)))
probe("a network of its own")(lambda: call(libc.unshare(0x40000000)))
alone = [name for name in probes if name.startswith(("join", "a network"))]
results = {name: child(probes[name]) for name in alone}
wanted = [name for name in probes if name not in results and about.get("only", "") in name]
with ThreadPoolExecutor(24) as pool:
    results.update(zip(wanted, pool.map(lambda name: outcome(probes[name]), wanted)))
held = {}
if not about.get("only"):
    held["the page of the name"] = outcome(lambda: stream((PUBLIC, 80), get(NAME).replace("\n", "\r\n").encode()).split(b"\r\n\r\n")[-1].decode())
    for way in ("with a cookie", "without a cookie", "by connecting"):
        page = get(NAME).replace("\n", "\r\n").encode()
        held["the page, fast open " + way] = outcome(lambda: fast((PUBLIC, 80), page, way).split(b"\r\n\r\n")[-1].decode())
        held["the address, fast open " + way] = outcome(lambda: fast((THIRD, 8000), b"probe", way).decode())
    held["another name within"] = outcome(lambda: tls(NAME, SIDE).split(b"\r\n\r\n")[-1].decode())
    held["the allowed address"] = outcome(lambda: stream((THIRD, 8000)).decode())
print(json.dumps({"probes": results, "held": held}))
