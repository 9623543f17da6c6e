"use strict";

// Shows the conversation in the JSON of this page. Data of the conversation becomes text nodes and elements of a fixed
// list: nothing of it is parsed as HTML, only web and mail addresses become links, and the policy allows no request.

(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const sessions = data.sessions;
  const main = document.getElementById("page");
  const LONG_TEXT_CHARS = 8000;
  const LONG_PROMPT_CHARS = 1500;
  const OPEN_STEPS = 6; // more steps of one turn are folded
  const BATCH_MESSAGES = 100;
  const OPEN_AT_FIRST = 300; // messages of sessions that are open when the page opens
  const OPEN_DIFF_LINES = 60;
  const IMAGE_TYPES = ["image/png", "image/jpeg", "image/gif", "image/webp"];

  // --- elements ---------------------------------------------------------------------------------------------

  function element(name, className, ...children) {
    const made = document.createElement(name);
    if (className) made.className = className;
    made.append(...children.filter((child) => child !== null && child !== ""));
    return made;
  }

  function button(className, act, ...children) {
    const made = element("button", className, ...children);
    made.type = "button";
    made.addEventListener("click", act);
    return made;
  }

  /** A folded part: `render` returns its content, and is called when it is first opened. */
  function fold(title, render, className = "") {
    const details = element("details", `fold ${className}`, element("summary", "", ...title));
    let rendered = false;
    details.fill = () => {
      if (rendered) return;
      rendered = true;
      details.append(...render());
    };
    details.addEventListener("toggle", () => details.open && details.fill());
    return details;
  }

  function openFold(details) {
    details.fill();
    details.open = true;
  }

  // --- words ------------------------------------------------------------------------------------------------

  const numbers = new Intl.NumberFormat("en");
  const dates = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
  const times = new Intl.DateTimeFormat(undefined, { timeStyle: "short" });
  const count = (number, word) => `${numbers.format(number)} ${word}${number === 1 ? "" : "s"}`;
  const money = (dollars) => (dollars ? `$${dollars.toFixed(dollars < 1 ? 4 : 2)}` : "");
  const moment = (seconds) => (seconds ? dates.format(seconds * 1000) : "");
  const joined = (...words) => words.filter(Boolean).join(" · ");
  const short = (number) =>
    number >= 1e6 ? `${(number / 1e6).toFixed(1)}M` : number >= 1000 ? `${Math.round(number / 1000)}k` : `${number}`;
  const inWindow = (usage) =>
    usage.input_tokens + usage.output_tokens + usage.cache_read_tokens + usage.cache_write_tokens;

  function sessionName(session) {
    if (session.label) return `${session.label}: ${session.title || session.id}`;
    return `Session ${session.generation + 1}`;
  }

  // --- text -------------------------------------------------------------------------------------------------

  const wordsIn = (node) => (typeof node === "string" ? node : node.slice(2).map(wordsIn).join(""));
  const wordsOf = (nodes) => nodes.map(wordsIn).join("\n");

  /** The first nodes, with so many characters. */
  function cut(nodes, room) {
    const kept = [];
    for (const node of nodes) {
      if (room <= 0) break;
      const length = wordsIn(node).length;
      if (length <= room) kept.push(node);
      else kept.push(typeof node === "string" ? node.slice(0, room) : [node[0], node[1], ...cut(node.slice(2), room)]);
      room -= length;
    }
    return kept;
  }

  /** A text, or nodes, shown in full on request if there is too much of it. */
  function long(content, show, limit = LONG_TEXT_CHARS) {
    const isText = typeof content === "string";
    const length = isText ? content.length : wordsOf(content).length;
    if (length <= limit * 1.2) return [show(content)];
    const rest = button("more", () => shown.replaceChildren(show(content)), `Show all ${count(length, "character")}`);
    const shown = element("div", "long", show(isText ? content.slice(0, limit) : cut(content, limit)), rest);
    shown.fill = () => rest.isConnected && rest.click();
    return [shown];
  }

  const plain = (text) => element("pre", "", text);

  const TAGS = new Set("p ul ol li blockquote pre code em strong s hr br table thead tbody tr th td span".split(" "));
  const ADDRESS = /^(https?:\/\/|ftp:\/\/|mailto:)[!-~]+$/i;

  function link(address, ...children) {
    const made = element("a", "", ...children);
    if (!ADDRESS.test(address)) return element("span", "", ...children);
    made.setAttribute("href", address);
    made.rel = "noopener noreferrer nofollow";
    made.target = "_blank";
    made.title = address;
    return made;
  }

  /** An element for a node of Markdown: [tag, what else is known, ...content]. */
  function drawn(node) {
    if (typeof node === "string") return node;
    const [tag, known, ...content] = node;
    const children = content.map(drawn);
    if (tag === "a") return link(known, ...children);
    if (/^h[1-6]$/.test(tag)) return element(`h${Math.min(+tag[1] + 2, 6)}`, "", ...children);
    const made = element(TAGS.has(tag) ? tag : "span", tag === "ol" || tag === "pre" ? "" : known, ...children);
    if (tag === "ol" && known) made.start = known;
    if (tag === "pre" && known) made.dataset.language = known;
    return made;
  }

  /** Prose of a model or a user. */
  const prose = (nodes) => element("div", "text", ...nodes.map(drawn));

  function diff(unified) {
    const shown = element("pre", "diff");
    for (const line of unified.replace(/\n$/, "").split("\n")) {
      let kind = "";
      if (/^(@@|---|\+\+\+)/.test(line)) kind = "hunk";
      else if (line.startsWith("+")) kind = "added";
      else if (line.startsWith("-")) kind = "removed";
      shown.append(element("span", kind, line));
    }
    return shown;
  }

  function image(part) {
    const words = joined(part.name, part.media_type, part.width ? `${part.width}x${part.height}` : "", `${part.size} bytes`);
    const drawable = IMAGE_TYPES.includes(part.media_type) && /^[A-Za-z0-9+/]+={0,2}$/.test(part.data);
    if (!drawable) return element("p", "muted", `[image: ${words}]`);
    const made = element("img", "");
    made.alt = words;
    made.src = `data:${part.media_type};base64,${part.data}`;
    return made;
  }

  // --- messages ---------------------------------------------------------------------------------------------

  function resultOf(result) {
    const shown = [];
    if (result.display && result.display.type === "todos") {
      const mark = { completed: "[x]", in_progress: "[>]", pending: "[ ]" };
      shown.push(plain(result.display.todos.map((todo) => `${mark[todo.status || "pending"]} ${todo.text}`).join("\n")));
    }
    if (result.text) shown.push(...long(result.text, plain));
    return [...shown, ...(result.images || []).map(image)];
  }

  function toolFold(call, result) {
    const state = result ? result.state : "no result";
    const change = result && result.display && result.display.type === "diff" ? result.display : null;
    const words = joined(
      change ? `+${change.added || 0} -${change.removed || 0}` : "",
    );
    const title = [
      element("strong", "", (state ? call.line : call.did) || call.name),
      words ? `  ${words}` : "",
      state ? element("span", "state", ` ${state}`) : "",
    ];
    const render = () => {
      const args = call.bad_json || JSON.stringify(call.args || {}, null, 2);
      const shown = call.args || call.bad_json ? long(args, plain) : [];
      return [...shown, ...(result ? resultOf(result) : [])];
    };
    return fold(title, render, state ? "failed" : "");
  }

  /** A change stands below its folded call; a long one is folded as well. */
  function changeOf(result) {
    if (!result || !result.display || result.display.type !== "diff") return [];
    const { path, unified } = result.display;
    const isShort = unified.length <= LONG_TEXT_CHARS && unified.split("\n").length <= OPEN_DIFF_LINES;
    return isShort ? [diff(unified)] : [fold([`Changes in ${path}`], () => long(unified, diff))];
  }

  function seedFolds(seed) {
    const rest = [
      ["Standing rules", seed.rules],
      ["Pins", seed.pins],
      ["Evidence", seed.evidence],
      ["Quotes", seed.quotes],
      ["Earlier notes", (seed.earlier || []).map((note) => `- ${note.text}`).join("\n")],
      ["Loaded", (seed.loaded || []).map((one) => [one.key, one.text].filter(Boolean).join("\n")).join("\n\n")],
    ];
    const none = [["p", "", "(none: evidence only)"]];
    const summary = fold(["Summary"], () => long(seed.summary.length ? seed.summary : none, prose));
    return [summary, ...rest.filter(([, text]) => text).map(([title, text]) => fold([title], () => long(text, plain)))];
  }

  /** Calls with their results and where those are; the results are keys as well. Ids may occur again. */
  function pairCalls(messages) {
    const open = new Map();
    const answers = new Map();
    for (const [place, message] of messages.entries())
      for (const part of message.parts) {
        if (part.type === "tool_call") open.set(part.id, part);
        const call = part.type === "tool_result" ? open.get(part.call_id) : null;
        if (!call) continue;
        answers.set(call, { result: part, place });
        answers.set(part, null);
        open.delete(part.call_id);
      }
    return answers;
  }

  /** Of crushpy, not of the user. */
  const isOwn = (message) =>
    message.role === "user" && message.parts.every((part) => part.type === "seed" || part.type === "note");
  const isStep = (message) => message.role === "tool" || message.parts.some((part) => part.type === "tool_call");

  /** A link to a session or a message of this page. */
  function anchor(id) {
    const made = element("a", "anchor", "#");
    made.setAttribute("href", `#${id}`);
    made.title = "Link to this place";
    return made;
  }

  /** The messages of a session as elements, made when its section is opened. */
  class SessionView {
    constructor(session, number) {
      this.session = session;
      this.number = number;
      this.next = 0;
      this.anchors = new Map(); // message number -> the element that shows it
      this.answers = pairCalls(session.messages);
      this.steps = null; // the fold of the turn that is being rendered
      this.body = element("div", "body");
      this.body.hidden = true;
      const words = joined(
        session.tip ? "tip" : "",
        count(session.messages.length, "message"),
        money(session.usage.cost),
        session.model,
        moment(session.created_at),
      );
      this.toggle = button("", () => this.show(this.body.hidden), `${sessionName(session)}  `, element("small", "", words));
      this.toggle.setAttribute("aria-expanded", "false");
      this.section = element("section", "session", element("h2", "", this.toggle), this.body);
      this.section.id = `session-${number}`;
      if (session.boundary) this.section.prepend(boundaryCard(session));
    }

    show(open) {
      this.body.hidden = !open;
      this.toggle.setAttribute("aria-expanded", `${open}`);
      if (open) this.renderSome();
    }

    renderSome() {
      this.render(Math.min(this.next + BATCH_MESSAGES, this.session.messages.length));
      if (this.next < this.session.messages.length) setTimeout(() => !this.body.hidden && this.renderSome(), 0);
    }

    render(end) {
      for (; this.next < end; this.next++) {
        const message = this.session.messages[this.next];
        const shown = this.message(message, this.next);
        if (shown) this.place(shown, message);
      }
    }

    /** The steps of a turn are in one fold; prompts and answers stand by themselves. */
    place(shown, message) {
      if (isStep(message)) this.steps ||= this.stepsFrom(this.next);
      else if (!isOwn(message)) this.steps = null;
      (this.steps || this.body).append(shown);
    }

    stepsFrom(start) {
      const { messages } = this.session;
      let end = start;
      while (end < messages.length && (isStep(messages[end]) || isOwn(messages[end]))) end++;
      const steps = messages.slice(start, end);
      const parts = steps.flatMap((message) => message.parts);
      const states = parts.filter((part) => part.type === "tool_result" && part.state).map((part) => part.state);
      const seconds = messages[end - 1].created_at - messages[Math.max(start - 1, 0)].created_at;
      const words = joined(
        count(steps.filter((message) => message.role === "assistant").length, "step"),
        count(parts.filter((part) => part.type === "tool_call").length, "call"),
        ...[...new Set(states)].map((state) => `${states.filter((other) => other === state).length} ${state}`),
        seconds >= 1 ? `${numbers.format(Math.round(seconds))} s` : "",
        money(steps.reduce((sum, message) => sum + (message.usage ? message.usage.cost : 0), 0)),
      );
      const group = element("details", "steps", element("summary", "meta", words));
      group.fill = () => {};
      group.open = steps.length <= 2 * OPEN_STEPS;
      this.body.append(group);
      return group;
    }

    message(message, number) {
      const parts = message.parts.flatMap((part) => this.part(part, number));
      if (!parts.length) return null;
      const who = isOwn(message) ? "crushpy" : message.role;
      const usage = message.usage;
      const words = joined(
        message.model || who,
        message.created_at ? times.format(message.created_at * 1000) : "",
        usage ? `${short(inWindow(usage))} tokens` : "",
        usage ? money(usage.cost) : "",
        message.state === "shortened" ? "sent shortened" : message.state === "dropped" ? "not sent" : "",
        message.finish === "interrupted" ? "interrupted" : "",
      );
      const shown = element("article", who, element("div", "meta", words, anchor(message.id)), ...parts);
      shown.tabIndex = -1;
      shown.firstChild.title = moment(message.created_at);
      this.anchors.set(number, shown);
      return shown;
    }

    part(part, number) {
      switch (part.type) {
        case "text":
        case "note": {
          if (part.lines) return [fold([`Pasted text, ${count(part.lines, "line")}`], () => long(part.text, plain))];
          const isPrompt = this.session.messages[number].role === "user";
          return part.nodes.length ? long(part.nodes, prose, isPrompt ? LONG_PROMPT_CHARS : LONG_TEXT_CHARS) : [];
        }
        case "thinking":
          return part.text ? [fold(["Thinking"], () => long(part.text, plain))] : [];
        case "image":
          return [image(part)];
        case "seed":
          return this.session.boundary && number === 0 ? [] : seedFolds(part); // else it is on the card
        case "tool_call": {
          const answer = this.answers.get(part);
          const folded = toolFold(part, answer && answer.result);
          const shown = [folded, ...changeOf(answer && answer.result)];
          if (answer) this.anchors.set(answer.place, element("div", "", ...shown));
          return answer ? [this.anchors.get(answer.place)] : shown;
        }
        case "tool_result": // beside its call, unless that is missing
          return this.answers.has(part) ? [] : [toolFold({ name: part.name }, part), ...changeOf(part)];
        default:
          return [];
      }
    }

    /** Shows one message, with what is folded in it if `query` occurs there. */
    reveal(number, query) {
      this.show(true);
      this.render(Math.max(this.next, number + 1));
      const seedOnCard = number === 0 && !this.anchors.has(0) && this.section.querySelector(".card");
      const shown = seedOnCard || this.anchors.get(number) || this.section;
      if (query) {
        for (const details of [shown, ...shown.querySelectorAll("details")]) {
          if (!details.matches("details")) continue;
          details.fill();
          for (const part of details.querySelectorAll(".long")) part.fill();
          if (details.textContent.toLowerCase().includes(query.toLowerCase())) details.open = true;
        }
        for (const part of shown.querySelectorAll(".long")) part.fill();
        search.highlight(shown, query);
      }
      for (let up = shown; up; up = up.parentElement) if (up.matches("details.steps")) up.open = true;
      select(shown.closest("article, .card, section"));
      (shown.querySelector("mark") || shown).scrollIntoView({ block: "center" });
    }
  }

  const factsOf = (boundary) => Object.entries(boundary.facts || {}).filter(([, [total]]) => total);

  function boundaryWords(session) {
    const boundary = session.boundary;
    if (!boundary) return "";
    const here = factsOf(boundary).filter(([kind]) => !kind.endsWith("_lineage"));
    const total = here.reduce((sum, [, counts]) => sum + counts[0], 0);
    const carried = here.reduce((sum, [, counts]) => sum + counts[2], 0);
    return joined(
      boundary.trigger,
      `${short(boundary.tokens_before)} → ${short(boundary.tokens_after)} tokens`,
      total ? `${carried} of ${count(total, "recorded fact")} carried` : "",
      boundary.summary_source ? `summary: ${joined(boundary.summary_source, boundary.summary_model)}` : "",
      boundary.moment ? `at ${boundary.moment}` : "",
      money(boundary.cost),
      boundary.undone_at ? "undone" : "",
    );
  }

  function boundaryCard(session) {
    const boundary = session.boundary;
    const facts = factsOf(boundary);
    const made = boundary.trigger === "agent" ? "New session" : "Compacted";
    const words = element("span", "meta", boundaryWords(session));
    const card = element("div", "card", element("strong", "", made), " ", words, anchor(session.id));
    if (session.hindsight) card.append(element("div", "meta", session.hindsight));
    if (boundary.undone_at) card.classList.add("undone");
    card.tabIndex = -1;
    if (facts.length) {
      card.append(fold(["Recorded facts carried"], () => [factTable(facts)]));
    }
    const seed = session.messages.length ? session.messages[0].parts.find((part) => part.type === "seed") : null;
    if (seed) card.append(...seedFolds(seed));
    if (boundary.problem) card.append(element("p", "muted", boundary.problem));
    return card;
  }

  function factTable(facts) {
    const row = (cell, ...words) =>
      element("tr", "", ...words.map((word, place) => element(cell, place ? "number" : "", `${word}`)));
    const rows = facts.map(([kind, [total, prose, carried]]) => row("td", kind.replaceAll("_", " "), total, prose, carried));
    return element("table", "", row("th", "kind", "facts", "in the summary", "carried"), ...rows);
  }

  // --- head -------------------------------------------------------------------------------------------------

  function head() {
    const usage = data.usage;
    const read = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens;
    const words = joined(
      count(sessions.length, "session"),
      count(sessions.reduce((sum, one) => sum + one.messages.length, 0), "message"),
      read ? `${short(read)} tokens in, ${short(usage.output_tokens)} out` : "",
      money(usage.cost),
      data.folder,
      data.imported ? `imported from ${data.imported}` : "",
    );
    const removed = data.redactions.reduce((sum, one) => sum + one.count, 0);
    const title = data.redacted ? `${count(removed, "redaction")}, and what is left out` : "Secrets are not redacted";
    const list = () => [
      ...data.redactions.map((one) => {
        const text = `${one.kind}: ${one.count} in ${one.place}`;
        const place = places.get(one.message);
        const jump = () => views[place[0]].reveal(place[1], "[redacted]");
        return element("div", "", place ? button("", jump, text) : text);
      }),
      ...data.left_out.map((text) => element("div", "muted", `Left out: ${text}`)),
    ];
    main.append(element("h1", "", data.title || data.conversation), element("div", "meta", words), fold([title], list, "removed-list"));
    const chart = windowChart();
    main.append(chart || element("p", "muted", "No usage was recorded, so the window over time is not known."));
  }

  function windowChart() {
    const points = [];
    for (const number of data.lineage)
      for (const [place, message] of sessions[number].messages.entries())
        if (message.usage && inWindow(message.usage))
          points.push({ number, place, tokens: inWindow(message.usage), cached: message.usage.cache_read_tokens });
    if (!points.length) return null;
    const chart = drawChart(points, {
      label: `Tokens in the window over ${count(points.length, "model call")}`,
      titleOf: (number) => boundaryWords(sessions[number]) || sessionName(sessions[number]),
      open: ({ number, place }) => views[number].reveal(place, ""),
    });
    const most = element("div", "meta", `${short(Math.max(...points.map((point) => point.tokens)))} tokens at most`);
    const legend = element("div", "meta", "window over time; shaded: read from the cache; dashed: a boundary");
    return element("div", "chart", most, chart, legend);
  }

  // --- the session tree --------------------------------------------------------------------------------------

  function drawTree() {
    const depths = new Map([["", -1]]);
    for (const [number, session] of sessions.entries()) {
      const depth = (depths.get(session.under) ?? -1) + 1;
      depths.set(session.id, depth);
      const words = joined(
        session.boundary ? session.boundary.trigger : "",
        session.boundary && session.boundary.undone_at ? "undone" : "",
        count(session.messages.length, "message"),
        money(session.usage.cost),
        session.tip ? "tip" : "",
      );
      const entry = button(session.tip ? "tip" : "", () => goToSession(number), sessionName(session), element("small", "", words));
      entry.style.paddingLeft = `${0.4 + Math.min(depth, 12)}rem`;
      if (session.id === data.exported) entry.classList.add("shown");
      entries.push(entry);
    }
    document.getElementById("tree").append(...entries);
  }

  function goToSession(number) {
    views[number].show(true);
    select(views[number].section);
    views[number].section.scrollIntoView();
  }

  /** An address that ends with the id of a session or a message opens there. */
  function openAddress() {
    const id = location.hash.slice(1);
    const number = sessions.findIndex((session) => session.id === id);
    if (number >= 0) goToSession(number);
    else if (places.has(id)) views[places.get(id)[0]].reveal(places.get(id)[1], "");
  }

  // --- selection and keys -------------------------------------------------------------------------------------

  let selected = null;

  function select(shown) {
    if (selected) selected.classList.remove("target");
    selected = shown;
    if (!shown) return;
    shown.classList.add("target");
    const section = shown.closest("section");
    for (const [number, entry] of entries.entries()) entry.classList.toggle("current", views[number].section === section);
    shown.focus({ preventScroll: true });
  }

  function step(query, by) {
    const all = [...main.querySelectorAll(query)].filter((one) => one.checkVisibility());
    const here = all.indexOf(selected && (selected.matches(query) ? selected : selected.closest(query)));
    const next = all[Math.min(Math.max(here + by, 0), all.length - 1)];
    if (!next) return;
    select(next);
    next.scrollIntoView({ block: query === "article" ? "nearest" : "start" });
  }

  function toggleCalls() {
    const folds = selected ? [...selected.querySelectorAll("details")] : [];
    const open = folds.some((details) => !details.open);
    for (const details of folds) {
      if (open) openFold(details);
      else details.open = false;
    }
  }

  const openAll = () => views.forEach((view) => view.show(true));
  const switchTheme = () => document.documentElement.classList.toggle("dark");
  const dialog = document.getElementById("keys");
  const keys = {
    "/": () => search.input.focus(),
    "?": () => dialog.showModal(),
    j: () => step("article", 1),
    k: () => step("article", -1),
    n: () => step("section.session", 1),
    p: () => step("section.session", -1),
    o: toggleCalls,
    a: openAll,
    t: switchTheme,
    Escape: () => search.close(),
  };

  document.addEventListener("keydown", (event) => {
    const typing = event.target === search.input && event.key !== "Escape";
    if (typing || dialog.open || event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  });

  // --- search -------------------------------------------------------------------------------------------------

  const search = makeSearch({
    ...{ sessions, element, button, count, joined, sessionName, wordsOf },
    reveal: ({ number, place }, words) => views[number].reveal(place, words),
  });

  // --- start --------------------------------------------------------------------------------------------------

  document.documentElement.classList.toggle("dark", matchMedia("(prefers-color-scheme: dark)").matches);
  document.getElementById("theme").addEventListener("click", switchTheme);
  document.getElementById("unfold").addEventListener("click", openAll);
  document.getElementById("help").addEventListener("click", () => dialog.showModal());
  document.getElementById("close").addEventListener("click", () => dialog.close());
  addEventListener("beforeprint", () => {
    for (const view of views) if (!view.body.hidden) view.render(view.session.messages.length);
  });

  const entries = [];
  const places = new Map();
  for (const [number, session] of sessions.entries())
    for (const [place, message] of session.messages.entries()) places.set(message.id, [number, place]);
  const views = sessions.map((session, number) => new SessionView(session, number));
  head();
  drawTree();
  main.append(...views.map((view) => view.section));
  let open = 0;
  for (const number of data.lineage) {
    if (open && open + sessions[number].messages.length > OPEN_AT_FIRST) break;
    views[number].show(true);
    open += sessions[number].messages.length;
  }
  addEventListener("hashchange", openAddress);
  openAddress();
})();
