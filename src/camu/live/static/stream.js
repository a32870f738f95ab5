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
