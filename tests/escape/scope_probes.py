"""Escapes from a session's file scope, attempted from inside. Prints one JSON object: probe -> outcome.

An outcome is the errno's name where the kernel refused, "nothing" where it allowed what leads
nowhere, and "out: ..." where the probe saw, changed or reached what the session was not granted.
$W is the workspace: `docs` and the file `one.txt` are granted to be read, `src` to be written, and
`secret` is not granted. $PLANTED names what another session has put in places that are not files
of the workspace.
"""
import ctypes, errno, json, os, signal, socket, struct, subprocess, sys

W = os.environ.get("W", "/workspace")
SECRET, CANARY = W + "/secret/key", b"canary-5127"
libc = ctypes.CDLL(None, use_errno=True)
results = {}


def attempt(name, action):
    try:
        results[name] = action() or "nothing"
    except OSError as error:
        results[name] = errno.errorcode.get(error.errno, str(error.errno))
    except Exception as error:  # a probe that breaks is no safe one
        results[name] = "broken: %r" % error


def call(number, *args):
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    if result < 0:
        raise OSError(ctypes.get_errno(), "")
    return result


def child(name, action):
    """Runs a probe in a child, so that its effects on its own process do not reach the next probe."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        results.clear()
        signal.alarm(10)
        attempt(name, action)
        os.write(write, results[name].encode())
        os._exit(0)
    os.close(write)
    text = b""
    while part := os.read(read, 4096):
        text += part
    os.close(read)
    os.waitpid(pid, 0)
    results[name] = text.decode() or "broken: died"


def holds(path):
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        return "out: read" if CANARY in os.read(file, 4096) else None
    finally:
        os.close(file)


def lists(path):
    return "out: listed" if "secret" in os.listdir(path) or "key" in os.listdir(path) else None


def made(path, flags=os.O_WRONLY | os.O_CREAT):
    os.close(os.open(path, flags, 0o644))
    return "out: written"


def done(action):
    action()
    return "out: done"


def after(action):
    """What is visible after a system call has succeeded."""
    action()
    for look in (lambda: holds(SECRET), lambda: made(W + "/docs/probe"), lambda: lists(W)):
        try:
            if seen := look():
                return seen
        except OSError:
            pass
    return None


os.chdir(W)
signal.alarm(60)
# By name
attempt("absolute path", lambda: holds(SECRET))
attempt("relative path", lambda: holds("secret/key"))
attempt("up and down again", lambda: holds("docs/../secret/key"))
attempt("up from a grant", lambda: holds(W + "/src/../../" + W.strip("/").split("/")[-1] + "/secret/key"))
attempt("list the workspace", lambda: lists(W))
attempt("relative link that was there", lambda: holds("docs/relative"))
attempt("absolute link that was there", lambda: holds("docs/absolute"))
attempt("link to /proc/1/root that was there", lambda: holds("docs/proc"))
for kind, target in (("relative", "../secret/key"), ("absolute", SECRET), ("of a directory", "../secret")):
    def link(target=target, kind=kind):
        name = "src/link-" + kind.replace(" ", "-")
        os.symlink(target, name)
        return lists(name) if kind == "of a directory" else holds(name)
    attempt("new link, " + kind, link)
attempt("link of links", lambda: (os.symlink("link-relative", "src/again"), holds("src/again"))[1])
# Through /proc
for name in ("root", "cwd"):
    attempt("/proc/1/" + name, lambda name=name: holds("/proc/1/%s%s" % (name, SECRET if name == "root" else "/secret/key")))
    attempt("/proc/self/" + name, lambda name=name: holds("/proc/self/%s%s" % (name, SECRET if name == "root" else "/secret/key")))
attempt("/proc/self/task/root", lambda: holds("/proc/self/task/%d/root%s" % (os.getpid(), SECRET)))


def anybody(part):
    """Through any process whose pid can be guessed."""
    refused = OSError(errno.ENOENT, "")
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if pid == str(os.getpid()):
            continue
        base = "/proc/%s/%s" % (pid, part)
        try:
            for path in [base + "/" + fd for fd in os.listdir(base)] if part in ("fd", "map_files") else [base + SECRET, base + "/key", base + "/secret/key"]:
                try:
                    if seen := holds(path):
                        return seen
                except OSError as error:
                    refused = error
        except OSError as error:
            refused = error
    raise refused


for part in ("root", "cwd", "fd", "map_files"):
    attempt("any process's " + part, lambda part=part: anybody(part))
attempt("processes of others", lambda: "out: seen" if any(
    b"87654" in open("/proc/%s/cmdline" % pid, "rb").read() for pid in os.listdir("/proc") if pid.isdigit() and int(pid) != os.getpid()) else None)
attempt("environment of others", lambda: "out: seen" if any(
    CANARY in open("/proc/%s/environ" % pid, "rb").read() for pid in os.listdir("/proc") if pid.isdigit() and int(pid) not in (1, os.getpid())) else None)
attempt("signal others", lambda: next(("out: sent" for pid in map(int, os.environ["PLANTED_PIDS"].split()) if not os.kill(pid, 0) and b"87654" in open("/proc/%d/cmdline" % pid, "rb").read()), None))
for pid in ("1", "self"):
    attempt("/proc/%s/mountinfo" % pid, lambda pid=pid: "out: named" if b"/secret" in open("/proc/%s/mountinfo" % pid, "rb").read() else None)
attempt("/proc/1/mem", lambda: "out: read" if os.open("/proc/1/mem", os.O_RDONLY) else None)
attempt("/proc/sys written", lambda: made("/proc/sys/kernel/hostname", os.O_WRONLY))
attempt("/proc/sysrq-trigger", lambda: made("/proc/sysrq-trigger", os.O_WRONLY))
# Writes where only reading was granted
attempt("write a file", lambda: made("docs/a.txt", os.O_WRONLY))
attempt("append to a file", lambda: made("docs/a.txt", os.O_WRONLY | os.O_APPEND))
attempt("truncate a file", lambda: done(lambda: os.truncate("docs/a.txt", 0)))
attempt("make a file", lambda: made("docs/new"))
attempt("make a directory", lambda: done(lambda: os.mkdir("docs/sub/new")))
attempt("make a directory beside the grants", lambda: done(lambda: os.mkdir("new")))
attempt("make a session's directory", lambda: done(lambda: os.mkdir(".sessions/other")))
attempt("write the one file", lambda: made("one.txt", os.O_WRONLY))
attempt("replace the one file", lambda: (made("src/one"), done(lambda: os.rename("src/one", "one.txt")))[1])
attempt("remove a file", lambda: done(lambda: os.unlink("docs/a.txt")))
attempt("remove the one file", lambda: done(lambda: os.unlink("one.txt")))
attempt("remove a grant", lambda: done(lambda: os.rmdir("src")))
attempt("rename a grant", lambda: done(lambda: os.rename("src", "elsewhere")))
attempt("rename into", lambda: (made("src/in"), done(lambda: os.rename("src/in", "docs/in")))[1])
attempt("rename out of", lambda: done(lambda: os.rename("docs/a.txt", "src/a.txt")))
attempt("exchange", lambda: (made("src/x"), call(316, -100, b"src/x", -100, b"docs/a.txt", 2), "out: done")[2])
attempt("hard link out of", lambda: done(lambda: os.link("docs/a.txt", "src/hard")))
attempt("hard link into", lambda: (made("src/h"), done(lambda: os.link("src/h", "docs/h")))[1])
attempt("hard link by descriptor", lambda: (call(265, os.open("docs/a.txt", os.O_RDONLY), b"", -100, b"src/byfd", 0x1000), "out: done")[1])
attempt("unnamed file into", lambda: (call(265, -100, b"/proc/self/fd/%d" % os.open("src", os.O_WRONLY | os.O_TMPFILE), -100, b"docs/tmp", 0x400), "out: done")[1])
attempt("chmod", lambda: done(lambda: os.chmod("docs/a.txt", 0o777)))
attempt("chown", lambda: done(lambda: os.chown("docs/a.txt", 1, 1)))
attempt("times", lambda: done(lambda: os.utime("docs/a.txt", (1, 1))))
attempt("attribute", lambda: done(lambda: os.setxattr("docs/a.txt", "user.x", b"y")))
attempt("device", lambda: done(lambda: os.mknod("docs/dev", 0o20666, os.makedev(1, 3))))
attempt("reopen for writing", lambda: made("/proc/self/fd/%d" % os.open("docs/a.txt", os.O_RDONLY), os.O_WRONLY))
attempt("write a program of the image", lambda: made("/usr/bin/probe"))
attempt("write the image's configuration", lambda: made("/etc/probe"))
attempt("write beside the workspace", lambda: made("/probe"))
# Mounts
MS_BIND, MS_REC, MS_REMOUNT, MS_RDONLY, MS_MOVE = 4096, 16384, 32, 1, 8192
mount = lambda source, target, kind, flags: call(165, source, target, kind, flags, 0)
w = W.encode()
child("remount a grant", lambda: after(lambda: mount(b"none", w + b"/docs", b"none", MS_REMOUNT | MS_BIND)))
child("remount the cover", lambda: (mount(b"none", w, b"none", MS_REMOUNT | MS_BIND), made(W + "/new"))[1])
child("remount the root", lambda: (mount(b"none", b"/", b"none", MS_REMOUNT | MS_BIND), made("/etc/probe"))[1])
child("bind the workspace", lambda: (mount(w, b"/mnt", b"none", MS_BIND), lists("/mnt"))[1])
child("mount_setattr", lambda: after(lambda: call(442, -100, w + b"/docs", 0, struct.pack("QQQQ", 0, 1, 0, 0), 32)))
child("mount another /proc", lambda: (mount(b"proc", b"/mnt", b"proc", 0), holds("/mnt/1/root" + SECRET))[1])
child("mount tmpfs", lambda: done(lambda: mount(b"tmpfs", b"/mnt", b"tmpfs", 0)))
child("mount overlay", lambda: done(lambda: call(165, b"overlay", b"/mnt", b"overlay", 0, b"lowerdir=/")))
child("open_tree", lambda: done(lambda: call(428, -100, w, 1)))
child("fsopen", lambda: done(lambda: call(430, b"tmpfs", 0)))
# Namespaces
NEWNS, NEWUSER, NEWPID = 0x20000, 0x10000000, 0x20000000
umount = lambda: call(166, w, 2)
child("unshare mounts, umount", lambda: after(lambda: (call(272, NEWNS), umount())))
child("unshare user and mounts, umount", lambda: after(lambda: (call(272, NEWUSER | NEWNS), umount())))
child("unshare user", lambda: done(lambda: call(272, NEWUSER)))
child("clone user and mounts", lambda: "out: cloned" if call(56, NEWUSER | NEWNS | 17, 0, 0, 0, 0) else os._exit(0))
for kind in ("mnt", "pid", "user", "ipc"):
    child("setns " + kind + " of 1", lambda kind=kind: (call(308, os.open("/proc/1/ns/" + kind, os.O_RDONLY), 0), holds(SECRET))[1])
child("setns by pidfd", lambda: after(lambda: call(308, call(434, 1, 0), NEWNS)))
# Processes
child("ptrace 1", lambda: done(lambda: call(101, 0x4206, 1, 0, 0)))
child("memory of 1", lambda: done(lambda: call(310, 1, struct.pack("QQ", 0, 8), 1, struct.pack("QQ", 0x400000, 8), 1, 0)))
child("descriptor of 1", lambda: done(lambda: call(438, call(434, 1, 0), 3, 0)))
child("signal 1", lambda: (os.kill(1, signal.SIGKILL), None)[1])
child("parent's descriptors", lambda: next(("out: open" for fd in range(3, 256) if os.path.isdir("/proc/self/fd/%d" % fd)), None))
# Roots
def walk_up():
    os.makedirs("src/jail", exist_ok=True)
    top = os.open(".", os.O_RDONLY)
    os.chroot("src/jail")
    os.fchdir(top)
    for _ in range(64):
        os.chdir("..")
    os.chroot(".")
    return holds(SECRET)


child("chroot and walk up", walk_up)


def handle():
    """Guesses the inodes of the workspace's file system by its handles."""
    buffer = ctypes.create_string_buffer(struct.pack("Ii", 120, 0) + bytes(120))
    number = ctypes.c_int()
    call(303, -100, b"docs", buffer, ctypes.byref(number), 0)
    top = os.open("docs", os.O_RDONLY)
    for inode in range(2, 64):
        guess = ctypes.create_string_buffer(struct.pack("Iiii", 8, 1, inode, 0) + bytes(120))
        try:
            if call(304, top, guess, os.O_RDONLY) >= 0:
                return "out: opened"
        except OSError as error:
            refused = error
    raise refused


