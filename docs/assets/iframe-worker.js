/* A Worker in a hidden frame, for pages that are opened from disk, where a browser allows no real one: the search. */
if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.ready = new Promise((resolve) => {
        const attach = () => {
          document.body.appendChild(this.frame);
          const inside = this.frame.contentWindow;
          const load = (address) =>
            new Promise((done, failed) => {
              const script = inside.document.createElement("script");
              Object.assign(script, { src: address, async: false, onload: done, onerror: failed });
              inside.document.body.appendChild(script);
            });
          inside.document.open();
          inside.document.write("<!doctype html><body></body>");
          inside.document.close();
          /* importScripts is synchronous in a worker; the search awaits what it returns */
          inside.importScripts = (...addresses) => Promise.all(addresses.map(load));
          inside.postMessage = (data) => this.reply(data);
          load(new URL(url, location).href).then(() => resolve(inside));
        };
        document.body ? attach() : addEventListener("DOMContentLoaded", attach);
      });
    }
    reply(data) {
      const event = new MessageEvent("message", { data });
      this.dispatchEvent(event);
      this.onmessage?.(event);
    }
    postMessage(data) {
      this.ready.then((inside) => inside.dispatchEvent(new inside.MessageEvent("message", { data })));
    }
    terminate() {
      this.frame.remove();
    }
  };
}
