// A page with a message only.
import "./studio.js";
