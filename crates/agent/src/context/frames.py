# Frames on descriptor 3, for every driver in Python: a length of four bytes, a kind, a body.
import os

CONTROL = 3


def read_whole(count):
    parts = []
    while count:
        part = os.read(CONTROL, min(count, 1 << 20))
        if not part:
            os._exit(0)
        parts.append(part)
        count -= len(part)
    return b''.join(parts)


def read_frame():
    head = read_whole(5)
    return head[4], read_whole(int.from_bytes(head[:4], 'big'))


def write_whole(fd, data):
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view):]


def put_variables(values):
    """Set environment variables, where None unsets one, and return what they were before."""
    before = {name: os.environ.get(name) for name in values}
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    return before


def packed(said, **how):
    """Encode as JSON in UTF-8. Unpaired surrogates are replaced, because no reader could decode them."""
    import json
    text = json.dumps(said, ensure_ascii=False, **how)
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode('utf-16-le', 'surrogatepass').decode('utf-16-le', 'replace').encode()


