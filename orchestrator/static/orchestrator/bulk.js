/* Works off a bulk retry portion by portion, until it is done or somebody stops it.
   Without this file the button does one portion at a time. */
(() => {
  "use strict";
  const form = document.getElementById("bulk-form");
  if (!form) return;
  const button = form.querySelector('input[type="submit"]');
  const status = document.getElementById("bulk-status");
  const trouble = document.getElementById("bulk-trouble");
  const goOn = button.value;
  let running = false;
  let wanted = false;

  const want = (on) => { wanted = on; button.value = on ? button.dataset.stop : goOn; };

  const show = (page) => {
    for (const id of ["bulk-status", "bulk-items"]) {
      document.getElementById(id).innerHTML = page.getElementById(id).innerHTML;
    }
    const left = page.getElementById("bulk-status").dataset.left;
    status.dataset.left = left;
    document.getElementById("bulk-progress").value = page.getElementById("bulk-progress").value;
    return Number(left);
  };

  const portion = async () => {
    const answer = await fetch(form.action, { method: "POST", body: new FormData(form) });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (!answer.ok || !page.getElementById("bulk-status")) {
      throw new Error(`the server answered ${answer.status}`);
    }
    return show(page);
  };

  const work = async () => {
    running = true;
    trouble.textContent = "";
    let left = Number(status.dataset.left);
    try {
      while (wanted && left > 0) {
        const before = left;
        left = await portion();
        if (left >= before) await new Promise((wake) => setTimeout(wake, 1000)); // another is at it
      }
    } catch (error) {
      trouble.textContent = `Stopped: ${error.message}. Nothing is lost: go on, or come back later.`;
    }
    running = false;
    want(false);
    if (left === 0) { form.hidden = true; status.focus(); }
  };

  const press = () => {
    want(!wanted);
    if (wanted && !running) work();
  };

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    press();
  });
  if (form.dataset.begun) press();
})();
