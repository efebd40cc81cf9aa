// Light or dark, before anything is painted; so it is no module, and both pages load it first.
"use strict";
(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const show = () => {
    let chosen = "";
    try { chosen = JSON.parse(localStorage.getItem("fourfold.settings")).theme; } catch { /* nothing chosen */ }
    document.documentElement.dataset.theme = chosen || (dark.matches ? "dark" : "light");
  };
  dark.addEventListener("change", show);
  document.addEventListener("themechange", show);
  show();
})();
