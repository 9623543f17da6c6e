"use strict";

// Searches all messages, lists the hits and marks the words.

/** `page` is what the search needs of the page: its sessions, how it makes elements and words, and how it shows a hit. */
function makeSearch(page) {
  const { sessions, element, button, count, joined, sessionName, wordsOf, reveal } = page;
  const MAX_HITS = 200;
  const search = document.getElementById("search");
  const found = document.getElementById("found");
  const hitList = document.getElementById("hits");
  let hits = [];
  let at = -1;

  /** All text of a message, as one string. */
  function textOf(message) {
    const texts = [];
    const collect = (value) => {
      if (typeof value === "string") texts.push(value);
      else if (value && typeof value === "object") Object.values(value).forEach(collect);
    };
    for (const { type, data: _bytes, images, call_id, id, line, nodes, summary, ...part } of message.parts) {
      for (const markdown of [nodes, summary]) if (markdown) texts.push(wordsOf(markdown));
      collect(part);
    }
    return texts.join("\n");
  }

  const contents = new Map();

  function content(message) {
    if (!contents.has(message)) {
      const text = textOf(message);
      contents.set(message, { text, lower: text.toLowerCase() });
    }
    return contents.get(message);
  }

  function runSearch() {
    const query = search.value.trim().toLowerCase();
    hits = [];
    at = -1;
    hitList.replaceChildren();
    if (!query) {
      found.textContent = "";
      hitList.hidden = true;
      return;
    }
    for (const [number, session] of sessions.entries())
      for (const [place, message] of session.messages.entries()) {
        const { text, lower } = content(message);
        const start = lower.indexOf(query);
        if (start >= 0) hits.push({ number, place, words: text.slice(Math.max(0, start - 40), start + query.length + 60) });
      }
    found.textContent = count(hits.length, "message");
    hitList.hidden = false;
    for (const [order, hit] of hits.slice(0, MAX_HITS).entries()) {
      const where = joined(sessionName(sessions[hit.number]), sessions[hit.number].messages[hit.place].role);
      hitList.append(button("", () => goTo(order), element("small", "", where), `…${hit.words}…`));
    }
    if (hits.length > MAX_HITS) hitList.append(element("p", "muted", `and ${count(hits.length - MAX_HITS, "more message")}`));
  }

  function goTo(order) {
    if (!hits.length) return;
    at = (order + hits.length) % hits.length;
    found.textContent = `${at + 1} of ${count(hits.length, "message")}`;
    reveal(hits[at], search.value.trim());
  }

  function close() {
    search.value = "";
    search.blur();
    runSearch();
    clearHighlights();
  }

  function clearHighlights() {
    for (const mark of document.querySelectorAll("main mark")) {
      const parent = mark.parentNode;
      mark.replaceWith(mark.textContent);
      parent.normalize();
    }
  }

  function highlight(shown, query) {
    clearHighlights();
    const wanted = query.toLowerCase();
    const walker = document.createTreeWalker(shown, NodeFilter.SHOW_TEXT);
    const nodes = [];
    while (walker.nextNode()) nodes.push(walker.currentNode);
    for (let node of nodes) {
      let start = node.data.toLowerCase().indexOf(wanted);
      while (start >= 0 && start + wanted.length <= node.data.length) {
        const hit = node.splitText(start);
        const rest = hit.splitText(wanted.length);
        const mark = element("mark", "");
        hit.replaceWith(mark);
        mark.append(hit);
        node = rest;
        start = node.data.toLowerCase().indexOf(wanted);
      }
    }
  }

  let pending = 0;
  search.addEventListener("input", () => {
    clearTimeout(pending);
    pending = setTimeout(runSearch, 120);
  });
  search.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    clearTimeout(pending);
    if (at < 0) runSearch();
    goTo(event.shiftKey ? at - 1 : at + 1);
    search.focus();
  });

  return { input: search, close, highlight };
}
