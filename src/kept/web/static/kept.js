// Entry: each module improves pages that work without it.
import "./keys.js";
import "./live.js";
