# The data of what is displayed, beside its picture or its text: figures of matplotlib and tables of
# pandas, and containers as JSON. Images that Pillow shows are displayed. Nothing is imported for this: where the libraries are not loaded, no
# value is of their kinds.
CHART = 'application/vnd.isolet.chart+json'
TABLE = 'application/vnd.isolet.table+json'
# More than this many points or cells are left out; the picture and the text stay.
VALUES_MAX = 100_000
JSON_BYTES_MAX = 1024 * 1024


def add_structured(display):
    """Has a kernel's display formatter add these."""
    from IPython.core.formatters import BaseFormatter, JSONFormatter
    from traitlets import ObjectName, Unicode

    class Chart(BaseFormatter):
        format_type = Unicode(CHART)
        print_method = ObjectName('_repr_chart_')

        def __call__(self, value):
            return quietly(chart_of_figure, value)

    class Table(BaseFormatter):
        format_type = Unicode(TABLE)
        print_method = ObjectName('_repr_table_')

        def __call__(self, value):
            return quietly(table_of_frame, value)

    class Container(JSONFormatter):
        def __call__(self, value):
            said = quietly(container, value)
            return super().__call__(value) if said is None else said

    sys.meta_path.insert(0, ImageViewers)
    formatters = display.formatters
    formatters[CHART] = Chart(parent=display)
    formatters[TABLE] = Table(parent=display)
    formatters['application/json'] = Container(parent=display)


