"""A small Debian as a layer of an image: the packages that are named and all that they need, from
the files that this machine has of them. Writes layer.tar.gz into a folder and prints the digest of
the layer as it is unpacked."""
import gzip, hashlib, io, os, re, sys, tarfile

folder, wanted = sys.argv[1], sys.argv[2:]
info, dropped = "/var/lib/dpkg/info", ("/usr/share/doc/", "/usr/share/man/", "/usr/share/locale/", "/usr/share/info/")

stanzas, provides = {}, {}
for text in open("/var/lib/dpkg/status", encoding="utf-8").read().split("\n\n"):
    fields = dict(re.findall(r"^([A-Za-z-]+): (.*)$", text, re.M))
    if fields.get("Status") == "install ok installed" and fields.get("Architecture") in ("amd64", "arm64", "all"):
        stanzas[fields["Package"]] = (text, fields)
        for one in fields.get("Provides", "").split(","):
            provides.setdefault(one.split("(")[0].strip(), fields["Package"])
chosen, waiting = set(), wanted + [name for name, (_, fields) in stanzas.items() if fields.get("Essential") == "yes"]
while waiting:
    name = waiting.pop()
    name = name if name in stanzas else provides.get(name)
    if name is None or name in chosen:
        continue
    chosen.add(name)
    fields = stanzas[name][1]
    needs = ",".join(fields.get(field, "") for field in ("Pre-Depends", "Depends")).split(",")
    for need in filter(None, map(str.strip, needs)):
        choices = [re.split(r"[ (:]", choice.strip())[0] for choice in need.split("|")]
        have = [choice for choice in choices if choice in stanzas or choice in provides]
        waiting += have[:1]


class Counted:
    """Compresses, and counts the digest of what was not yet compressed."""
    def __init__(self, path):
        self.out, self.digest = gzip.open(path, "wb", 1), hashlib.sha256()
    def write(self, data):
        self.digest.update(data)
        return self.out.write(data)


out = Counted(f"{folder}/layer.tar.gz")
layer, there = tarfile.open(fileobj=out, mode="w|", format=tarfile.GNU_FORMAT), set()


def entry(path, text=None):
    """A file of this machine, or one with a text, with the directories above it."""
    parent = os.path.dirname(path)
    if parent != "/" and parent not in there:
        entry(parent)
    if path in there:
        return
    there.add(path)
    if text is None:
        layer.add(path, path[1:], recursive=False)
    else:
        one = tarfile.TarInfo(path[1:])
        one.size, one.mode = len(text.encode()), 0o644
        layer.addfile(one, io.BytesIO(text.encode()))


for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
    if os.path.islink("/" + name):
        entry("/" + name)
for name in sorted(chosen):
    own = [f"{info}/{file}" for file in (f"{name}.list", f"{name}:amd64.list", f"{name}:arm64.list")]
    for path in open(next(filter(os.path.exists, own))).read().splitlines():
        if path == "/." or path.startswith(dropped) or not os.path.lexists(path):
            continue
        entry(os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path)))
known = re.compile(r"^(%s)(:[a-z0-9]+)?\.[a-z]+$" % "|".join(map(re.escape, chosen)))
for file in sorted(filter(known.match, os.listdir(info))):
    entry(f"{info}/{file}")
entry("/var/lib/dpkg/status", "\n\n".join(stanzas[name][0].strip("\n") for name in sorted(chosen)) + "\n\n")
for name in ("available", "diversions", "statoverride", "triggers/Lazy"):
    entry(f"/var/lib/dpkg/{name}", "")
users = open("/usr/share/base-passwd/passwd.master").read()
entry("/etc/passwd", users.replace(":*:", ":x:") + "_apt:x:42:65534::/nonexistent:/usr/sbin/nologin\n")
entry("/etc/group", open("/usr/share/base-passwd/group.master").read().replace(":*:", ":x:"))
layer.close()
out.out.close()
print("sha256:" + out.digest.hexdigest())
