// The matrix view: a scrollable window of a map of any size; only visible blocks are fetched and drawn.
import { dark, digits, drawPixels, make, shadeText } from "./studio.js";

const [BLOCK_ROWS, BLOCK_COLUMNS] = [64, 1024]; // wide blocks: the server computes complete rows
const FONT = 13; // pixels, of labels; larger beside large cells
const [SMALLEST, LARGEST] = [18, 64]; // pixels of a cell that is fitted to the height of the window
const [NARROW, TOUCHED] = [520, 24]; // pixels of a window in which a matrix scrolls, and of its cells
const SHORT = 64; // columns of such a matrix
const NUMBERED = 38; // pixels of a cell that shows its weight

export class Matrix {
  // rows, columns: labels. fetch(top, bottom, left, right, step): a promise of weights. select(row, column, pinned).
  // selected: the row and the column at first, -1 for no column; pinned: whether they stay when the pointer moves.
  // complete(): every visible cell has been drawn. sqrt: colours by the square root of a weight.
  constructor({ rows, columns, fetch, select, complete, cell, sqrt, selected, pinned }) {
    Object.assign(this, { rows, columns, fetch, select, complete, cellSize: cell, sqrt, selected, pinned });
    this.blocks = new Map();
    this.largest = 0.05;
    this.moved = pinned;
    this.canvas = make("canvas", {});
    this.spacer = make("div", { className: "spacer" });
    this.node = make("div", { className: "matrix", tabIndex: 0 }, this.canvas, this.spacer);
    this.node.setAttribute("role", "group");
    this.node.setAttribute("aria-roledescription", "matrix");
    this.node.setAttribute("aria-label", `${rows.length} queries, ${columns.length} keys; arrow keys move from cell to cell`);
    this.node.onscroll = () => this.draw();
    this.node.onpointermove = (event) => this.pinned || this.hover(event);
    this.node.onclick = (event) => {
      this.pinned = !this.pinned || !this.isSelected(event);
      this.hover(event);
    };
    this.node.onkeydown = (event) => this.key(event);
    this.observer = new ResizeObserver(() => this.node.clientWidth === this.fitted || this.layout());
    this.observer.observe(this.node);
  }

  close() {
    this.observer.disconnect();
    this.closed = true;
  }

  layout() {
    this.fitted = this.node.clientWidth;
    const width = this.fitted || 600;
    const pen = this.canvas.getContext("2d");
    const labelWidth = (labels) => Math.min(140, Math.max(20, ...labels.slice(0, 400).map((label) => pen.measureText(label).width)));
    const measure = () => {
      pen.font = `${this.font}px system-ui, sans-serif`;
      this.left = Math.ceil(labelWidth(this.rows)) + 14;
      this.top = Math.ceil(labelWidth(this.columns) * 0.87) + 18;
      // The last slanted label ends at the right of its column.
      this.right = Math.ceil(Math.min(60, 12 + pen.measureText(this.columns.at(-1) ?? "").width / 2));
      const down = (this.room() - this.top - 4) / this.rows.length;
      const across = (width - this.left - this.right) / this.columns.length;
      const least = width < NARROW && this.columns.length <= SHORT ? TOUCHED : 0;
      return Math.max(least, Math.min(across, Math.max(SMALLEST, Math.min(LARGEST, down))));
    };
    this.font = FONT;
    let cell = this.cellSize || measure();
    this.font = Math.max(FONT, Math.min(18, Math.round(cell * 0.4)));
    const fit = measure();
    cell = this.cellSize || fit;
    this.step = cell >= 1 ? 1 : Math.ceil(1 / cell);
    this.cell = this.step > 1 ? 1 : Math.max(1, Math.floor(cell));
    this.rowCount = Math.ceil(this.rows.length / this.step);
    this.columnCount = Math.ceil(this.columns.length / this.step);
    const across = this.left + this.columnCount * this.cell + this.right;
    const down = this.top + this.rowCount * this.cell + 2;
    Object.assign(this.spacer.style, { width: `${across}px`, height: `${down}px` });
    const tall = Math.min(down, Math.max(this.room(), innerHeight * 0.6));
    this.node.style.height = `${tall + 2}px`;
    this.size = [Math.min(across, width), tall];
    const ratio = devicePixelRatio || 1;
    [this.canvas.width, this.canvas.height] = this.size.map((length) => Math.round(length * ratio));
    Object.assign(this.canvas.style, { width: `${this.size[0]}px`, height: `${this.size[1]}px` });
    this.ratio = ratio;
    this.node.dataset.layout = [this.left, this.top, this.cell].join(" ");
    this.draw();
  }

