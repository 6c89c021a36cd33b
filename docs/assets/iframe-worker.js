// A page that was opened as a file may start no Worker, and the search is one. Then it runs in a hidden frame instead:
// what the page posts is handed to the frame's window, what the frame posts comes back as the worker's messages.
if (location.protocol === "file:") {
  window.Worker = window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = (this.inside = frame.contentWindow);
      const load = (source) =>
        new Promise((done) => {
          const script = inside.document.createElement("script");
          script.onload = done;
          script.src = source;
          inside.document.body.append(script);
        });
      inside.postMessage = (data) => this.answered(data);
      inside.importScripts = (...sources) => Promise.all(sources.map(load));
      load(String(url)).then(() => {
        const waiting = this.waiting;
        this.waiting = null;
        waiting.forEach((data) => this.postMessage(data));
      });
    }
    postMessage(data) {
      if (this.waiting) this.waiting.push(data);
      else this.inside.dispatchEvent(new MessageEvent("message", { data }));
    }
    answered(data) {
      const event = new MessageEvent("message", { data });
      this.dispatchEvent(event);
      if (this.onmessage) this.onmessage(event);
    }
    terminate() {}
  };
}
