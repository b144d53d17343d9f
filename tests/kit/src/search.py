"""Reads everything that can be read, the image's own programs aside, and prints where a word is.
What blocks or never ends is opened without waiting, and read in part. The word comes in two halves,
so that the search does not find itself."""
import os, stat, sys
needle = "".join(sys.argv[1:]).encode()
seen = 0
def look(path):
    global seen
    try:
        kind = os.lstat(path).st_mode
        if stat.S_ISLNK(kind):
            if needle in os.readlink(path).encode(): print(path, "(link)")
            return
        if not (stat.S_ISREG(kind) or stat.S_ISCHR(kind)): return
        if needle in os.path.basename(path).encode(): print(path, "(name)")
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError: return
    seen += 1
    try:
        last = b""
        for _ in range(8):
            part = os.read(fd, 1 << 16)
            if not part: break
            if needle in last + part:
                print(path); break
            last = part[-len(needle):]
    except OSError: pass
    finally: os.close(fd)
for top in sorted(os.listdir("/")):
    # On a merged system /lib and its like lead into /usr.
    if top == "usr" or os.path.islink("/" + top): continue
    for folder, folders, files in os.walk("/" + top):
        # A task's files are its process's; the search's own arguments hold the halves alone.
        folders[:] = [f for f in folders if f not in ("task", "map_files", "fdinfo")]
        for name in files: look(os.path.join(folder, name))

def remember(pid):
    """What a process has in its memory, as far as it may be looked at."""
    global seen
    try:
        with open(f"/proc/{pid}/maps") as maps: lines = maps.readlines()
        memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY)
    except OSError: return
    seen += 1
    try:
        for line in lines:
            span, rights = line.split()[:2]
            if not rights.startswith("rw"): continue
            first, last = (int(part, 16) for part in span.split("-"))
            try: part = os.pread(memory, min(last - first, 1 << 26), first)
            except OSError: continue
            if needle in part:
                print(f"/proc/{pid}/mem"); break
    finally: os.close(memory)
for pid in os.listdir("/proc"):
    if pid.isdigit() and int(pid) != os.getpid(): remember(pid)
print(seen, "read", file=sys.stderr)
