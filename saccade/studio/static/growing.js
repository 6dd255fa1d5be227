// A matrix of attention that grows by a row with each token; only new rows are painted.
import { dark, make, ramp } from "./studio.js";

const FONT = 12;
const [LEAST, MOST] = [3, 24]; // pixels of a cell
const MANY = 600; // columns, of which each is a pixel: the canvas of 4,096 tokens must fit into memory
const FEW = 14; // columns for which there is room at the beginning

export class GrowingMatrix {
  // select(row, column): a cell was chosen. labels are texts of all queries and keys so far; row r has the weights rows[r].
  constructor({ select, point }) {
    Object.assign(this, { select, point, rows: [], queries: [], keys: [], start: 0, selected: -1, cellRow: -1, column: -1, hidden: false, sqrt: false });
    this.picture = document.createElement("canvas"); // one pixel per cell
    this.canvas = make("canvas", {});
    this.node = make("div", { className: "matrix growing", tabIndex: 0 }, this.canvas);
    this.node.setAttribute("role", "group");
    this.node.setAttribute("aria-roledescription", "matrix");
    this.canvas.onclick = (event) => this.pick(event, this.select);
    this.canvas.onpointermove = (event) => this.pick(event, this.point);
    this.canvas.onpointerleave = () => this.point(-1, -1);
    this.node.onkeydown = (event) => this.key(event);
    new ResizeObserver(() => this.node.clientWidth === this.fitted || this.draw()).observe(this.node);
    this.clear();
  }

  clear() {
    [this.painted, this.scanned, this.largest, this.shade] = [[], [], 0.05, ""]; // rows in the picture, rows whose largest weight is known
  }

  // start: the first row that is shown; queries and keys: labels; selected: a row.
  update(values) {
    if (values.rows !== this.rows || values.start !== this.start) this.clear();
    Object.assign(this, values);
    this.node.setAttribute("aria-label", `${this.queries.length - this.start} queries, ${this.keys.length} keys; arrow keys move from cell to cell`);
    if (!this.waiting) {
      this.waiting = true;
      requestAnimationFrame(() => {
        this.waiting = false;
        this.draw();
      });
    }
  }

  weight(row, column) {
    return this.rows[row]?.[column] ?? (this.rows[row] && column < this.keys.length ? 0 : NaN);
  }

  // What is drawn of a weight: without the first key the others of the row are divided by what remains.
  drawn(row, column) {
    const weight = this.weight(row, column);
    if (!this.hidden) return weight;
    const rest = 1 - this.weight(row, 0);
    return column === 0 || rest < 1e-4 ? 0 : Math.min(1, weight / rest);
  }

  // The largest weight that is drawn is the darkest colour; each row is looked through once.
  scan() {
    if (this.scannedHidden !== this.hidden) [this.scanned, this.largest, this.scannedHidden] = [[], 0.05, this.hidden];
    for (let row = this.start; row < this.queries.length; row++) {
      const values = this.rows[row];
      if (!values || this.scanned[row] === values) continue;
      this.scanned[row] = values;
      if (this.hidden && row < 2) continue; // one key remains, with all of the weight
      for (let column = 0; column < values.length; column++) this.largest = Math.max(this.largest, this.drawn(row, column));
    }
  }

  paint() {
    const [wide, high] = [this.keys.length, Math.max(1, this.queries.length - this.start)];
    if (this.picture.width < wide || this.picture.height < high) {
      [this.picture.width, this.picture.height] = [wide, high].map((count) => 2 ** Math.ceil(Math.log2(Math.max(64, count))));
      this.painted = [];
    }
    this.scan();
    const { largest } = this;
    const shade = `${largest} ${this.hidden} ${this.sqrt} ${dark()}`;
    if (shade !== this.shade) [this.painted, this.shade] = [[], shade];
    const colours = new Uint32Array(ramp().buffer);
    const pen = this.picture.getContext("2d");
    for (let row = this.start; row < this.queries.length; row++) {
      const values = this.rows[row];
      if (!values || this.painted[row] === values) continue;
      this.painted[row] = values;
      const image = new ImageData(Math.max(1, Math.min(values.length, wide)), 1);
      const cells = new Uint32Array(image.data.buffer);
      for (let column = 0; column < cells.length; column++) {
        const fraction = this.drawn(row, column) / largest;
        cells[column] = colours[Math.min(255, Math.round(255 * (this.sqrt ? Math.sqrt(fraction) : fraction)))];
      }
      pen.putImageData(image, 0, row - this.start);
    }
  }

