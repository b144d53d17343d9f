"""What a program at a terminal may do to it, to others inside, and to any that is not its own.

Prints an object: what was tried, and the kernel's answer.
"""
import ctypes, errno, json, os

libc = ctypes.CDLL(None, use_errno=True)
results = {}

def outcome(value):
    return "ok" if value >= 0 else errno.errorcode.get(ctypes.get_errno(), "?")

def ioctl(fd, request, argument):
    return outcome(libc.syscall(16, ctypes.c_long(fd), ctypes.c_ulong(request), argument))

# Requests as the kernel reads them: 32 bits, regardless of the upper bits.
REQUESTS = {"TIOCSTI": 0x5412, "TIOCLINUX": 0x541C, "TIOCCONS": 0x541D, "TIOCSETD": 0x5423}
def tried(name, fd):
    for request, number in REQUESTS.items():
        for high in (0, 1 << 32, 0xFFFFFFFF << 32):
            buffer = ctypes.create_string_buffer(b"\x02" + bytes(15))
            results["%s +%x on %s" % (request, high >> 32, name)] = ioctl(fd, number + high, buffer)

own = os.ttyname(0)
results["name"] = own
terminals = {"standard input": 0, "standard output": 1, "standard error": 2}
terminals["/dev/tty"] = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
for name in sorted(os.listdir("/dev/pts")):
    if name.isdigit() and "/dev/pts/" + name != own:
        try:
            terminals["another"] = os.open("/dev/pts/" + name, os.O_RDWR | os.O_NOCTTY)
        except OSError as error:
            results["another"] = errno.errorcode[error.errno]
main, side = os.openpty()
terminals["one of its own"] = side
for name, fd in terminals.items():
    tried(name, fd)

# Inherited descriptors: a terminal other than its own would belong to another process.
devices = set()
for fd in range(3, 1024):
    try:
        if os.isatty(fd) and fd not in (terminals["/dev/tty"], terminals.get("another"), main, side):
            devices.add(os.ttyname(fd))
    except OSError:
        pass
results["inherited"] = " ".join(sorted(devices - {own})) or "none"

# The controlling terminal is its own, and its session leader is inside.
stat = open("/proc/self/stat").read().rsplit(") ", 1)[1].split(" ")
results["controlling"] = "own" if int(stat[4]) == os.stat(0).st_rdev else "other"
results["leader"] = "inside" if os.getsid(0) > 0 else "outside"
results["file system"] = "own" if os.stat(0).st_dev == os.stat("/dev/pts").st_dev else "other"

for name in ["tty0", "tty1", "console", "ttyS0", "vcs", "vcsa1", "ttyprintk"]:
    try:
        os.open("/dev/" + name, os.O_RDWR | os.O_NOCTTY)
        results["open /dev/" + name] = "ok"
    except OSError as error:
        results["open /dev/" + name] = errno.errorcode[error.errno]

print("\nresults:" + json.dumps(results) + ":end")
