"""Escapes from a sandbox, attempted from inside. Prints one JSON object: probe -> outcome.

Outcome is "ok" when the kernel allowed it, otherwise the errno's name or what was seen.
Only the Python interpreter of the image is needed; calls go to the kernel by number.
"""
import ctypes, errno, json, os, socket, struct, sys, threading

libc = ctypes.CDLL(None, use_errno=True)
results = {}


def outcome(result):
    return "ok" if result >= 0 else errno.errorcode.get(ctypes.get_errno(), str(ctypes.get_errno()))


def call(number, *args):
    return outcome(libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for a in args]))


def attempt(name, action):
    try:
        value = action()
        results[name] = "ok" if value is None else value
    except OSError as error:
        results[name] = errno.errorcode.get(error.errno, str(error.errno))
    except ValueError as error:
        results[name] = "refused" if "not allowed" in str(error) else "broken: %r" % error
    except Exception as error:  # a probe that breaks is a failed probe, not a safe one
        results[name] = "broken: %r" % error


def opened(path, flags):
    os.close(os.open(path, flags | os.O_NONBLOCK))


def child(name, action):
    """Runs a probe in a child, so that its effects on its own process do not reach the next probe."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        results.clear()
        attempt(name, action)
        os.write(write, results[name].encode())
        os._exit(0)
    os.close(write)
    text = b""
    while True:
        part = os.read(read, 4096)
        if not part:
            break
        text += part
    os.close(read)
    os.waitpid(pid, 0)
    results[name] = text.decode() or "died"


W, R = os.O_WRONLY, os.O_RDONLY

# E18: descriptors, before any other probe opens one
def descriptors():
    listing = os.open("/proc/self/fd", os.O_RDONLY)
    return " ".join(sorted(fd for fd in os.listdir(listing) if int(fd) != listing and os.path.lexists("/proc/self/fd/" + fd)))
attempt("descriptors", descriptors)
attempt("cwd", lambda: os.getcwd())

# E1, E2: knobs of the host
for path in ["/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe",
             "/proc/sys/kernel/hotplug", "/proc/sys/vm/drop_caches", "/proc/sys/vm/overcommit_memory",
             "/proc/sys/fs/binfmt_misc/register", "/proc/sys/kernel/hostname",
             "/proc/sys/net/ipv4/ip_forward", "/proc/sys/user/max_user_namespaces", "/proc/irq/default_smp_affinity",
             "/proc/meminfo"]:
    attempt("write " + path, lambda path=path: opened(path, W))

# E4, E5: control groups
def cgroups():
    found = []
    for top, _, files in os.walk("/sys/fs/cgroup"):
        found += [os.path.join(top, f) for f in files]
    return "%d files" % len(found)
attempt("cgroup files", cgroups)
buf = lambda text: ctypes.c_char_p(text)
for kind in [b"cgroup", b"cgroup2", b"tmpfs", b"proc", b"sysfs", b"overlay", b"devpts", b"mqueue", b"ramfs", b"fuse"]:
    os.makedirs("/tmp/m", exist_ok=True)
    attempt("mount " + kind.decode(), lambda kind=kind: call(165, buf(b"none"), buf(b"/tmp/m"), buf(kind), 0, None))

# E6, E7: devices
import stat
for name, mode, device in [("char 1:1", stat.S_IFCHR, os.makedev(1, 1)), ("char 1:3", stat.S_IFCHR, os.makedev(1, 3)),
                           ("block 8:0", stat.S_IFBLK, os.makedev(8, 0)), ("block 254:0", stat.S_IFBLK, os.makedev(254, 0))]:
    for place in ["/tmp", "/dev/shm", "/workspace", "/root"]:
        def make(place=place, mode=mode, device=device):
            path = place + "/node%d" % os.getpid()
            try:
                os.mknod(path, 0o666 | mode, device)
                opened(path, R)
            finally:
                if os.path.lexists(path):
                    os.unlink(path)
        attempt("mknod %s in %s" % (name, place), make)
attempt("devices", lambda: " ".join(sorted(os.listdir("/dev"))))
for name in ["mem", "kmem", "port", "kmsg", "kvm", "fuse", "net/tun", "vsock", "vhost-net", "vhost-vsock", "loop0",
             "loop-control", "dm-0", "mapper/control", "vda", "sda", "console", "dri/card0", "tty0", "hwrng", "rtc0", "snapshot"]:
    attempt("open /dev/" + name, lambda name=name: opened("/dev/" + name, R))

# E8, E9, E11: mounts
MS_BIND, MS_REC, MS_REMOUNT, MS_RDONLY, MS_MOVE = 4096, 16384, 32, 1, 8192
attempt("bind mount", lambda: call(165, buf(b"/etc"), buf(b"/tmp/m"), None, MS_BIND, None))
attempt("remount / rw", lambda: call(165, buf(b"none"), buf(b"/"), None, MS_REMOUNT | MS_BIND, None))
attempt("remount /dev rw", lambda: call(165, buf(b"none"), buf(b"/dev"), None, MS_REMOUNT | MS_BIND, None))
attempt("remount /proc/sys rw", lambda: call(165, buf(b"none"), buf(b"/proc/sys"), None, MS_REMOUNT | MS_BIND, None))
attempt("remount /proc/meminfo rw", lambda: call(165, buf(b"none"), buf(b"/proc/meminfo"), None, MS_REMOUNT | MS_BIND, None))
attempt("mount_setattr", lambda: call(442, -100, buf(b"/dev"), 0, ctypes.create_string_buffer(struct.pack("QQQQ", 0, 1, 0, 0)), 32))
for path in [b"/proc/keys", b"/proc/meminfo", b"/proc/sys", b"/proc", b"/dev/pts", b"/dev", b"/sys", b"/usr", b"/workspace", b"/"]:
    for flags in [0, 2]:
        attempt("umount %s %d" % (path.decode(), flags), lambda path=path, flags=flags: call(166, buf(path), flags))
attempt("fsopen", lambda: call(430, buf(b"tmpfs"), 0))
attempt("fsmount", lambda: call(432, 3, 0, 0))
attempt("open_tree clone", lambda: call(428, -100, buf(b"/"), 1))
attempt("move_mount", lambda: call(429, -100, buf(b"/etc"), -100, buf(b"/tmp/m"), 0))
attempt("fspick", lambda: call(433, -100, buf(b"/"), 0))

# E10: other roots
attempt("pivot_root", lambda: call(155, buf(b"/tmp"), buf(b"/tmp")))
def walk_up():
    os.makedirs("/tmp/jail", exist_ok=True)
    fd = os.open("/", os.O_RDONLY)
    os.chroot("/tmp/jail")
    os.fchdir(fd)
    for _ in range(50):
        os.chdir("..")
    os.chroot(".")
    return "same" if os.path.exists("/workspace") and os.path.exists("/usr/bin") and not os.path.exists("/own") else "other"
child("chroot and walk up", walk_up)

# E12, E13: namespaces
CLONES = {"user": 0x10000000, "mnt": 0x20000, "net": 0x40000000, "pid": 0x20000000, "ipc": 0x8000000, "uts": 0x4000000, "cgroup": 0x2000000, "time": 0x80}
for name, flag in CLONES.items():
    child("unshare " + name, lambda flag=flag: call(272, flag))
    if name != "time":
        attempt("clone " + name, lambda flag=flag: call(56, flag | 17, 0, 0, 0, 0))
attempt("clone3", lambda: call(435, ctypes.create_string_buffer(88), 88))
for name in ["user", "mnt", "net", "pid", "ipc", "uts", "cgroup"]:
    def join(name=name):
        fd = os.open("/proc/1/ns/" + name, R)
        return call(308, fd, 0)
    attempt("setns 1 " + name, join)
    def own(name=name):
        fd = os.open("/proc/self/ns/" + name, R)
        return call(308, fd, 0)
    attempt("setns self " + name, own)

# E14 to E17: the agent
for name in ["root", "cwd", "mem", "environ", "fd", "maps", "exe", "auxv", "stack", "syscall", "io", "fdinfo", "map_files"]:
    def look(name=name):
        path = "/proc/1/" + name
        if name in ("root", "cwd", "exe"):
            os.readlink(path)
        elif name in ("fd", "fdinfo", "map_files"):
            os.listdir(path)
        elif name == "maps":
            return "ok" if open(path).read() else "empty"
        else:
            os.read(os.open(path, R), 1)
    attempt("/proc/1/" + name, look)
attempt("write /proc/1/mem", lambda: opened("/proc/1/mem", W))
attempt("write /proc/1/oom_score_adj", lambda: opened("/proc/1/oom_score_adj", W))
attempt("ptrace attach 1", lambda: call(101, 16, 1, 0, 0))
attempt("ptrace seize 1", lambda: call(101, 0x4206, 1, 0, 0))
iov = struct.pack("QQ", ctypes.addressof(ctypes.create_string_buffer(8)), 8)
remote = struct.pack("QQ", 0x400000, 8)
attempt("process_vm_readv 1", lambda: call(310, 1, ctypes.create_string_buffer(iov), 1, ctypes.create_string_buffer(remote), 1, 0))
attempt("process_vm_writev 1", lambda: call(311, 1, ctypes.create_string_buffer(iov), 1, ctypes.create_string_buffer(remote), 1, 0))
attempt("kcmp 1", lambda: call(312, 1, os.getpid(), 0, 0, 0))
def getfd():
    fd = libc.syscall(434, 1, 0)
    if fd < 0:
        return outcome(fd)
    return call(438, fd, 3, 0)
attempt("pidfd_getfd 1", getfd)
for number in [9, 19, 15, 2, 18]:
    attempt("kill 1 %d" % number, lambda number=number: os.kill(1, number))
attempt("pidfd_send_signal 1", lambda: call(424, libc.syscall(434, 1, 0), 19, None, 0))
attempt("renice 1", lambda: os.setpriority(os.PRIO_PROCESS, 1, 10))
attempt("affinity 1", lambda: os.sched_setaffinity(1, {0}))
attempt("ioprio 1", lambda: call(251, 1, 1, 0x6000))
attempt("prlimit 1", lambda: call(302, 1, 7, ctypes.create_string_buffer(struct.pack("QQ", 3, 3)), None))
attempt("write the agent", lambda: opened("/proc/1/exe", W))
attempt("become the agent's user", lambda: os.setresuid(65535, 65535, 65535) if os.getuid() == 0 else call(117, 65535, 65535, 65535))

# E21: /proc and /sys
for path in ["kcore", "kmsg", "kallsyms", "keys", "timer_list", "sched_debug", "interrupts", "kpagecount", "kpageflags", "vmallocinfo", "slabinfo", "diskstats", "partitions", "swaps", "mdstat", "cmdline", "softirqs"]:
    attempt("read /proc/" + path, lambda path=path: "%d bytes" % len(os.read(os.open("/proc/" + path, R | os.O_NONBLOCK), 4096)))
for path in ["fs", "bus", "driver", "acpi", "asound", "irq", "scsi"]:
    attempt("list /proc/" + path, lambda path=path: "%d files" % len(os.listdir("/proc/" + path)))
for path in ["firmware", "kernel/debug", "kernel/tracing", "kernel/security", "fs/bpf", "power", "module", "class/dmi", "kernel/uevent_helper", "block"]:
    attempt("see /sys/" + path, lambda path=path: "ok" if os.listdir("/sys/" + path) else "empty")

# E22 to E28: system calls that no program inside needs
zero = ctypes.create_string_buffer(4096)
CALLS = {"add_key": 248, "request_key": 249, "keyctl": 250, "bpf": 321, "perf_event_open": 298, "userfaultfd": 323,
         "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "init_module": 175, "finit_module": 313,
         "delete_module": 176, "kexec_load": 246, "kexec_file_load": 320, "swapon": 167, "swapoff": 168, "acct": 163,
         "quotactl": 179, "iopl": 172, "ioperm": 173, "settimeofday": 164, "clock_settime": 227, "clock_adjtime": 305,
         "syslog": 103, "sethostname": 170, "setdomainname": 171, "open_by_handle_at": 304, "name_to_handle_at": 303,
         "fanotify_init": 300, "modify_ldt": 154, "lookup_dcookie": 212, "vhangup": 153, "nfsservctl": 180,
         "move_pages": 279, "migrate_pages": 256, "mbind": 237, "set_mempolicy": 238, "process_madvise": 440,
         "pidfd_getfd": 438, "memfd_secret": 447, "uselib": 134, "ustat": 136, "sysfs": 139, "_sysctl": 156}
for name, number in CALLS.items():
    child("call " + name, lambda number=number: call(number, 0, zero, 0, 0, 0))
# Wrong magic numbers: EINVAL would mean that the kernel checked them.
attempt("call reboot", lambda: call(169, 1, 2, 3, 0))
attempt("adjtimex sets", lambda: call(159, ctypes.create_string_buffer(struct.pack("I", 1) + b"\0" * 300)))
attempt("personality no randomize", lambda: call(135, 0x0040000))
attempt("personality read implies exec", lambda: call(135, 0x0400000))
child("x32 call", lambda: call(0x40000000 + 39))
def modules():
    try:
        return len(open("/proc/modules").read().splitlines())
    except FileNotFoundError:
        return 0
before = modules()

# E29, E30: sockets
FAMILIES = {"UNIX": 1, "INET": 2, "INET6": 10, "NETLINK": 16, "PACKET": 17, "ALG": 38, "VSOCK": 40, "XDP": 44, "KEY": 15, "RDS": 21,
            "TIPC": 30, "CAN": 29, "BLUETOOTH": 31, "AX25": 3, "IPX": 4, "APPLETALK": 5, "X25": 9, "LLC": 26, "KCM": 41, "QIPCRTR": 42, "SMC": 43}
for name, family in FAMILIES.items():
    for kind in [1, 2, 3, 5]:
        attempt("socket %s %d" % (name, kind), lambda family=family, kind=kind: call(41, family, kind, 0))
for name, protocol in {"ROUTE": 0, "AUDIT": 9, "KOBJECT": 15, "NETFILTER": 12, "XFRM": 6, "CRYPTO": 21, "RDMA": 20, "GENERIC": 16, "SOCK_DIAG": 4}.items():
    attempt("netlink " + name, lambda protocol=protocol: call(41, 16, 3, protocol))
results["modules loaded"] = str(modules() - before)

# E31, E50: unix sockets of the host
attempt("abstract sockets", lambda: "%d seen" % len([l for l in open("/proc/net/unix").read().splitlines()[1:] if "@" in l]))
attempt("host sockets", lambda: "%d seen" % len([l for l in open("/proc/net/unix").read().splitlines()[1:] if "agent.sock" in l]))
def connect(path):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(1)
    s.connect(path)
for path in ["/run/docker.sock", "/var/run/docker.sock", "/run/containerd/containerd.sock", "/run/dbus/system_bus_socket", "/run/systemd/private", "\0agent.sock"]:
    attempt("connect " + path.replace("\0", "@"), lambda path=path: connect(path))
attempt("listening agent by /proc/1/fd/3", lambda: connect("/proc/1/fd/3"))
attempt("interfaces", lambda: " ".join(sorted(name for _, name in socket.if_nameindex())))
for address in ["127.0.0.1:7300", "169.254.169.254:80", "10.0.0.1:80", "192.168.0.1:80"]:
    def reach(address=address):
        host, port = address.split(":")
        s = socket.socket()
        s.settimeout(1)
        s.connect((host, int(port)))
    attempt("reach " + address, reach)

# E34: set-user-id
def setuid_program():
    import shutil, subprocess
    path = "/tmp/suid%d" % os.getpid()
    shutil.copy("/usr/bin/id", path)
    os.chmod(path, 0o4755)
    if os.getuid() == 0:
        os.chown(path, 1000, 1000)
        os.chmod(path, 0o4755)
    said = subprocess.run([path], capture_output=True, text=True).stdout
    os.unlink(path)
    return "changed" if "euid" in said else "same"
attempt("set-user-id program", setuid_program)

# E35 to E37: the kernel's view of this process, in every thread
def statuses():
    seen = set()
    for task in os.listdir("/proc/self/task"):
        lines = dict(l.split(":", 1) for l in open("/proc/self/task/%s/status" % task).read().splitlines() if ":" in l)
        seen.add(tuple(lines[k].strip() for k in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Seccomp_filters", "Uid"]))
    return seen
stop = threading.Event()
thread = threading.Thread(target=stop.wait)
thread.start()
attempt("posture", lambda: " | ".join(" ".join(s).replace("\t", ",") for s in sorted(statuses())))
stop.set()
thread.join()
attempt("uid_map", lambda: " ".join(open("/proc/self/uid_map").read().split()))

# E39, E41, E43: shared kernel objects and priorities
def rt():
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
child("real time", rt)
child("nice -20", lambda: os.setpriority(os.PRIO_PROCESS, 0, -20))
child("real time io", lambda: call(251, 1, 0, 0x2000))
def lower_oom():
    with open("/proc/self/oom_score_adj", "w") as f:
        f.write("-500")
child("oom_score_adj -500", lower_oom)
import resource
child("raise files", lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (1 << 21, 1 << 21)))
child("raise core", lambda: resource.setrlimit(resource.RLIMIT_CORE, (-1, -1)))
child("mlockall of much", lambda: call(151, 7) if False else outcome(libc.mlock(ctypes.c_void_p(ctypes.addressof(ctypes.create_string_buffer(64 << 20))), ctypes.c_size_t(64 << 20))))
child("huge pages", lambda: "ok" if libc.mmap(None, 2 << 20, 3, 0x40022, -1, 0) != -1 else outcome(-1))

# E33: typing into a terminal
def tiocsti(request):
    import pty
    main, side = pty.openpty()
    return outcome(libc.ioctl(side, ctypes.c_ulong(request), ctypes.c_char_p(b"x")))
for name, request in {"TIOCSTI": 0x5412, "TIOCSTI+2^32": 0x100005412, "TIOCLINUX": 0x541C, "TIOCCONS": 0x541D, "TIOCSETD": 0x5423}.items():
    attempt("ioctl " + name, lambda request=request: tiocsti(request))
attempt("controlling terminal", lambda: opened("/dev/tty", R))

# E46, E47: the host's files
for path in ["/root/.ssh", "/root/.cargo", "/home", "/etc/shadow", "/etc/ssh", "/var/log/syslog", "/var/lib/docker", "/boot", "/work", "/old_root", "/own", "/new"]:
    attempt("see " + path, lambda path=path: " ".join(sorted(os.listdir(path))[:8]) if os.path.isdir(path) else "%d bytes" % len(open(path).read()))
def lower():
    with open("/usr/bin/id", "r+b") as f:
        f.write(b"")
attempt("write a program of the image", lower)

print(json.dumps(results))
