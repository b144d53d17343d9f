class Input:
    """Standard input: the text that came with the run."""

    encoding, errors, name, closed, mode = 'utf-8', 'strict', '<stdin>', False, 'r'

    def __init__(self, text):
        import io
        self.given = text is not None
        self.text = io.StringIO(text or '')
        self.buffer = io.BytesIO((text or '').encode('utf-8', 'surrogatepass')) if text else io.BytesIO()

    def __getattr__(self, name):
        return getattr(self.text, name)

    def __iter__(self):
        return iter(self.text)

    def fileno(self):
        return 0

    def isatty(self):
        return False


def ask(prompt=''):
    given = sys.stdin
    if not isinstance(given, Input):
        return real_input(prompt)
    sys.stdout.write(str(prompt))
    line = given.readline()
    if line:
        return line[:-1] if line.endswith('\n') else line
    if given.given:
        raise EOFError('input() has read all of the input that came with this run')
    raise EOFError('input() was called, and no input came with this run: send it as stdin')


real_input, builtins.input = builtins.input, ask

# What Jupyter asks of an object, and what is said of it.
REPRS = (
    ('text/html', '_repr_html_'), ('text/markdown', '_repr_markdown_'), ('image/svg+xml', '_repr_svg_'),
    ('image/png', '_repr_png_'), ('image/jpeg', '_repr_jpeg_'), ('text/latex', '_repr_latex_'),
    ('application/json', '_repr_json_'), ('application/javascript', '_repr_javascript_'),
    ('application/pdf', '_repr_pdf_'),
)


def method(value, name):
    # As Jupyter: never of a class itself, nor of what answers to every name.
    if isinstance(value, type) or getattr(value, '_ipython_canary_method_should_not_exist_', None):
        return None
    found = getattr(value, name, None)
    return found if callable(found) else None


def bundle(value):
    data, metadata = {}, {}

    def add(kind, said):
        if isinstance(said, tuple) and len(said) == 2 and isinstance(said[1], dict):
            said, metadata[kind] = said
        if said is not None:
            data[kind] = said

    whole = method(value, '_repr_mimebundle_')
    if whole:
        said = whole(include=None, exclude=None)
        if isinstance(said, tuple):
            said, more = said
            metadata.update(more or {})
        data.update(said or {})
    for kind, name in REPRS:
        if kind not in data and method(value, name):
            add(kind, method(value, name)())
    figure = sys.modules.get('matplotlib.figure')
    if figure and isinstance(value, figure.Figure) and 'image/png' not in data:
        data['image/png'] = picture(value)
    if 'text/plain' not in data:
        data['text/plain'] = plain(value)
    return data, metadata


def plain(value):
    text = repr(value)
    if len(text) > 100 and type(value) in (dict, list, tuple, set, frozenset):
        import pprint
        text = pprint.pformat(value, sort_dicts=False)
    return text


def picture(figure):
    import io
    out = io.BytesIO()
    figure.savefig(out, format='png', bbox_inches='tight')
    return out.getvalue()


def size(said):
    return len(said) if isinstance(said, (str, bytes)) else 0


def tell(kind, data, metadata):
    import base64
    data = dict(data)
    cut = {}
    text = data.get('text/plain')
    if isinstance(text, str) and len(text) > TEXT_BYTES_MAX:
        cut['text/plain'] = len(text)
        data['text/plain'] = text[:TEXT_BYTES_MAX]
    while sum(map(size, data.values())) > BUNDLE_BYTES_MAX:
        largest = max(data, key=lambda name: size(data[name]))
        cut[largest] = size(data.pop(largest))
    for name, said in data.items():
        if isinstance(said, (bytes, bytearray)):
            data[name] = base64.b64encode(said).decode()
    said = {'kind': kind, 'data': data, 'metadata': metadata}
    if cut:
        said['cut'] = cut
    for stream in streams:
        stream.flush()
    said = packed(said, default=repr)
    if len(said) > 2 * BUNDLE_BYTES_MAX:
        said = packed({'kind': kind, 'data': {}, 'metadata': {}, 'cut': {'application/json': len(said)}})
    say(DISPLAY, said, wait=True)


def show(value, kind='display'):
    own = method(value, '_ipython_display_')
    if own:
        own()
    else:
        tell(kind, *bundle(value))


def display(*values, include=None, exclude=None, metadata=None, transient=None, display_id=None, raw=False, **_):
    """Shows values as the last expression of a run is shown."""
    for value in values:
        if raw:
            tell('display', value, metadata or {})
        else:
            show(value)


def figures():
    """Shows and closes the figures of matplotlib that are open."""
    pyplot = sys.modules.get('matplotlib.pyplot')
    if not pyplot or not hasattr(pyplot, 'get_fignums'):
        return
    for number in pyplot.get_fignums():
        figure = pyplot.figure(number)
        tell('display', {'image/png': picture(figure), 'text/plain': repr(figure)}, {})
    pyplot.close('all')


class Pyplot:
    """Finds matplotlib.pyplot as ever, and has its show() show."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != 'matplotlib.pyplot':
            return None
        from importlib.machinery import PathFinder
        spec = PathFinder.find_spec(name, path)
        if spec and spec.loader:
            load = spec.loader.exec_module

            def loaded(module):
                load(module)
                module.show = lambda *_, **__: figures()

            spec.loader.exec_module = loaded
        return spec


sys.meta_path.insert(0, Pyplot)
# Children of ours have no window either.
os.environ.setdefault('MPLBACKEND', 'Agg')


def trace(error):
    """An error as JSON, with the frames of the tenant's code alone."""
    import traceback
    name, message, lines = 'Error', '', []
    try:
        name = str(type(error).__name__)[:1000]
        message = str(error)
    except BaseException:
        message = '(its text cannot be made)'
    try:
        at = error.__traceback__
        while at and at.tb_frame.f_code.co_filename == HERE:
            at = at.tb_next
        told = traceback.TracebackException(type(error), error, at, limit=None)
        clean(told, set())
        lines = ''.join(told.format()).splitlines()
    except BaseException as fault:
        lines = ['(its traceback cannot be made: %s)' % type(fault).__name__]
    if len(lines) > 400:
        lines = lines[:200] + ['… %d lines …' % (len(lines) - 400)] + lines[-200:]
    lines = [line[:4000] for line in lines]
    said = {'name': name, 'message': message[:TEXT_BYTES_MAX], 'traceback': lines}
    return packed(said)


def clean(told, seen):
    # Frames of this driver are no part of anybody's program.
    if told is None or id(told) in seen:
        return
    seen.add(id(told))
    told.stack[:] = [frame for frame in told.stack if frame.filename != HERE]
    clean(told.__cause__, seen)
    clean(told.__context__, seen)
    for one in getattr(told, 'exceptions', None) or ():
        clean(one, seen)


