// Talks to the server: JSON in and out, events, and the latest question wins.

async function ask(path, options) {
  const answer = await fetch(path, options);
  if (!answer.ok) throw new Error((await answer.text()).trim() || `status ${answer.status}`);
  return answer.json();
}

export const get = (path) => ask(path, {});

export const post = (path, body, signal) =>
  ask(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body), signal });

const PATIENCE_MILLISECONDS = 2000;

// One question at a time; of those that come meanwhile only the last is asked. A question that
// takes long is given up as soon as there is another.
export class Latest {
  constructor(work, done) {
    this.work = work;
    this.done = done;
    this.busy = false;
    this.next = null;
  }

  ask(question) {
    this.next = { question };
    if (!this.busy) this.run();
    else if (this.late) this.given.abort();
  }

  async run() {
    this.busy = true;
    while (this.next) {
      const { question } = this.next;
      this.next = null;
      this.late = false;
      this.given = new AbortController();
      const timer = setTimeout(() => this.giveUp(), PATIENCE_MILLISECONDS);
      let answer;
      try {
        answer = await this.work(question, this.given.signal);
      } catch (error) {
        if (this.given.signal.aborted && this.next) continue;
        answer = { errors: [{ key: null, text: `the server does not answer (${error.message})` }] };
      } finally {
        clearTimeout(timer);
      }
      await this.done(answer, question, this.next === null);
    }
    this.busy = false;
  }

  giveUp() {
    this.late = true;
    if (this.next) this.given.abort();
  }
}

// Server-sent events while the page is in view: browsers allow few connections to one server.
export class Stream {
  // `begin` is called whenever the events start again from the first; `take` gets each event.
  constructor(path, begin, take) {
    Object.assign(this, { path, begin, take, source: null });
    this.turn = () => (document.hidden ? this.pause() : this.open());
    document.addEventListener("visibilitychange", this.turn);
    this.turn();
  }

  open() {
    if (this.source) return;
    this.source = new EventSource(this.path);
    this.source.onopen = () => this.begin();
    this.source.onmessage = (event) => this.take(JSON.parse(event.data));
  }

  pause() {
    this.source?.close();
    this.source = null;
  }

  close() {
    document.removeEventListener("visibilitychange", this.turn);
    this.pause();
  }
}
