# Allocates memory that the kernel holds for a program: one kind by its name, up to 200 MiB.
import ctypes, fcntl, mmap, os, resource, socket, sys
MOST = 200 << 20
keep = []
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
libc = ctypes.CDLL(None, use_errno=True)


def fill(write):
    total = 0
    try:
        while True:
            total += write(b"x" * 65536)
    except BlockingIOError:
        return total


def unix():
    one, other = socket.socketpair()
    keep.extend([one, other])
    one.setblocking(False)
    return fill(one.send)


def pipe():
    read, write = os.pipe()
    keep.extend([read, write])
    fcntl.fcntl(write, 1031, 1 << 20)
    os.set_blocking(write, False)
    return fill(lambda block: os.write(write, block))


def memfd():
    made = os.memfd_create("x")
    keep.append(made)
    return os.write(made, b"x" * (1 << 20))


def shm():
    with open("/dev/shm/x", "ab") as file:
        return file.write(b"x" * (1 << 20))


def populate():
    keep.append(mmap.mmap(-1, 1 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_POPULATE))
    return 1 << 20


def message():
    queue = libc.msgget(0, 0o1600)
    if queue < 0:
        raise OSError(ctypes.get_errno(), "msgget")
    return 8192 * sum(libc.msgsnd(queue, ctypes.create_string_buffer(b"\1" * 8200, 8200), 8192, 0o4000) == 0 for _ in range(2))


def semaphores():
    if libc.semget(0, 32000, 0o1600) < 0:
        raise OSError(ctypes.get_errno(), "semget")
    return 32000 * 64


taken = 0
try:
    while taken < MOST:
        taken += globals()[sys.argv[1]]()
    print("got through")
except (OSError, MemoryError) as error:
    print("refused after", taken >> 20, "MiB:", error)
