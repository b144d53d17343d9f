"""Files that a tenant makes to break out of a snapshot, or to break it.

    snapshot_files.py plant CANARY DEPTH WIDTH   make them; print what was refused as JSON
    snapshot_files.py look                       print everything below the three directories as JSON
"""

import errno
import json
import os
import socket
import stat
import sys

# One in each of the directories that a sandbox stores apart.
PLACES = ["/workspace/hostile", "/opt/hostile", "/usr/local/hostile"]
# Directories that overlays merge with those of the image.
MERGED = ["/etc", "/usr/share", "/opt"]
OVERLAY = {"opaque": b"y", "redirect": b"/etc", "metacopy": b"", "whiteout": b"y", "origin": b"x" * 40, "nlink": b"U+9"}
refused = {}


def attempt(name, make):
    try:
        make()
    except OSError as error:
        refused[name] = errno.errorcode[error.errno]


def write(path, text="x", mode=0o644, owner=0):
    with open(path, "w") as file:
        file.write(text)
    os.chown(path, owner, owner)
    os.chmod(path, mode)


def plant(place, canary):
    os.makedirs(place)
    os.chdir(place)
    up = "../" * 40
    for name, target in {"absolute": canary, "relative": up + canary[1:], "root": "/", "process": "/proc/1/root" + canary,
                         "own": "/proc/self/root" + canary, "loop": "loop", "dangling": "/no/such", "long": "a/" * 2000,
                         "disk.ext4": canary, "links": os.path.dirname(canary)}.items():
        os.symlink(target, "link-" + name)
    os.symlink(os.path.dirname(canary), "upper")
    os.symlink(canary, "shells")
    write("once", "linked")
    os.mkdir("other")
    for n in range(3):
        os.link("once", f"other/{n}")
    attempt("a hard link to a program of the image", lambda: os.link("/usr/bin/env", "env"))
    write("root-program", mode=0o6755)
    write("user-program", mode=0o4711, owner=1000)
    write("no-mode", mode=0, owner=65533)
    os.mkdir("sticky")
    os.chmod("sticky", 0o3777)
    os.mkdir("closed", 0)
    for name, kind, device in [("null", stat.S_IFCHR, os.makedev(1, 3)), ("disk", stat.S_IFBLK, os.makedev(254, 0)),
                               ("memory", stat.S_IFCHR, os.makedev(1, 1)), ("whiteout", stat.S_IFCHR, 0)]:
        attempt(f"{name} in {place}", lambda: os.mknod(name, kind | 0o666, device))
    os.mkfifo("pipe")
    socket.socket(socket.AF_UNIX).bind("socket")
    for name in [b"new\nline", b"\xff\xfe\x80", b"x" * 255, b"-rf", b" ", b"\\", b"...", b"\x01\x1b[31m", b".wh.env",
                 b".wh..wh..opq", "\u202e\u00fc\U0001f980".encode()]:
        os.close(os.open(name, os.O_WRONLY | os.O_CREAT))
    os.mkdir("marked")
    write("marked/file")
    for path in ["marked", "marked/file", "once"]:
        for name, value in OVERLAY.items():
            attempt(f"user.overlay.{name} in {place}", lambda: os.setxattr(path, "user.overlay." + name, value))
    write("attributes")
    os.mkdir("attributes.d")
    for path in ["attributes", "attributes.d"]:
        for size in [1000, 100, 10, 1]:
            for n in range(100):
                try:
                    os.setxattr(path, f"user.{size}.{n}", b"v" * size)
                except OSError:
                    break
    with open("sparse", "w") as file:
        os.truncate(file.fileno(), 1 << 40)
        os.pwrite(file.fileno(), b"end", (1 << 40) - 3)


def many(depth, width):
    os.chdir(PLACES[0])
    os.mkdir("wide")
    for n in range(width):
        os.close(os.open(f"wide/{n}", os.O_WRONLY | os.O_CREAT))
    for _ in range(depth):
        os.mkdir("deep")
        os.chdir("deep")
    write("bottom")


def described(path):
    status = os.lstat(path)
    kind = stat.S_IFMT(status.st_mode)
    value = [oct(status.st_mode), status.st_uid, status.st_gid]
    if kind == stat.S_IFLNK:
        value.append(os.readlink(path).hex())
    elif kind in (stat.S_IFCHR, stat.S_IFBLK):
        value.append(status.st_rdev)
    elif kind == stat.S_IFREG:
        value += [status.st_size, status.st_nlink, status.st_blocks < 1000]
    if kind in (stat.S_IFREG, stat.S_IFDIR):
        value.append({name: os.getxattr(path, name).hex() for name in sorted(os.listxattr(path))})
    return value


def look():
    found = {}
    for place in PLACES:
        pending = [place.encode()]
        while pending:
            folder = pending.pop()
            for name in os.listdir(folder):
                path = os.path.join(folder, name)
                if name in (b"deep", b"wide"):
                    continue
                # A socket has no program behind it in a copy, so it is left out.
                if not stat.S_ISSOCK(os.lstat(path).st_mode):
                    found[path.hex()] = described(path)
                if stat.S_ISDIR(os.lstat(path).st_mode):
                    pending.append(path)
    os.chdir(PLACES[0])
    found["entries of wide"] = len(os.listdir("wide"))
    depth = 0
    while os.path.isdir("deep"):
        os.chdir("deep")
        depth += 1
    found["depth"] = depth
    found["bottom"] = open("bottom").read()
    for path in MERGED:
        found[path] = sorted(os.listdir(path))
    return found


if sys.argv[1] == "plant":
    for place in PLACES:
        plant(place, sys.argv[2])
    for path in MERGED:
        for name, value in OVERLAY.items():
            attempt(f"user.overlay.{name} of {path}", lambda: os.setxattr(path, "user.overlay." + name, value))
    many(int(sys.argv[3]), int(sys.argv[4]))
    print(json.dumps(refused))
else:
    print(json.dumps(look()))
