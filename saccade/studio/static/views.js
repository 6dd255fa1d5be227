// Views of an axis by its kind; a new class of axis is a new module here.
import * as grid from "./views/grid.js";
import * as nodes from "./views/nodes.js";
import * as steps from "./views/steps.js";
import * as time from "./views/time.js";
import * as tokens from "./views/tokens.js";

const VIEWS = { grid, nodes, steps, time, tokens };
export const showAxis = (parameters) => (VIEWS[parameters.axis.kind] ?? tokens).show(parameters);