class ImageViewers:
    """Finds PIL.ImageShow as ever, and has it show images here: programs have no window."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != 'PIL.ImageShow':
            return None
        from importlib.machinery import PathFinder
        spec = PathFinder.find_spec(name, path)
        if spec and spec.loader:
            load = spec.loader.exec_module

            def loaded(module):
                load(module)
                getattr(module, '_viewers', []).sort(key=lambda one: type(one).__name__ != 'IPythonViewer')

            spec.loader.exec_module = loaded
        return spec


def quietly(make, value):
    # What cannot be described is displayed without a description.
    try:
        return make(value)
    except Exception:
        return None


def container(value):
    if type(value) not in (dict, list):
        return None
    text = json.dumps(value, allow_nan=False)
    return json.loads(text) if len(text) <= JSON_BYTES_MAX else None


def scalar(value):
    """A value as JSON has it: numbers that are none become null."""
    if hasattr(value, 'isoformat'):
        return value.isoformat()
    if type(value).__name__ == 'datetime64':
        return str(value.astype('datetime64[s]'))
    if hasattr(value, 'item'):
        value = value.item()
    if isinstance(value, float):
        return value if value - value == 0 else None
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def number(value):
    """A position as text of six digits says it, which hides what rounding has added."""
    return float('%.6g' % value)


def table_of_frame(value):
    pandas = sys.modules.get('pandas')
    frame = getattr(pandas, 'DataFrame', None)
    if frame is None or not isinstance(value, frame) or value.size > VALUES_MAX:
        return None
    return {str(name): [scalar(cell) for cell in column] for name, column in value.items()}


def chart_of_figure(value):
    module = sys.modules.get('matplotlib.figure')
    if module is None or not isinstance(value, module.Figure):
        return None
    axes = value.get_axes()
    if not any(one.has_data() for one in axes):
        return None
    if len(axes) == 1:
        return chart_of_axes(axes[0])
    title = getattr(value, '_suptitle', None)
    title = title.get_text() if title else None
    return {'type': 'superchart', 'title': title or None, 'elements': [chart_of_axes(one) for one in axes]}


def chart_of_axes(axes):
    kind = kind_of(axes)
    chart = {'type': kind, 'title': axes.get_title() or None, 'elements': []}
    if kind in ('unknown', 'pie'):
        if kind == 'pie':
            chart['elements'] = slices(axes)
        return chart
    for side, label in (('x', axes.get_xlabel()), ('y', axes.get_ylabel())):
        unit = re.search(r'\s\((.+?)\)|\[(.+?)\]', label)
        chart[side + '_label'] = label or None
        chart[side + '_unit'] = (unit[1] or unit[2]) if unit else None
    if kind in ('line', 'scatter'):
        for side, axis in (('x', axes.xaxis), ('y', axes.yaxis)):
            describe_axis(chart, side, axis)
    chart['elements'], lies = ELEMENTS[kind](axes)
    if lies:
        # Horizontal bars and boxes: the values are on the other axis.
        for name in ('label', 'unit'):
            x, y = 'x_' + name, 'y_' + name
            chart[x], chart[y] = chart[y], chart[x]
    return chart


def kind_of(axes):
    from matplotlib import collections, patches
    lines = [line for line in axes.lines if not is_rule(line)]
    others = [*axes.collections, *axes.patches, *axes.images]

    def only(kind):
        return bool(others) and all(isinstance(one, kind) for one in others)

    if not others:
        return 'line'
    if only(patches.PathPatch):
        return 'box_and_whisker'
    if lines:
        return 'unknown'
    if only(collections.PathCollection):
        return 'scatter'
    if only(patches.Wedge):
        return 'pie'
    return 'bar' if only(patches.Rectangle) and axes.containers else 'unknown'


def is_rule(line):
    """Whether it is a straight line across, such as `axhline` draws."""
    x, y = line.get_xdata(orig=False), line.get_ydata(orig=False)
    return len(x) == len(y) == 2 and (x[0] == x[1] or y[0] == y[1])


def describe_axis(chart, side, axis):
    from matplotlib import category, dates
    ticks = axis.get_majorticklocs()
    scale = axis.get_scale()
    if isinstance(axis.get_major_locator(), dates.DateLocator):
        scale = 'datetime'
        ticks = [dates.num2date(tick).isoformat() for tick in ticks]
    else:
        ticks = [float(tick) for tick in ticks]
        if isinstance(axis.get_major_formatter(), category.StrCategoryFormatter):
            scale = 'categorical'
    chart[side + '_scale'] = scale
    chart[side + '_ticks'] = ticks
    chart[side + '_tick_labels'] = [label.get_text() for label in axis.get_ticklabels()]


def points(xs, ys):
    if len(xs) > VALUES_MAX:
        raise ValueError('too many points')
    return [(scalar(x), scalar(y)) for x, y in zip(xs, ys)]


def lines(axes):
    elements = []
    for line in axes.lines:
        if is_rule(line):
            continue
        label = str(line.get_label())
        # The name of a line that has none.
        label = label.replace('_child', 'Line ', 1) if label.startswith('_child') else label
        elements.append({'label': label, 'points': points(line.get_xdata(), line.get_ydata())})
    return elements, False


def clouds(axes):
    elements = []
    for cloud in axes.collections:
        offsets = cloud.get_offsets()
        said = points(offsets[:, 0], offsets[:, 1])
        elements.append({'label': str(cloud.get_label()), 'points': said})
    return elements, False


def slices(axes):
    return [
        {'label': one.get_label(), 'angle': number(abs(one.theta2 - one.theta1)), 'radius': number(one.r)}
        for one in axes.patches
    ]


def bars(axes):
    elements, lies = [], False
    for place, group in enumerate(axes.containers):
        lies = getattr(group, 'orientation', 'vertical') == 'horizontal'
        axis = axes.yaxis if lies else axes.xaxis
        names = dict(zip(map(number, axis.get_majorticklocs()), (one.get_text() for one in axis.get_ticklabels())))
        label = str(group.get_label())
        label = 'Group %d' % place if label.startswith('_container') else label
        for bar in group:
            if lies:
                middle, value = bar.get_y() + bar.get_height() / 2, bar.get_width()
            else:
                middle, value = bar.get_x() + bar.get_width() / 2, bar.get_height()
            name = names.get(number(middle)) or '%g' % middle
            elements.append({'label': name, 'group': label, 'value': scalar(value)})
    return elements, lies


def boxes(axes):
    """Boxes of `boxplot(…, patch_artist=True)`, whose whiskers and outliers are lines beside them."""
    corners = [one.get_path().vertices for one in axes.patches]
    # Of standing boxes the edges across have one width, of lying ones one height.
    widths = {number(one[:, 0].max() - one[:, 0].min()) for one in corners}
    heights = {number(one[:, 1].max() - one[:, 1].min()) for one in corners}
    lies = len(heights) == 1 and len(widths) > 1
    across, along = (1, 0) if lies else (0, 1)
    axis = axes.yaxis if lies else axes.xaxis
    names = [label.get_text() for label in axis.get_ticklabels()]
    elements = []
    for place, corner in enumerate(corners):
        span = corner[:, across].min(), corner[:, across].max()
        low, high = number(corner[:, along].min()), number(corner[:, along].max())
        box = {
            'label': names[place] if place < len(names) else str(place + 1),
            'min': low, 'first_quartile': low, 'median': low, 'third_quartile': high, 'max': high, 'outliers': [],
        }
        for line in axes.lines:
            data = line.get_xdata(orig=False), line.get_ydata(orig=False)
            where, values = data[across], [number(value) for value in data[along]]
            if not len(where) or where.min() < span[0] or where.max() > span[1]:
                continue
            add_to_box(box, line, where, values)
        elements.append(box)
    return elements, lies


def add_to_box(box, line, where, values):
    low, high = box['first_quartile'], box['third_quartile']
    if line.get_linestyle() == 'None':
        box['outliers'] += [value for value in values if value < low or value > high]
    elif len(values) == 2 and values[0] == values[1] and low <= values[0] <= high:
        box['median'] = values[0]
    elif len(values) == 2 and where[0] == where[1]:
        box['min'] = min(box['min'], *values)
        box['max'] = max(box['max'], *values)


ELEMENTS = {'line': lines, 'scatter': clouds, 'bar': bars, 'box_and_whisker': boxes}
