"use strict";
(() => {
  const root = document.documentElement;
  const byId = (id) => document.getElementById(id);
  const list = byId("tests");
  const tests = [...list.children];
  const cells = [...document.querySelectorAll(".cell")];
  const choices = ["status", "capability", "kind"];
  const words = new Map(tests.map((test) => [test, test.textContent.toLowerCase()]));
  const orders = {
    order: (a, b) => a.dataset.order - b.dataset.order,
    rate: (a, b) => b.dataset.rate - a.dataset.rate || a.dataset.order - b.dataset.order,
    name: (a, b) => a.dataset.name.localeCompare(b.dataset.name),
  };

  function show() {
    const wanted = byId("search").value.toLowerCase().trim();
    let shown = 0;
    for (const test of tests) {
      const fits = choices.every((name) => !byId(name).value || byId(name).value === test.dataset[name])
        && (!wanted || words.get(test).includes(wanted));
      test.hidden = !fits;
      shown += fits;
    }
    for (const cell of cells) {
      const pressed = ["capability", "kind"].every((name) => byId(name).value === cell.dataset[name]);
      cell.setAttribute("aria-pressed", pressed);
    }
    byId("shown").textContent = shown === tests.length ? "" : `${shown} of ${tests.length} tests`;
    byId("none").hidden = shown > 0;
  }

  function openTarget() {
    const test = tests.find((each) => "#" + encodeURIComponent(each.id) === location.hash || "#" + each.id === location.hash);
    if (!test) return;
    if (test.hidden) { byId("tools").reset(); show(); }
    test.open = true;
    test.scrollIntoView();
  }

  byId("tools").addEventListener("input", () => {
    list.append(...[...tests].sort(orders[byId("sort").value]));
    show();
  });
  byId("tools").addEventListener("reset", () => setTimeout(() => { list.append(...tests); show(); }));
  byId("tools").addEventListener("submit", (event) => event.preventDefault());
  for (const cell of cells) {
    cell.addEventListener("click", () => {
      const pressed = cell.getAttribute("aria-pressed") === "true";
      for (const name of ["capability", "kind"]) byId(name).value = pressed ? "" : cell.dataset[name];
      show();
      if (!pressed) byId("tools").scrollIntoView({ block: "start" });
    });
  }
  byId("theme").addEventListener("click", () => {
    const dark = root.classList.contains("dark")
      || (!root.classList.contains("light") && matchMedia("(prefers-color-scheme: dark)").matches);
    root.classList.remove("dark", "light");
    root.classList.add(dark ? "light" : "dark");
  });
  addEventListener("hashchange", openTarget);
  show();
  openTarget();
})();