  // The height of the window below the top of the matrix, while the page is not scrolled.
  room() {
    const above = this.node.isConnected ? this.node.getBoundingClientRect().top + scrollY : innerHeight * 0.4;
    return Math.max(200, Math.min(innerHeight * 0.8, innerHeight - above - 16));
  }

  // Zoomed out the whole map is on screen: fewer requests for more rows each.
  get blockRows() {
    return this.step > 1 ? 4 * BLOCK_ROWS : BLOCK_ROWS;
  }

  block(r, c) {
    const key = `${this.step} ${r} ${c}`;
    if (!this.blocks.has(key)) {
      this.blocks.set(key, null);
      const [top, left] = [r * this.blockRows * this.step, c * BLOCK_COLUMNS * this.step];
      const bottom = Math.min(this.rows.length, top + this.blockRows * this.step);
      const right = Math.min(this.columns.length, left + BLOCK_COLUMNS * this.step);
      this.fetch(top, bottom, left, right, this.step).then((values) => {
        if (this.closed) return;
        const width = Math.ceil((right - left) / this.step);
        this.blocks.set(key, { values, width });
        this.measure(values);
        this.draw();
        if (this.moved) this.select(...this.selected, this.pinned); // its weight may have arrived
      }, () => this.blocks.delete(key));
    }
    return this.blocks.get(key);
  }

  weight(row, column) {
    if (column < 0) return NaN;
    const [r, c] = [Math.floor(row / this.step), Math.floor(column / this.step)];
    const block = this.blocks.get(`${this.step} ${Math.floor(r / this.blockRows)} ${Math.floor(c / BLOCK_COLUMNS)}`);
    return block ? block.values[(r % this.blockRows) * block.width + (c % BLOCK_COLUMNS)] : NaN;
  }

  measure(values) {
    for (const value of values) this.largest = Math.max(this.largest, value);
  }

  // Draw the cells of a block in their colours.
  paint(block) {
    const shade = `${this.largest} ${dark()}`;
    if (block.shade === shade) return;
    block.picture ??= document.createElement("canvas");
    const [values, largest] = this.sqrt ? [block.values.map(Math.sqrt), Math.sqrt(this.largest)] : [block.values, this.largest];
    drawPixels(block.picture, values, block.width, 255 / largest);
    block.shade = shade;
  }

  draw() {
    if (!this.size || this.closed) return;
    const pen = this.canvas.getContext("2d");
    const style = getComputedStyle(this.node);
    const { cell, left, top } = this;
    const [width, height] = this.size;
    const [x0, y0] = [this.node.scrollLeft, this.node.scrollTop];
    pen.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.imageSmoothingEnabled = false;
    const [c0, c1] = [Math.floor(x0 / cell), Math.min(this.columnCount, Math.ceil((x0 + width - left) / cell))];
    const [r0, r1] = [Math.floor(y0 / cell), Math.min(this.rowCount, Math.ceil((y0 + height - top) / cell))];
    pen.save();
    pen.beginPath();
    pen.rect(left, top, width - left, height - top);
    pen.clip();
    let complete = true;
    for (let r = Math.floor(r0 / this.blockRows); r * this.blockRows < r1; r++) {
      for (let c = Math.floor(c0 / BLOCK_COLUMNS); c * BLOCK_COLUMNS < c1; c++) {
        const block = this.block(r, c);
        complete &&= Boolean(block);
        if (!block) continue;
        this.paint(block);
        const [px, py] = [left + c * BLOCK_COLUMNS * cell - x0, top + r * this.blockRows * cell - y0];
        pen.drawImage(block.picture, px, py, block.picture.width * cell, block.picture.height * cell);
      }
    }
    this.decorate?.(pen, style, [r0, r1, c0, c1], left - x0, top - y0);
    if (cell >= NUMBERED) this.numbers(pen, [r0, r1], [c0, c1], [left - x0, top - y0]);
    if (complete) this.complete?.();
    this.crosshair(pen, style, left - x0, top - y0);
    pen.restore();
    pen.fillStyle = style.getPropertyValue("--text");
    pen.font = `${this.font}px system-ui, sans-serif`;
    pen.textBaseline = "middle";
    const every = Math.max(1, Math.ceil((this.font + 2) / cell));
    pen.textAlign = "end";
    for (let r = Math.ceil(r0 / every) * every; r < r1; r += every) {
      this.label(pen, this.rows[r * this.step], left - 7, top + (r + 0.5) * cell - y0, 0, top);
    }
    pen.textAlign = "start";
    for (let c = Math.ceil(c0 / every) * every; c < c1; c += every) {
      const x = left + (c + 0.5) * cell - x0;
      if (x >= left) this.label(pen, this.columns[c * this.step], x, top - 6, -Math.PI / 3, 0);
    }
  }