  draw() {
    if (!this.queries.length) return;
    this.paint();
    this.fitted = this.node.clientWidth;
    const pen = this.canvas.getContext("2d");
    pen.font = `${FONT}px system-ui, sans-serif`;
    const widest = (labels) => Math.min(110, Math.max(20, ...labels.slice(-400).map((label) => pen.measureText(label).width)));
    [this.left, this.top] = [Math.ceil(widest(this.queries)) + 12, Math.ceil(widest(this.keys) * 0.87) + 16];
    const [rows, columns] = [this.queries.length - this.start, this.keys.length];
    this.cell = Math.max(columns > MANY ? 1 : LEAST, Math.min(MOST, Math.floor((this.fitted - this.left - 48) / Math.max(FEW, columns))));
    const [width, height] = [this.left + columns * this.cell + 46, this.top + rows * this.cell + 4];
    const ratio = columns > MANY ? 1 : devicePixelRatio || 1;
    [this.canvas.width, this.canvas.height] = [Math.round(width * ratio), Math.round(height * ratio)];
    Object.assign(this.canvas.style, { width: `${width}px`, height: `${height}px` });
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.imageSmoothingEnabled = false;
    pen.drawImage(this.picture, 0, 0, columns, rows, this.left, this.top, columns * this.cell, rows * this.cell);
    const style = getComputedStyle(this.node);
    if (this.hidden) {
      pen.fillStyle = style.getPropertyValue("--line");
      pen.fillRect(this.left, this.top, this.cell, rows * this.cell);
    }
    pen.strokeStyle = style.getPropertyValue("--line");
    pen.strokeRect(this.left - 0.5, this.top - 0.5, columns * this.cell + 1, rows * this.cell + 1);
    this.mark(pen, style, columns);
    this.labels(pen, style);
    this.node.dataset.layout = [this.left, this.top, this.cell].join(" ");
    this.node.dataset.rows = String(this.rows.filter(Boolean).length);
    this.drawnLargest?.(this.largest);
  }

  mark(pen, style, columns) {
    if (this.selected < this.start) return;
    for (const [name, width] of [["--cross-light", 4], ["--cross-dark", 2]]) {
      pen.strokeStyle = style.getPropertyValue(name);
      pen.lineWidth = this.cell < 6 ? width / 2 : width;
      pen.strokeRect(this.left, this.top + (this.selected - this.start) * this.cell, columns * this.cell, this.cell);
      if (this.selected === this.cellRow) pen.strokeRect(this.left + this.column * this.cell, this.top + (this.selected - this.start) * this.cell, this.cell, this.cell);
    }
    pen.lineWidth = 1;
  }

  labels(pen, style) {
    const every = Math.max(1, Math.ceil((FONT + 2) / this.cell));
    pen.fillStyle = style.getPropertyValue("--text");
    pen.font = `${FONT}px system-ui, sans-serif`;
    pen.textBaseline = "middle";
    pen.textAlign = "end";
    for (let row = this.start; row < this.queries.length; row += every) this.label(pen, this.queries[row], this.left - 6, this.top + (row - this.start + 0.5) * this.cell, 0);
    pen.textAlign = "start";
    for (let column = 0; column < this.keys.length; column += every) this.label(pen, this.keys[column], this.left + (column + 0.5) * this.cell, this.top - 5, -Math.PI / 3);
  }

  label(pen, text, x, y, angle) {
    pen.save();
    pen.translate(x, y);
    pen.rotate(angle);
    let short = text;
    while (short.length > 1 && pen.measureText(short).width > 110) short = [...short].slice(0, -2).join("");
    pen.fillText(short === text ? text : `${short}\u2026`, 0, 0);
    pen.restore();
  }

  pick(event, action) {
    const box = this.canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left - this.left) / this.cell);
    const row = Math.floor((event.clientY - box.top - this.top) / this.cell) + this.start;
    if (row >= this.start && row < this.queries.length && column >= 0 && column < this.keys.length) action(row, column);
  }

  key(event) {
    const move = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0], Home: [0, -1e9], End: [0, 1e9] }[event.key];
    if (!move) return;
    event.preventDefault();
    const within = (value, least, count) => Math.min(Math.max(value, least), count - 1);
    this.selected = within(this.selected + move[0], this.start, this.queries.length);
    this.select(this.selected, within(Math.max(0, this.column) + move[1], 0, this.keys.length));
  }
}
