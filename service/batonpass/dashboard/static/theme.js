// Sets the theme before anything is drawn: as chosen here, else as the system has it.
"use strict";
// A browser that keeps nothing for the page refuses both.
const theme = {
  kept() { try { return localStorage.getItem("theme"); } catch { return null; } },
  keep(name) { try { localStorage.setItem("theme", name); } catch { /* It is worn until the page is left. */ } },
  wear(name) { document.documentElement.dataset.theme = name; },
};
theme.wear(theme.kept() || "system");
