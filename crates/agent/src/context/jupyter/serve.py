# Whether any interpreter of Python will do.
AUTO = 'otherwise' in globals()


def enter():
    """Waits for the word to begin; where this was started ahead, the directory may be another now."""
    kind = None
    while kind != BEGIN:
        kind, body = read_frame()
    try:
        os.chdir(body)
    except OSError as error:
        unable('cannot enter the start directory: %s' % error.strerror)


def start(name, signals):
    """The kernel, and what speaks with it."""
    try:
        begin = prepare(name)
        directory = tempfile.mkdtemp(prefix='kernel-')
    except Exception as error:
        if AUTO or isinstance(error, ImportError):
            return None
        raise
    enter()
    adopt()
    client = Client(begin(directory), signals)
    client.ready()
    return client


def serve():
    os.set_inheritable(CONTROL, False)
    signals = Signals()
    name = os.environ.pop('ISOLET_CONTEXT_KERNEL', 'python3')
    client = start(name, signals)
    if client is None:
        if not AUTO:
            unable('there is no Jupyter in the image of this sandbox: it needs the package ipykernel')
        return False
    say(READY, (client.kernel.pid or 0).to_bytes(4, 'big'))
    output = Output()
    while True:
        came = client.wait(client.between)
        if 'ended' in came:
            end(client.kernel)
        if CONTROL in came:
            kind, body = read_frame()
            if kind == RUN:
                run(client, body[:8], json.loads(body[8:]), output)
            continue
        # What is printed between runs.
        for socket in (client.iopub, client.stdin, client.shell):
            message = client.receive(socket) if socket in came else None
            if message and socket is client.iopub:
                output.take(message)


def run(client, number, order, output):
    client.signals.interrupts = 0
    output.last, output.running = None, True
    one = Run(client, order, output)
    one.finish()
    output.running = False
    reap(client.kernel)
    if one.fault is not None:
        say(ERROR, fault(one.fault))
    say(DONE, number)


if __name__ == '__main__' and serve() is False:
    # What was found does not import. The interpreter is as it was, but for what that took.
    forget()
    sys.path[:] = path
    exec(compile(otherwise, '<isolet>', 'exec'), {'__name__': '__main__'})
