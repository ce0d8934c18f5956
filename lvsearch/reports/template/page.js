"use strict";
(() => {
  const form = document.querySelector(".filter");
  const items = [...document.querySelectorAll(".units li")];
  const open = () => {
    const item = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!item || !items.includes(item)) return;
    if (form) { form.reset(); filter(); }
    item.querySelector("details").open = true;
    item.querySelector("summary").focus({ preventScroll: true });
    item.scrollIntoView();
  };
  const filter = () => {
    const wanted = form.querySelector("#find").value.trim().toLowerCase();
    const part = form.querySelector("#part").value;
    let shown = 0;
    for (const item of items) {
      const fits = item.textContent.toLowerCase().includes(wanted) && (!part || item.dataset.parts.includes(` ${part} `));
      item.hidden = !fits;
      shown += fits;
    }
    form.querySelector("#found").value = `${shown} of ${items.length} shown`;
  };
  if (form) {
    form.hidden = false;
    form.addEventListener("input", filter);
    form.addEventListener("submit", (event) => event.preventDefault());
    filter();
  }
  addEventListener("hashchange", open);
  open();
})();
