// Asks the worker, which is started when it is first needed: it loads the network and what runs it.

export class Votes {
  load() {
    if (this.worker) return;
    this.worker = new Worker("worker.js", { type: "module" });
    this.waiting = [];
    this.worker.onmessage = ({ data }) => {
      const { resolve, reject } = this.waiting.shift(); // it answers in the order of the questions
      if (data.error) reject(new Error(data.error));
      else resolve(data);
    };
    this.worker.onerror = () => { // another question starts another worker
      this.worker = null;
      for (const { reject } of this.waiting) reject(new Error("its files do not load"));
    };
  }

  ask(question) {
    this.load();
    return new Promise((resolve, reject) => {
      this.waiting.push({ resolve, reject });
      this.worker.postMessage(question);
    });
  }
}
