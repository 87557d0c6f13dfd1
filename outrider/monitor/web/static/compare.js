// Page of a comparison: pairs labelled by keyboard; fresh while it runs.
(() => {
  const isLive = document.currentScript.hasAttribute("data-live");
  const show = html => {
    const fresh = new DOMParser().parseFromString(html, "text/html");
    const answers = () => [...document.querySelectorAll(".sides p")];
    const read = new Map(answers().filter(each => each.scrollTop).map(each => [each.textContent, each.scrollTop]));
    document.querySelector("main").replaceWith(fresh.querySelector("main"));
    for (const each of answers()) each.scrollTop = read.get(each.textContent) || 0;
  };
  const refresh = () => fetch(location.pathname).then(answer => answer.text()).then(show).catch(() => {});
  const send = button => {
    const form = new FormData(button.form);
    form.set(button.name, button.value);
    fetch(button.form.action, {method: "POST", body: new URLSearchParams(form)})
      .then(answer => answer.ok ? answer.text().then(show) : location.reload());
  };
  document.addEventListener("submit", event => {
    if (!event.target.matches("form.pair")) return;
    event.preventDefault();
    send(event.submitter);
  });
  document.addEventListener("keydown", event => {
    const button = !event.ctrlKey && !event.metaKey && !event.altKey && document.querySelector(`form.pair button[data-key="${CSS.escape(event.key)}"]`);
    if (button) send(button);
  });
  if (isLive) setInterval(refresh, 3000);
})();