child("open by handle", handle)
# Objects of other sessions outside the workspace
for place in ("/tmp/planted", "/var/tmp/planted", "/run/planted", "/root/planted", "/home/planted", "/dev/shm/planted"):
    attempt("another's " + place, lambda place=place: holds(place))
attempt("another's terminals", lambda: "out: seen" if [n for n in os.listdir("/dev/pts") if n.isdigit()] else None)
attempt("another's shared memory", lambda: "out: found" if libc.shmget(0x5127, 0, 0) >= 0 else None)
attempt("another's semaphores", lambda: "out: found" if libc.semget(0x5127, 0, 0) >= 0 else None)
attempt("another's message queue", lambda: "out: found" if libc.msgget(0x5127, 0) >= 0 else None)
attempt("disks", lambda: (os.mknod("src/disk", 0o60666, os.makedev(254, 0)), made("src/disk", os.O_RDONLY))[1])
attempt("control groups", lambda: "out: seen" if os.listdir("/sys/fs/cgroup") else None)
attempt("watch what is above", lambda: (call(254, call(294, 0), w + b"/secret", 0xFFF), "out: watches")[1])
# Last, because nothing would be left to try if these succeeded
child("umount the workspace", lambda: after(lambda: call(166, w, 0)))
child("umount the workspace, lazily", lambda: after(lambda: call(166, w, 2)))
child("umount a grant", lambda: after(lambda: call(166, w + b"/docs", 2)))
child("umount /proc", lambda: after(lambda: (call(166, b"/proc", 2), anybody("root"))))
child("umount /tmp", lambda: (call(166, b"/tmp", 2), holds("/tmp/planted"))[1])
child("bind all elsewhere, umount there", lambda: (mount(w, b"/mnt", b"none", MS_BIND | MS_REC), call(166, b"/mnt", 2), lists("/mnt"))[2])
child("move a mount", lambda: after(lambda: mount(w, b"/mnt", b"none", MS_MOVE)))
child("pivot_root", lambda: done(lambda: call(155, b".", b".")))
print(json.dumps(results))
