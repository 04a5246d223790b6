// Entry: each module improves pages that work without it.
import "./editor.js";
import "./keys.js";
import "./live.js";
import "./chat.js";
