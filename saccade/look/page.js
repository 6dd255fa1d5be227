"use strict";
// The page of one prediction: pick a layer and a head, then follow a word by mouse, touch or keyboard.
(() => {
  const SVG_CELLS = 10000; // beyond this many cells the matrix is painted on a canvas
  const data = JSON.parse(document.getElementById("data").textContent);
  const at = (id) => document.getElementById(id);
  if (!data.maps.length) return;

  // What is shown: a map, a head ("mean" or its number), whole words or pieces, and the words that are followed.
  const state = { map: 0, head: "mean", words: true, row: 0, column: -1 };
  let view; // {rows, columns, weights, most, cell} of the state

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
  const fromRight = (label) => /^[^\p{L}]*[\p{Script=Hebrew}\p{Script=Arabic}\p{Script=Syriac}\p{Script=Thaana}]/u.test(label);

  // Weights come as numbers of 16 bits, low byte first, in base64: 65535 is 1.
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
    const size = part.rows.length * part.columns.length;
    if (head !== "mean") return all.subarray(head * size, (head + 1) * size);
    const mean = new Float32Array(size);
    for (let i = 0; i < all.length; i++) mean[i % size] += all[i] / heads;
    return mean;
  };
  const largest = (numbers) => numbers.reduce((most, number) => (number > most ? number : most), 0);

  // One pixel for each cell, as strong as its weight.
  const paint = (canvas, weights, width, most) => {
    canvas.width = width;
    canvas.height = weights.length / width;
    const pen = canvas.getContext("2d");
    const image = pen.createImageData(canvas.width, canvas.height);
    const ink = getComputedStyle(document.documentElement).getPropertyValue("--ink").trim();
    const [red, green, blue] = [1, 3, 5].map((i) => parseInt(ink.slice(i, i + 2), 16));
    const full = most > 0 ? 255 / most : 0;
    for (let i = 0, p = 0; i < weights.length; i++) {
      image.data[p++] = red;
      image.data[p++] = green;
      image.data[p++] = blue;
      image.data[p++] = weights[i] * full;
    }
    pen.putImageData(image, 0, 0);
  };

  const pickers = () => {
    data.maps.forEach((map, i) => at("layer").append(new Option(map.name, i)));
    at("layer").onchange = (event) => {
      state.map = Number(event.target.value);
      if (state.head !== "mean" && state.head >= data.maps[state.map].heads) state.head = "mean";
      render();
    };
    at("words").onchange = (event) => {
      state.words = event.target.checked;
      [state.row, state.column] = [0, -1];
      render();
    };
  };

  const headPicker = (map, part) => {
    const legend = at("heads").firstElementChild;
    const choices = map.heads > 1 ? ["mean", ...Array(map.heads).keys()] : [];
    const labels = choices.map((head) => {
      const radio = make("input", { type: "radio", name: "head", value: head, checked: head === state.head });
      const canvas = make("canvas", { className: Math.max(part.rows.length, part.columns.length) > 60 ? "fine" : "" });
      const weights = weightsOf(part, map.heads, head);
      paint(canvas, weights, part.columns.length, largest(weights));
      radio.onchange = () => {
        state.head = head;
        render({ pickers: false });
      };
      return make("label", { className: "head" }, radio, canvas, make("span", {}, head === "mean" ? "mean" : `${head}`));
    });
    at("heads").hidden = !labels.length;
    at("heads").replaceChildren(legend, ...labels);
  };

  const strip = (id, labels, choose) => {
    const tokens = labels.map((label, i) => {
      const token = make("button", { type: "button", className: "token", tabIndex: -1 });
      token.append(make("span", { dir: "auto" }, label), make("small", {}));
      token.onpointerenter = token.onfocus = token.onclick = () => choose(i);
      return token;
    });
    at(id).dir = fromRight(labels.join("")) ? "rtl" : "ltr";
    at(id).replaceChildren(...tokens);
    at(id).onkeydown = (event) => {
      const turned = at(id).dir === "rtl" ? -1 : 1;
      const step = { ArrowRight: turned, ArrowLeft: -turned, ArrowDown: 1, ArrowUp: -1, Home: -1e9, End: 1e9 }[event.key];
      if (!step) return;
      event.preventDefault();
      const now = tokens.indexOf(document.activeElement);
      tokens[Math.min(Math.max(now + step, 0), tokens.length - 1)].focus();
    };
  };

  const pen = document.createElement("canvas").getContext("2d");
  const short = (label, room, font) => {
    pen.font = `bold ${font}px ${getComputedStyle(document.body).fontFamily}`; // as wide as when it is marked
    const letters = [...label];
    if (pen.measureText(label).width <= room) return [label, pen.measureText(label).width];
    while (letters.length > 1 && pen.measureText(`${letters.join("")}…`).width > room) letters.pop();
    return [`${letters.join("")}…`, room];
  };

  const matrix = () => {
    const { rows, columns, weights, most } = view;
    const wide = at("look").clientWidth;
    const room = wide < 600 ? 90 : 140;
    const count = Math.max(rows.length, columns.length);
    const font = count > 60 ? 10 : 13;
    const [rowTexts, columnTexts] = [rows, columns].map((labels) => labels.map((label) => short(label, room, font)));
    const longest = (texts) => Math.max(...texts.map((text) => text[1]), 10);
    const left = Math.ceil(longest(rowTexts)) + 14;
    const [height, slant] = [Math.ceil(longest(columnTexts) * 0.87) + 22, Math.ceil(longest(columnTexts) * 0.5) + 10];
    const fitting = Math.floor((wide - left - slant) / columns.length);
    const smallest = count > 400 ? Math.max(2, Math.floor(3000 / count)) : count > 100 ? 6 : font + 1;
    const cell = Math.min(36, Math.max(fitting, smallest));
    const [across, down] = [cell * columns.length, cell * rows.length];
    const step = Math.ceil((font + 1) / cell); // labels that would overlap are left out
    view.cell = cell;

    at("corner").style.width = `${left}px`;
    at("top").replaceChildren();
    at("left").replaceChildren();
    for (const [node, width, high] of [[at("top"), across + slant, height], [at("left"), left, down]]) {
      node.setAttribute("width", width);
      node.setAttribute("height", high);
      node.setAttribute("font-size", font);
    }
    for (let i = 0; i < columns.length; i += step) {
      const place = `translate(${(i + 0.5) * cell} ${height - 8}) rotate(-60)`;
      at("top").append(shape("text", { transform: place, "data-i": i }, columnTexts[i][0]));
    }
    for (let i = 0; i < rows.length; i += step) {
      at("left").append(shape("text", { x: left - 8, y: (i + 0.5) * cell, "text-anchor": "end", "data-i": i }, rowTexts[i][0]));
    }
    at("body").replaceChildren(weights.length > SVG_CELLS ? painted(across, down) : drawn(across, down));
    at("body").append(make("div", { className: "band", id: "row" }), make("div", { className: "band", id: "column" }));
    at("body").style.width = `${across}px`;
    at("body").setAttribute("aria-label", `${rows.length} rows, ${columns.length} columns`);
    at("most").textContent = digits(most);
    paint(at("scale"), Float32Array.from({ length: 64 }, (_, i) => i / 63), 64, 1);
  };
  const drawn = (across, down) => {
    const { columns, weights, most, cell } = view;
    const gap = cell >= 12 ? 1 : 0;
    const picture = shape("svg", { width: across, height: down });
    weights.forEach((weight, i) => {
      const [x, y] = [(i % columns.length) * cell + gap, Math.floor(i / columns.length) * cell + gap];
      const strength = most > 0 ? (weight / most).toFixed(3) : 0;
      picture.append(shape("rect", { x, y, width: cell - 2 * gap, height: cell - 2 * gap, "fill-opacity": strength }));
    });
    picture.append(shape("rect", { class: "frame", x: 0.5, y: 0.5, width: across - 1, height: down - 1 }));
    return picture;
  };
  const painted = (across, down) => {
    const small = make("canvas", {});
    paint(small, view.weights, view.columns.length, view.most);
    const canvas = make("canvas", { width: across, height: down });
    const brush = canvas.getContext("2d");
    brush.imageSmoothingEnabled = false;
    brush.drawImage(small, 0, 0, across, down);
    return canvas;
  };

  // The row, the column or the cell that is followed: marked in the matrix, shaded in the strips, told in words.
  const follow = (row, column) => {
    [state.row, state.column] = [row, column];
    const { rows, columns, weights, cell } = view;
    const weight = (r, c) => weights[r * columns.length + c];
    const place = (id, shown, x, y, width, height) => {
      at(id).hidden = !shown;
      at(id).classList.toggle("thin", cell < 8);
      Object.assign(at(id).style, { transform: `translate(${x}px,${y}px)`, width: `${width}px`, height: `${height}px` });
    };
    place("row", row >= 0, 0, row * cell - 1, cell * columns.length, cell + 2);
    place("column", column >= 0, column * cell - 1, 0, cell + 2, cell * rows.length);
    for (const [id, chosen] of [["left", row], ["top", column]]) {
      for (const text of at(id).children) text.classList.toggle("on", Number(text.dataset.i) === chosen);
    }
    // A followed row shades the words it looks at; a followed column alone shades the words that look at it.
    const values = { rows: row < 0 ? (i) => weight(i, column) : null, columns: row >= 0 ? (i) => weight(row, i) : null };
    for (const [id, chosen] of [["rows", row], ["columns", column]]) {
      const strongest = values[id] ? Math.max(largest(Array.from(at(id).children, (_, i) => values[id](i))), 1e-9) : 1;
      Array.from(at(id).children).forEach((token, i) => {
        token.classList.toggle("on", i === chosen);
        token.tabIndex = i === Math.max(chosen, 0) ? 0 : -1;
        const value = values[id] ? values[id](i) : 0;
        token.style.setProperty("--share", (0.6 * value) / strongest);
        token.lastChild.textContent = value >= 0.005 ? digits(value) : "";
      });
    }
    at("told").replaceChildren(told(row, column, weight));
  };
  const told = (row, column, weight) => {
    const { rows, columns } = view;
    const word = (label) => make("bdi", {}, label);
    const line = document.createDocumentFragment();
    if (row >= 0 && column >= 0) {
      line.append(make("b", {}, word(rows[row])), " \u2190 ", word(columns[column]), ` ${digits(weight(row, column), 4)}`);
      return line;
    }
    const forRow = row >= 0;
    const others = (forRow ? columns : rows).map((label, i) => [label, forRow ? weight(row, i) : weight(i, column)]);
    const top = others.sort((one, two) => two[1] - one[1]).slice(0, 5).filter((other) => other[1] >= 0.01);
    line.append(make("b", {}, word(forRow ? rows[row] : columns[column])), forRow ? " \u2190 " : " \u2192 ");
    if (!top.length) line.append("nothing above 0.01");
    top.forEach(([label, value], i) => line.append(i ? ", " : "", word(label), ` ${digits(value)}`));
    return line;
  };

  const pointer = (event) => {
    const box = at("body").getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    if (x < 0 || y < 0) return;
    const column = Math.min(Math.floor(x / view.cell), view.columns.length - 1);
    const row = Math.min(Math.floor(y / view.cell), view.rows.length - 1);
    if (row !== state.row || column !== state.column) follow(row, column);
  };
  const keys = (event) => {
    const step = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
    const jump = { Home: 0, End: view.columns.length - 1 }[event.key];
    if (!step && jump === undefined) return;
    event.preventDefault();
    const within = (value, count) => Math.min(Math.max(value, 0), count - 1);
    const column = jump ?? (state.column < 0 ? 0 : within(state.column + step[1], view.columns.length));
    follow(within(Math.max(state.row, 0) + (step ? step[0] : 0), view.rows.length), column);
    show(state.row, state.column);
  };
  // Scroll the matrix so that a cell is not under the labels that stay in place.
  const show = (row, column) => {
    const [frame, cell] = [at("body").parentElement, view.cell];
    const [room, high] = [frame.clientWidth - at("corner").offsetWidth, frame.clientHeight - at("top").clientHeight];
    frame.scrollLeft = Math.min(Math.max(frame.scrollLeft, (column + 1) * cell - room), column * cell);
    frame.scrollTop = Math.min(Math.max(frame.scrollTop, (row + 1) * cell - high), row * cell);
  };

  const render = ({ pickers: again = true } = {}) => {
    const map = data.maps[state.map];
    const part = (state.words && map.words) || map.pieces;
    if (map.heads === 1) state.head = "mean";
    const weights = weightsOf(part, map.heads, state.head);
    view = { rows: part.rows, columns: part.columns, weights, most: largest(weights), cell: 0 };
    at("switch").hidden = !map.words;
    if (again) headPicker(map, part);
    strip("rows", view.rows, (i) => follow(i, -1));
    strip("columns", view.columns, (i) => follow(-1, i));
    matrix();
    follow(Math.min(state.row, view.rows.length - 1), Math.min(state.column, view.columns.length - 1));
  };

  at("look").hidden = false;
  pickers();
  at("body").onpointermove = at("body").onpointerdown = pointer;
  at("body").onkeydown = keys;
  matchMedia("(prefers-color-scheme: dark)").onchange = () => render();
  let width = at("look").clientWidth;
  addEventListener("resize", () => {
    if (at("look").clientWidth !== width) render({ pickers: false });
    width = at("look").clientWidth;
  });
  render();
})();
