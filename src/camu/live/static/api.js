// Talks to the server: JSON in and out, a second try where it is busy, and the latest question wins.

const pause = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));
const TRIES = 8;

async function ask(path, options) {
  for (let left = TRIES; ; left -= 1) {
    const answer = await fetch(path, options);
    if (answer.status === 429 && left > 1) {
      await pause(150 + 100 * Math.random());
      continue;
    }
    if (!answer.ok) throw new Error((await answer.text()).trim() || `status ${answer.status}`);
    return answer.json();
  }
}

export const get = (path) => ask(path, {});

export const post = (path, body) =>
  ask(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });

// One question at a time; of those that come meanwhile only the last is asked.
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
  }

  async run() {
    this.busy = true;
    while (this.next) {
      const { question } = this.next;
      this.next = null;
      let answer;
      try {
        answer = await this.work(question);
      } catch (error) {
        answer = { errors: [{ key: null, text: `the server does not answer (${error.message})` }] };
      }
      await this.done(answer, question, this.next === null);
    }
    this.busy = false;
  }
}
