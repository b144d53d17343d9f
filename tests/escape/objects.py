# Allocates kernel objects that are counted per user, or once for the whole machine.
#   objects.py fill NAME   allocate up to the limit, print "NAME count errno", hold until stdin ends
#   objects.py one         allocate one more of each, and print those that were refused as JSON
import ctypes, errno, json, os, resource, signal, struct, sys

libc = ctypes.CDLL(None, use_errno=True)
BOUND = 400_000
held = []


def ok(result):
    if result == -1:
        raise OSError(ctypes.get_errno(), "refused")
    return result


def files():
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def until_refused(take, most=BOUND):
    for count in range(most):
        try:
            held.append(take())
        except OSError as error:
            return count, error.errno
    return most, 0


def instance():
    return ok(libc.inotify_init1(os.O_CLOEXEC))


def instances():
    return until_refused(instance, 100_000)


def watches():
    # Instances may watch the same files, so few files are enough for many watches.
    instances = [instance() for _ in range(60)]
    os.makedirs("/tmp/watched", exist_ok=True)
    pairs = ((one, b"/tmp/watched/%d" % name) for name in range(BOUND) for one in instances)

    def watch():
        one, name = next(pairs)
        if one == instances[0]:
            open(name, "w").close()
        return ok(libc.inotify_add_watch(one, name, 2))
    return until_refused(watch, 3_000_000)


def timer():
    made = ctypes.c_void_p()
    return ok(libc.timer_create(1, None, ctypes.byref(made)))


def timers():
    return until_refused(timer)


def queued():
    last = signal.SIGRTMAX
    signal.pthread_sigmask(signal.SIG_BLOCK, [last])
    return ok(libc.sigqueue(os.getpid(), int(last), None))


def signals():
    return until_refused(queued)


def queue():
    name = b"/objects-%d-%d" % (os.getpid(), len(held))
    made = ok(libc.mq_open(name, os.O_RDWR | os.O_CREAT, 0o600, None))
    libc.mq_unlink(name)
    return made


def queues():
    return until_refused(queue, 10_000)


def key():
    return ok(libc.syscall(248, b"user", b"objects", b"x", 1, -3))


def keys():
    return until_refused(key, 1000)


def pipe():
    # A pipe beyond its user's share of pages is smaller.
    read, write = os.pipe()
    held.extend([read, write])
    if libc.fcntl(read, 1032) < 65536:
        raise OSError(errno.ENOSPC, "a small pipe")


def pipes():
    def large():
        read, write = os.pipe()
        held.extend([read, write])
        return ok(libc.fcntl(read, 1031, 1 << 20))
    return until_refused(large, 10_000)


def locked(size=4096):
    made = ok(libc.shmget(0, size, 0o1600))
    try:
        return ok(libc.shmctl(made, 11, None))
    finally:
        # It ends with the last process that has it attached.
        libc.shmat.restype = ctypes.c_void_p
        libc.shmat(made, None, 0)
        libc.shmctl(made, 0, None)


def memory():
    return until_refused(lambda: locked(256 * 1024), 1000)


def polled():
    import select
    return select.epoll().register(os.eventfd(0))


def polls():
    import select
    events = [os.eventfd(0) for _ in range(200)]
    pairs = ((one, event) for one in iter(select.epoll, None) for event in events)

    def register():
        one, event = next(pairs)
        held.append(one)
        return one.register(event)
    return until_refused(register)


NAMESPACES = [0x80, 0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000]


def namespaces():
    refused = 0
    for flag in NAMESPACES:
        if libc.unshare(flag) == 0:
            return 1, 0
        refused = ctypes.get_errno()
    return 0, refused


def terminal():
    return os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY)


def terminals():
    return until_refused(terminal, 200)


def context(events=1):
    made = ctypes.c_ulong()
    return ok(libc.syscall(206, events, ctypes.byref(made)))


def contexts():
    return until_refused(lambda: context(1024), 100)


FILL = {f.__name__: f for f in [instances, watches, timers, signals, queues, keys, pipes, memory, polls, namespaces,
                                terminals, contexts]}
ONE = {"instances": instance, "timers": timer, "signals": queued, "queues": queue, "pipes": pipe, "memory": locked,
       "polls": polled, "terminals": terminal,
       "watches": lambda: ok(libc.inotify_add_watch(instance(), b"/tmp", 2))}


def one():
    refused = {}
    for name, take in ONE.items():
        try:
            held.append(take())
        except OSError as error:
            refused[name] = errno.errorcode[error.errno]
    return refused


files()
if sys.argv[1] == "one":
    print(json.dumps(one()))
else:
    count, refused = FILL[sys.argv[2]]()
    print(sys.argv[2], count, errno.errorcode.get(refused, "none"), flush=True)
    sys.stdin.read()
