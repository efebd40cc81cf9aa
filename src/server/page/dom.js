// Small words for making nodes; what models and people write becomes text of nodes, never markup.
export const byId = (id) => document.getElementById(id);

export function element(name, properties = {}, ...children) {
  const node = Object.assign(document.createElement(name), properties);
  node.append(...children);
  return node;
}

// Line icons, 24 x 24, drawn with the colour of the text.
const kIcons = {
  plus: "M12 5v14M5 12h14",
  search: "M11 4a7 7 0 1 0 0 14 7 7 0 0 0 0-14zM16.5 16.5 21 21",
  more: "M4.5 12a1 1 0 1 0 2 0 1 1 0 1 0-2 0M11 12a1 1 0 1 0 2 0 1 1 0 1 0-2 0M17.5 12a1 1 0 1 0 2 0 1 1 0 1 0-2 0",
  panel: "M4 5h16v14H4zM9.5 5v14",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  check: "M5 12.5l4.5 4.5L19 7.5",
  edit: "M4 20h4L19 9l-4-4L4 16zM13 7l4 4",
  retry: "M20 11a8 8 0 1 0-2.3 6.3M20 5v6h-6",
  left: "M14.5 6l-6 6 6 6",
  right: "M9.5 6l6 6-6 6",
  down: "M12 5v14M6 13l6 6 6-6",
  up: "M12 19V5M6 11l6-6 6 6",
  stop: "M7 7h10v10H7z",
  clip: "M20 11.5l-8.2 8.2a5.2 5.2 0 0 1-7.4-7.4l8.5-8.4a3.5 3.5 0 0 1 5 5l-8.6 8.4a1.7 1.7 0 0 1-2.4-2.4l7.9-7.8",
  file: "M6 3h8l4 4v14H6zM14 3v4h4",
  close: "M6 6l12 12M18 6L6 18",
  reset: "M4 5v6h6M4.5 11A8 8 0 1 1 6 17.3",
  settings: "M4 7h9M19 7h1M4 17h3M13 17h7M16 4.5a2.5 2.5 0 1 0 0 5 2.5 2.5 0 0 0 0-5zM10 14.5a2.5 2.5 0 1 0 0 5 2.5 2.5 0 0 0 0-5z",
  status: "M4 19V9M10 19V5M16 19v-7M21 19H3",
  keyboard: "M3 7h18v11H3zM7 11h.01M11 11h.01M15 11h.01M8 14.5h8",
  import: "M12 4v11M7 10.5l5 5 5-5M4 20h16",
  export: "M12 16V5M7 9.5l5-5 5 5M4 20h16",
};

export function icon(name) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  node.setAttribute("viewBox", "0 0 24 24");
  node.setAttribute("aria-hidden", "true");
  node.classList.add("icon");
  path.setAttribute("d", kIcons[name]);
  node.append(path);
  return node;
}

// A button that is an icon; label is what it is called, and what is shown when the pointer rests on it.
export function iconButton(name, action, label) {
  const node = element("button", { type: "button", className: "icon-button", title: label }, icon(name));
  node.dataset.action = action;
  node.setAttribute("aria-label", label);
  return node;
}

// Buttons of the page's own markup name their icon in data-icon.
export function fillIcons(root = document) {
  for (const node of root.querySelectorAll("[data-icon]:not(:has(svg))")) node.prepend(icon(node.dataset.icon));
}

export function show(node, text) {
  node.textContent = text;
  node.hidden = !text;
}

export const announce = (text) => { byId("announcer").textContent = text; };

export const number = new Intl.NumberFormat("en-US");
export const plural = (count, one, many = one + "s") => `${number.format(count)} ${count === 1 ? one : many}`;

// crypto.randomUUID exists only where a page came by HTTPS or from this machine.
export function newId() {
  return [...crypto.getRandomValues(new Uint8Array(12))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
