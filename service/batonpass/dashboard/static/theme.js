// Sets the theme before anything is drawn: as chosen here, else as the system has it.
"use strict";
(() => {
  const kept = localStorage.getItem("theme");
  if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
})();
