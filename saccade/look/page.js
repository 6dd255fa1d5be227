"use strict";
// The page of one prediction: choose a layer and a head, then select a token by mouse, touch or keyboard.
(() => {
  const MOST_LINES = 120; // tokens of an axis in the line view
  const SVG_CELLS = 10000; // beyond this many cells the matrix is painted on a canvas
  const HEAT = [[204, 24, 48], [255, 214, 64]]; // over an image: colours of a small weight and of the largest
  const SMALL = 96; // pixels: an image that is smaller is enlarged without smoothing
  const FRAME = 700; // milliseconds per query while playing
  const data = JSON.parse(document.getElementById("data").textContent);
  const at = (id) => document.getElementById(id);
  if (!data.maps.length) return;
  for (const axis of data.maps.flatMap((map) => [map.tokens, map.words]).filter(Boolean).flatMap((part) => [part.queries, part.keys])) {
    if (typeof axis.image === "number") axis.image = data.images[axis.image]; // all layers share it
    if (axis.kind === "time" && axis.image) Object.assign(axis, { kind: "grid", extra: [], rows: 1, columns: axis.labels.length }); // over the spectrogram
  }

  // What is shown: a map, a head ("mean" or its number), words or tokens, and the selected query and key (-1: none).
  const state = { view: "matrix", map: 0, head: "mean", words: true, row: 0, column: -1, pinned: false, sqrt: false, opacity: 0.7, smooth: true };
  let lines = null; // the line view, while it is shown
  let view; // {rows, columns, weights, largest, cell} of the state; rows and columns are labels
  const nodes = { rows: [], columns: [] }; // the element of each position
  const grids = { rows: null, columns: null }; // the picture of an axis over an image
  const graphs = { rows: null, columns: null }; // the drawing of an axis of nodes

  const make = (name, properties, ...children) => {
    const node = Object.assign(document.createElement(name), properties);
    node.append(...children);
    return node;
  };
  const shape = (name, attributes, text) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== undefined) node.textContent = text;
    return node;
  };
  const digits = (value, count = 2) => value.toFixed(count);
  const isRightToLeft = (label) => /^[^\p{L}]*[\p{Script=Hebrew}\p{Script=Arabic}\p{Script=Syriac}\p{Script=Thaana}]/u.test(label);

  // Weights are unsigned 16-bit integers, little-endian, in base64: 65535 is 1.
  const decoded = new Map();
  const unpack = (part) => {
    if (!decoded.has(part)) {
      const bytes = atob(part.weights);
      const numbers = new Float32Array(bytes.length / 2);
      for (let i = 0, b = 0; i < numbers.length; i++, b += 2) {
        numbers[i] = (bytes.charCodeAt(b) + 256 * bytes.charCodeAt(b + 1)) / 65535;
      }
      decoded.set(part, numbers);
    }
    return decoded.get(part);
  };
  const weightsOf = (part, heads, head) => {
    const all = unpack(part);
    const size = part.queries.labels.length * part.keys.labels.length;
    if (head !== "mean") return all.subarray(head * size, (head + 1) * size);
    const mean = new Float32Array(size);
    for (let i = 0; i < all.length; i++) mean[i % size] += all[i] / heads;
    return mean;
  };
  const maximum = (numbers) => numbers.reduce((largest, number) => (number > largest ? number : largest), 0);

  // The colours of the studio: one ramp from no weight to the largest, light or dark.
  const shades = () => {
    const stops = data.ramps[matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"];
    return Array.from({ length: 256 }, (_, i) => {
      const position = (i / 255) * (stops.length - 1);
      const low = Math.min(Math.floor(position), stops.length - 2);
      return stops[low].map((part, c) => Math.round(part + (stops[low + 1][c] - part) * (position - low)));
    });
  };
  let table = shades();
  const level = (weight, largest) => {
    const fraction = largest > 0 ? Math.min(1, Math.max(0, weight / largest)) : 0;
    return Math.round(255 * (state.sqrt ? Math.sqrt(fraction) : fraction));
  };
  // A colour, and black or white, whichever can be read on it.
  const inkOn = ([red, green, blue]) => {
    const linear = (part) => (part <= 10 ? part / 3294 : ((part / 255 + 0.055) / 1.055) ** 2.4);
    return 0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue) > 0.179 ? "#000" : "#fff";
  };
  // One pixel for each cell.
  const paint = (canvas, weights, width, largest) => {
    canvas.width = width;
    canvas.height = weights.length / width;
    const pen = canvas.getContext("2d");
    const image = pen.createImageData(canvas.width, canvas.height);
    for (let i = 0; i < weights.length; i++) image.data.set([...table[level(weights[i], largest)], 255], 4 * i);
    pen.putImageData(image, 0, 0);
  };

  const pickers = () => {
    data.maps.forEach((map, i) => at("layer").append(new Option(map.title, i)));
    at("layer").onchange = (event) => {
      state.map = Number(event.target.value);
      if (state.head !== "mean" && state.head >= data.maps[state.map].tokens.heads) state.head = "mean";
      render();
    };
    at("words").onchange = (event) => {
      state.words = event.target.checked;
      [state.row, state.column, state.pinned] = [0, -1, false];
      render();
    };
    at("view").onchange = (event) => {
      state.view = event.target.value;
      render({ pickers: false });
    };
    at("sqrt").onchange = (event) => {
      state.sqrt = event.target.checked;
      render();
    };
    at("opacity").oninput = (event) => {
      state.opacity = Number(event.target.value) / 100;
      select(state.row, state.column);
    };
    at("smooth").onchange = (event) => {
      state.smooth = event.target.checked;
      select(state.row, state.column);
    };
    at("play").onclick = play;
  };
  // The film: one gaze after the other.
  let timer = 0;
  const stop = () => {
    clearInterval(timer);
    timer = 0;
    at("play").textContent = "Play";
  };
  const play = () => {
    if (timer) return stop();
    select(state.row >= 0 && state.row + 1 < view.rows.length ? state.row : 0, -1);
    timer = setInterval(() => (state.row + 1 < view.rows.length ? select(state.row + 1, -1) : stop()), FRAME);
    at("play").textContent = "Pause";
  };

  // A head in small: the matrix, or over an image the mean of its queries.
  const thumbnail = ({ queries, keys: axis }, weights) => {
    const columns = axis.labels.length;
    if (axis.kind !== "grid") return [weights, columns];
    const mean = new Float32Array(columns);
    for (let i = 0; i < weights.length; i++) mean[i % columns] += weights[i] / queries.labels.length;
    return [mean.subarray(axis.extra.length), axis.columns];
  };
  const headPicker = (part) => {
    const legend = at("heads").firstElementChild;
    const choices = part.heads > 1 ? ["mean", ...Array(part.heads).keys()] : [];
    const labels = choices.map((head) => {
      const radio = make("input", { type: "radio", name: "head", value: head, checked: head === state.head });
      const canvas = make("canvas", { className: Math.max(view.rows.length, view.columns.length) > 60 ? "fine" : "" });
      const [weights, width] = thumbnail(part, weightsOf(part, part.heads, head));
      paint(canvas, weights, width, maximum(weights));
      radio.onchange = () => {
        state.head = head;
        render({ pickers: false });
      };
      return make("label", { className: "head" }, radio, canvas, make("span", {}, head === "mean" ? "mean" : `${head}`));
    });
    at("heads").hidden = !labels.length;
    at("heads").replaceChildren(legend, ...labels);
  };

  // One view for each class of axis: it fills `container` and returns the element of each position.
  const tokens = (container, labels, axis, choose) => {
    const buttons = labels.map((label, i) => token(label, () => choose(i)));
    container.dir = isRightToLeft(labels.join("")) ? "rtl" : "ltr";
    container.replaceChildren(...buttons);
    return buttons;
  };
  const token = (label, onSelect) => {
    const button = make("button", { type: "button", className: "token", tabIndex: -1 });
    button.append(make("span", { dir: "auto" }, label), make("small", {}));
    listen(button, onSelect);
    return button;
  };
  // Hovering selects unless something is pinned; a click pins, and a second one releases.
  const listen = (node, onSelect) => {
    node.onpointerenter = () => state.pinned || onSelect();
    node.onfocus = onSelect;
    node.onclick = () => {
      onSelect();
      pin(!isPinned());
    };
  };
  // Over an image: a heat map on a canvas, transparent buttons over its cells, and the path of the gaze.
  const grid = (container, labels, axis, choose, id) => {
    const extra = labels.slice(0, axis.extra.length).map((label, i) => token(label, () => choose(i)));
    const cells = labels.slice(axis.extra.length).map((label, i) => {
      const cell = make("button", { type: "button", className: "cell", tabIndex: -1, title: label, ariaLabel: label });
      listen(cell, () => choose(axis.extra.length + i));
      return cell;
    });
    const canvas = make("canvas", { className: "heat" });
    const line = shape("svg", { class: "path", viewBox: "0 0 1 1", preserveAspectRatio: "none" });
    const ring = make("span", { className: "gaze", hidden: true });
    const picture = make("div", { className: "picture" }, canvas, line, ring, make("div", { className: "cells" }, ...cells));
    if (axis.image) picture.prepend(make("img", { src: axis.image, alt: "", className: Math.max(...axis.size) < SMALL ? "coarse" : "" }));
    const aspect = axis.size ? axis.size[0] / axis.size[1] : axis.columns / axis.rows;
    Object.assign(picture.style, { aspectRatio: String(aspect), width: `min(100%, ${(22 * Math.sqrt(aspect)).toFixed(1)}rem)` });
    picture.style.setProperty("--columns", axis.columns);
    container.replaceChildren(...(extra.length ? [make("div", { className: "extra" }, ...extra)] : []), picture);
    grids[id] = { axis, canvas, line, ring };
    return [...extra, ...cells];
  };
  // A graph: nodes at their positions, and over its edges the weights of the selected node.
  const graph = (container, labels, axis, choose, id) => {
    if (axis.positions.length < labels.length) return tokens(container, labels, axis, choose);
    const radius = Math.max(5, Math.min(20, 220 / Math.sqrt(labels.length)));
    const picture = shape("svg", { class: "graph", viewBox: "0 0 1000 1000" });
    const points = axis.positions.map((point) => point.map((part) => 60 + 880 * part));
    for (const [a, b] of axis.edges) picture.append(shape("line", { class: "edge", x1: points[a][0], y1: points[a][1], x2: points[b][0], y2: points[b][1] }));
    const arcs = shape("g", {});
    picture.append(arcs);
    const buttons = labels.map((label, i) => {
      const [cx, cy] = points[i];
      const node = shape("g", { class: "node", tabindex: -1, role: "button", "aria-label": label });
      node.append(shape("circle", { cx, cy, r: radius }), shape("circle", { class: "weight", cx, cy, r: radius }));
      node.append(shape("text", { x: cx + radius + 3, y: cy - radius }, labels.length <= 80 ? label : ""), shape("title", {}, label), shape("desc", {}));
      listen(node, () => choose(i));
      picture.append(node);
      return node;
    });
    container.replaceChildren(picture);
    graphs[id] = { axis, arcs, points };
    return buttons;
  };
  const paintArcs = ({ axis, arcs, points }, query, values) => {
    const strongest = Math.max(maximum(values), 1e-9);
    const near = new Set(axis.edges.filter((pair) => pair.includes(query)).map(([a, b]) => (a === query ? b : a)));
    arcs.replaceChildren(...[...near].filter((key) => key !== query && values[key] > 0).map((key) => {
      const [[x0, y0], [x1, y1], part] = [points[key], points[query], values[key] / strongest];
      const d = `M${x0} ${y0}Q${(x0 + x1) / 2 + 0.08 * (y1 - y0)} ${(y0 + y1) / 2 - 0.08 * (x1 - x0)} ${x1} ${y1}`;
      return shape("path", { class: "arc", d, "stroke-width": 2 + 7 * part, "stroke-opacity": 0.15 + 0.85 * part });
    }));
  };
  const VIEWS = { tokens, grid, nodes: graph };

  // Bicubic interpolation between cells, as in a PNG of the same map.
  const cubic = (distance) => {
    const [x, a] = [Math.abs(distance), -0.75];
    if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
  };
  // Stretch rows of `columns` values by a factor, and return columns as rows: twice gives both directions.
  const stretch = (values, columns, factor) => {
    const rows = values.length / columns;
    const result = new Float32Array(values.length * factor);
    for (let x = 0; x < columns * factor; x++) {
      const centre = (x + 0.5) / factor - 0.5;
      const low = Math.floor(centre);
      for (let tap = low - 1; tap <= low + 2; tap++) {
        const [column, share] = [Math.min(Math.max(tap, 0), columns - 1), cubic(centre - tap)];
        for (let row = 0; row < rows; row++) result[x * rows + row] += share * values[row * columns + column];
      }
    }
    return result;
  };
  const paintHeat = ({ axis, canvas }, values) => {
    const cells = values.slice(axis.extra.length);
    const largest = Math.max(maximum(cells), 1e-9);
    const factor = state.smooth ? Math.max(1, Math.min(16, Math.floor(512 / Math.max(axis.rows, axis.columns)))) : 1;
    const pixels = factor > 1 ? stretch(stretch(cells, axis.columns, factor), axis.rows, factor) : cells;
    [canvas.width, canvas.height] = [axis.columns * factor, axis.rows * factor];
    canvas.classList.toggle("coarse", factor === 1);
    const pen = canvas.getContext("2d");
    const image = pen.createImageData(canvas.width, canvas.height);
    for (let i = 0; i < pixels.length; i++) {
      const fraction = Math.min(Math.max(pixels[i] / largest, 0), 1);
      for (let c = 0; c < 3; c++) image.data[4 * i + c] = HEAT[0][c] + (HEAT[1][c] - HEAT[0][c]) * fraction;
      image.data[4 * i + 3] = 255 * state.opacity * fraction;
    }
    pen.putImageData(image, 0, 0);
  };
  // The centre of mass of the largest weight and its neighbours.
  const gazeOf = (axis, values) => {
    const cells = values.slice(axis.extra.length);
    const best = cells.indexOf(maximum(cells));
    const [row, column] = [Math.floor(best / axis.columns), best % axis.columns];
    let [total, x, y] = [0, 0, 0];
    for (let r = Math.max(0, row - 1); r <= Math.min(axis.rows - 1, row + 1); r++) {
      for (let c = Math.max(0, column - 1); c <= Math.min(axis.columns - 1, column + 1); c++) {
        const weight = cells[r * axis.columns + c];
        [total, x, y] = [total + weight, x + weight * (c + 0.5), y + weight * (r + 0.5)];
      }
    }
    return total > 0 ? [x / total / axis.columns, y / total / axis.rows] : [0.5, 0.5];
  };
  // The gazes of the queries up to the selected one.
  const drawPath = ({ axis, line, ring }, row) => {
    const { weights, columns } = view;
    const points = Array.from({ length: row + 1 }, (_, r) => gazeOf(axis, weights.subarray(r * columns.length, (r + 1) * columns.length)));
    line.replaceChildren(shape("polyline", { points: points.map((point) => point.join(" ")).join(",") }));
    ring.hidden = row < 0;
    if (row >= 0) [ring.style.left, ring.style.top] = points[row].map((part) => `${100 * part}%`);
  };

  const strip = (id, labels, axis, choose) => {
    [grids[id], graphs[id]] = [null, null];
    const buttons = (VIEWS[axis.kind] ?? tokens)(at(id), labels, axis, choose, id);
    nodes[id] = buttons;
    at(id).onkeydown = (event) => {
      const forward = at(id).dir === "rtl" ? -1 : 1;
      const line = axis.kind === "grid" ? axis.columns : 1;
      const step = { ArrowRight: forward, ArrowLeft: -forward, ArrowDown: line, ArrowUp: -line, Home: -1e9, End: 1e9 }[event.key];
      if (!step) return;
      event.preventDefault();
      const now = buttons.indexOf(document.activeElement);
      buttons[Math.min(Math.max(now + step, 0), buttons.length - 1)].focus();
    };
  };

  const pen = document.createElement("canvas").getContext("2d");
  const shorten = (label, maxWidth, font) => {
    pen.font = `bold ${font}px ${getComputedStyle(document.body).fontFamily}`; // as wide as when it is selected
    const letters = [...label];
    if (pen.measureText(label).width <= maxWidth) return [label, pen.measureText(label).width];
    while (letters.length > 1 && pen.measureText(`${letters.join("")}…`).width > maxWidth) letters.pop();
    return [`${letters.join("")}…`, maxWidth];
  };

  const matrix = () => {
    const { rows, columns, weights, largest } = view;
    const width = at("attention").clientWidth;
    const maxLabel = width < 600 ? 90 : 140;
    const count = Math.max(rows.length, columns.length);
    const font = count > 60 ? 10 : 13;
    const [rowTexts, columnTexts] = [rows, columns].map((labels) => labels.map((label) => shorten(label, maxLabel, font)));
    const longest = (texts) => Math.max(...texts.map((text) => text[1]), 10);
    const left = Math.ceil(longest(rowTexts)) + 14;
    const [height, slant] = [Math.ceil(longest(columnTexts) * 0.87) + 22, Math.ceil(longest(columnTexts) * 0.5) + 10];
    const fitting = Math.floor((width - left - slant) / columns.length);
    const smallest = count > 400 ? Math.max(2, Math.floor(3000 / count)) : count > 100 ? 6 : font + 1;
    const cell = Math.min(36, Math.max(fitting, smallest));
    const [across, down] = [cell * columns.length, cell * rows.length];
    const step = Math.ceil((font + 1) / cell); // skip labels that would overlap
    view.cell = cell;

    at("corner").style.width = `${left}px`;
    at("top").replaceChildren();
    at("left").replaceChildren();
    for (const [node, columnsWidth, rowsHeight] of [[at("top"), across + slant, height], [at("left"), left, down]]) {
      node.setAttribute("width", columnsWidth);
      node.setAttribute("height", rowsHeight);
      node.setAttribute("font-size", font);
    }
    for (let i = 0; i < columns.length; i += step) {
      const position = `translate(${(i + 0.5) * cell} ${height - 8}) rotate(-60)`;
      at("top").append(shape("text", { transform: position, "data-i": i }, columnTexts[i][0]));
    }
    for (let i = 0; i < rows.length; i += step) {
      at("left").append(shape("text", { x: left - 8, y: (i + 0.5) * cell, "text-anchor": "end", "data-i": i }, rowTexts[i][0]));
    }
    at("body").replaceChildren(weights.length > SVG_CELLS ? painted(across, down) : drawn(across, down));
    at("body").append(make("div", { className: "band", id: "row" }), make("div", { className: "band", id: "column" }));
    at("body").style.width = `${across}px`;
    at("body").setAttribute("aria-label", `${rows.length} rows, ${columns.length} columns`);
    at("largest").textContent = digits(largest);
    paint(at("scale"), Float32Array.from({ length: 64 }, (_, i) => i / 63), 64, 1);
  };
  const drawn = (across, down) => {
    const { columns, weights, largest, cell } = view;
    const gap = cell >= 12 ? 1 : 0;
    const picture = shape("svg", { width: across, height: down });
    weights.forEach((weight, i) => {
      const [x, y] = [(i % columns.length) * cell + gap, Math.floor(i / columns.length) * cell + gap];
      const fill = `rgb(${table[level(weight, largest)].join(" ")})`;
      picture.append(shape("rect", { x, y, width: cell - 2 * gap, height: cell - 2 * gap, fill, "data-weight": weight.toFixed(6) }));
    });
    picture.append(shape("rect", { class: "frame", x: 0.5, y: 0.5, width: across - 1, height: down - 1 }));
    return picture;
  };
  const painted = (across, down) => {
    const small = make("canvas", {});
    paint(small, view.weights, view.columns.length, view.largest);
    const canvas = make("canvas", { width: across, height: down });
    const brush = canvas.getContext("2d");
    brush.imageSmoothingEnabled = false;
    brush.drawImage(small, 0, 0, across, down);
    return canvas;
  };

  // Select a row, a column or a cell: outline it in the matrix, shade the other axis, describe it.
  const select = (row, column) => {
    [state.row, state.column] = [row, column];
    const { rows, columns, weights, cell } = view;
    const weight = (r, c) => weights[r * columns.length + c];
    const outline = (id, shown, x, y, width, height) => {
      at(id).hidden = !shown;
      at(id).classList.toggle("thin", cell < 8);
      Object.assign(at(id).style, { transform: `translate(${x}px,${y}px)`, width: `${width}px`, height: `${height}px` });
    };
    outline("row", row >= 0, 0, row * cell - 1, cell * columns.length, cell + 2);
    outline("column", column >= 0, column * cell - 1, 0, cell + 2, cell * rows.length);
    for (const [id, chosen] of [["left", row], ["top", column]]) {
      for (const text of at(id).children) text.classList.toggle("on", Number(text.dataset.i) === chosen);
    }
    lines?.update(row, column);
    // A selected query shades the keys by its weights; a selected key alone shades the queries.
    const values = { rows: row < 0 ? (i) => weight(i, column) : null, columns: row >= 0 ? (i) => weight(row, i) : null };
    for (const [id, chosen] of [["rows", row], ["columns", column]]) {
      const strongest = values[id] ? Math.max(maximum(nodes[id].map((_, i) => values[id](i))), 1e-9) : 1;
      nodes[id].forEach((node, i) => {
        node.classList.toggle("on", i === chosen);
        node.tabIndex = i === Math.max(chosen, 0) ? 0 : -1;
        const value = values[id] ? values[id](i) : 0;
        node.style.setProperty("--opacity", (0.6 * value) / strongest);
        if (node.classList.contains("token")) {
          const colour = values[id] ? table[level(value, view.largest)] : null;
          node.style.background = colour ? `rgb(${colour.join(" ")})` : "";
          node.style.color = colour ? inkOn(colour) : "";
        }
        if (node.lastChild) node.lastChild.textContent = value >= 0.005 ? digits(value) : "";
      });
      if (graphs[id]) paintArcs(graphs[id], id === "columns" ? row : column, Float32Array.from(nodes[id], (_, i) => (values[id] ? values[id](i) : 0)));
      if (grids[id]) {
        const all = Float32Array.from(nodes[id], (_, i) => (values[id] ? values[id](i) : 0));
        paintHeat(grids[id], all);
      }
    }
    if (grids.columns?.axis.rows > 1 && !grids.rows) drawPath(grids.columns, row);
    at("status").replaceChildren(description(row, column, weight), state.pinned ? make("small", {}, "  pinned") : "");
  };
  let pinnedAt = "";
  const here = () => `${state.row} ${state.column}`;
  const isPinned = () => state.pinned && pinnedAt === here();
  const pin = (on) => {
    state.pinned = on;
    pinnedAt = here();
    select(state.row, state.column);
  };
  const description = (row, column, weight) => {
    const { rows, columns } = view;
    const bdi = (label) => make("bdi", {}, label);
    const line = document.createDocumentFragment();
    if (row >= 0 && column >= 0) {
      line.append(make("b", {}, bdi(rows[row])), " \u2190 ", bdi(columns[column]), ` ${digits(weight(row, column), 4)}`);
      return line;
    }
    const forRow = row >= 0;
    const pairs = (forRow ? columns : rows).map((label, i) => [label, forRow ? weight(row, i) : weight(i, column)]);
    const top = pairs.sort((a, b) => b[1] - a[1]).slice(0, 5).filter(([, value]) => value >= 0.01);
    line.append(make("b", {}, bdi(forRow ? rows[row] : columns[column])), forRow ? " \u2190 " : " \u2192 ");
    if (!top.length) line.append("no weight above 0.01");
    top.forEach(([label, value], i) => line.append(i ? ", " : "", bdi(label), ` ${digits(value)}`));
    return line;
  };

  const pointer = (event) => {
    const box = at("body").getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    if (x < 0 || y < 0) return;
    const column = Math.min(Math.floor(x / view.cell), view.columns.length - 1);
    const row = Math.min(Math.floor(y / view.cell), view.rows.length - 1);
    if (event.type !== "pointerdown") return state.pinned || select(row, column);
    select(row, column);
    return pin(!isPinned());
  };
  const keys = (event) => {
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      return pin(!state.pinned);
    }
    const step = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
    const jump = { Home: 0, End: view.columns.length - 1 }[event.key];
    if (!step && jump === undefined) return undefined;
    event.preventDefault();
    const within = (value, count) => Math.min(Math.max(value, 0), count - 1);
    const column = jump ?? (state.column < 0 ? 0 : within(state.column + step[1], view.columns.length));
    select(within(Math.max(state.row, 0) + (step ? step[0] : 0), view.rows.length), column);
    scrollTo(state.row, state.column);
    return undefined;
  };
  // Scroll the matrix so that a cell is not under the sticky labels.
  const scrollTo = (row, column) => {
    const [frame, cell] = [at("body").parentElement, view.cell];
    const [visibleWidth, visibleHeight] = [frame.clientWidth - at("corner").offsetWidth, frame.clientHeight - at("top").clientHeight];
    frame.scrollLeft = Math.min(Math.max(frame.scrollLeft, (column + 1) * cell - visibleWidth), column * cell);
    frame.scrollTop = Math.min(Math.max(frame.scrollTop, (row + 1) * cell - visibleHeight), row * cell);
  };

  const render = ({ pickers: again = true } = {}) => {
    const map = data.maps[state.map];
    const part = (state.words && map.words) || map.tokens;
    if (part.heads === 1) state.head = "mean";
    const weights = weightsOf(part, part.heads, state.head);
    view = { rows: part.queries.labels, columns: part.keys.labels, weights, largest: maximum(weights), cell: 0 };
    at("selection").textContent = `${map.title}${part.heads > 1 ? ` \u00b7 ${state.head === "mean" ? `mean of ${part.heads} heads` : `head ${state.head}`}` : ""}`;
    at("merge").hidden = !map.words;
    at("over-image").hidden = ![part.queries, part.keys].some((axis) => axis.kind === "grid");
    at("play").hidden = part.keys.kind !== "grid" || part.queries.kind === "grid";
    if (again) headPicker(part);
    strip("rows", view.rows, part.queries, (i) => select(i, -1));
    strip("columns", view.columns, part.keys, (i) => select(-1, i));
    const few = Math.max(view.rows.length, view.columns.length) <= MOST_LINES;
    at("view").parentElement.hidden = !few;
    const lined = few && state.view === "lines";
    at("lines").hidden = !lined;
    at("matrix").hidden = at("ramp").hidden = at("sqrt").parentElement.hidden = lined;
    lines = lined ? drawLines({ shape, ...view, shorten: (label) => shorten(label, 165, 14)[0], listen, select }) : null;
    at("lines").replaceChildren(...(lined ? [lines.picture] : []));
    matrix();
    select(Math.min(state.row, view.rows.length - 1), Math.min(state.column, view.columns.length - 1));
  };

  at("attention").hidden = false;
  Object.assign(state, data.start);
  pickers();
  at("layer").value = state.map;
  at("body").onpointermove = at("body").onpointerdown = pointer;
  at("body").onkeydown = keys;
  matchMedia("(prefers-color-scheme: dark)").onchange = () => {
    table = shades();
    render();
  };
  addEventListener("keydown", (event) => event.key === "Escape" && pin(false));
  let width = at("attention").clientWidth;
  addEventListener("resize", () => {
    if (at("attention").clientWidth !== width) render({ pickers: false });
    width = at("attention").clientWidth;
  });
  render();
})();