  // Weights on cells that are large enough for them, as far as they are not near 0.
  numbers(pen, [r0, r1], [c0, c1], [left, top]) {
    pen.font = `${Math.round(this.cell * 0.3)}px system-ui, sans-serif`;
    [pen.textAlign, pen.textBaseline] = ["center", "middle"];
    for (let r = r0; r < r1; r++) {
      for (let c = c0; c < c1; c++) {
        const weight = this.weight(r * this.step, c * this.step);
        if (!(weight >= 0.05)) continue;
        const part = weight / this.largest;
        pen.fillStyle = shadeText(Math.min(1, this.sqrt ? Math.sqrt(part) : part))[1];
        pen.fillText(digits(weight).replace(/^0/, ""), left + (c + 0.5) * this.cell, top + (r + 0.5) * this.cell);
      }
    }
  }

  // A dark line on a light one: one of them can be seen on any colour.
  crosshair(pen, style, left, top) {
    const { cell } = this;
    const [row, column] = this.selected.map((index) => Math.floor(index / this.step));
    for (const [name, width] of [["--cross-light", 4], ["--cross-dark", 2]]) {
      pen.strokeStyle = style.getPropertyValue(name);
      pen.lineWidth = cell < 6 ? width / 2 : width;
      pen.strokeRect(left, top + row * cell, this.columnCount * cell, Math.max(cell, 2));
      if (column >= 0) pen.strokeRect(left + column * cell, top, Math.max(cell, 2), this.rowCount * cell);
    }
  }

  label(pen, text, x, y, angle, minimum) {
    if (y < minimum) return;
    pen.save();
    pen.translate(x, y);
    pen.rotate(angle);
    let short = text;
    while (short.length > 1 && pen.measureText(short).width > 140) short = [...short].slice(0, -2).join("");
    pen.fillText(short === text ? text : `${short}\u2026`, 0, 0);
    pen.restore();
  }

  cellAt(event) {
    const box = this.node.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left - this.left + this.node.scrollLeft) / this.cell) * this.step;
    const row = Math.floor((event.clientY - box.top - this.top + this.node.scrollTop) / this.cell) * this.step;
    return [row, column];
  }

  isSelected(event) {
    const [row, column] = this.cellAt(event);
    return row === this.selected[0] && column === this.selected[1];
  }

  hover(event) {
    const [row, column] = this.cellAt(event);
    if (row < 0 || column < 0 || row >= this.rows.length || column >= this.columns.length) return;
    this.move(row, column);
  }

  // Select a cell from outside, or a row with the column -1.
  pin(row, column, pinned) {
    this.pinned = pinned;
    this.move(row, column);
    if (pinned) this.scrollToSelected();
  }

  move(row, column) {
    this.selected = [row, column];
    this.moved = true;
    this.draw();
    this.select(row, column, this.pinned);
  }

  key(event) {
    const moves = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0], Home: [0, -1e9], End: [0, 1e9] };
    const move = moves[event.key];
    if (!move) return;
    event.preventDefault();
    const within = (value, count) => Math.min(Math.max(value, 0), count - 1);
    this.pinned = true;
    this.move(within(this.selected[0] + move[0] * this.step, this.rows.length), within(this.selected[1] + move[1] * this.step, this.columns.length));
    this.scrollToSelected();
  }

  // Scroll so that the selected cell is visible.
  scrollToSelected() {
    const [row, column] = this.selected.map((index) => Math.max(0, Math.floor(index / this.step)) * this.cell);
    const [wide, tall] = [this.node.clientWidth - this.left - this.cell, this.node.clientHeight - this.top - this.cell];
    this.node.scrollLeft = Math.min(Math.max(this.node.scrollLeft, column - wide), column);
    this.node.scrollTop = Math.min(Math.max(this.node.scrollTop, row - tall), row);
  }
}
