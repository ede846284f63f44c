// The module of WebAssembly behind a few functions; the same in a browser and in Node.

const text = new TextEncoder();
const read = new TextDecoder();

export class Model {
  #module;
  #exports;
  #kept = [];

  /** A model of a compiled module. */
  static async of(module) {
    const model = new Model();
    model.#module = module;
    await model.#start();
    return model;
  }

  async #start() {
    this.#exports = (await WebAssembly.instantiate(this.#module, {})).exports;
    for (const [what, name, bytes] of this.#kept) this.#give(what, name, bytes);
  }

  // Memory may move whenever it grows, so nothing of it is kept.
  #write(...parts) {
    const length = parts.reduce((sum, part) => sum + part.length, 0);
    let at = this.#exports.reserve(length);
    for (const part of parts) {
      new Uint8Array(this.#exports.memory.buffer, at, part.length).set(part);
      at += part.length;
    }
  }

  #give(what, name, bytes) {
    const title = text.encode(name);
    this.#write(title, bytes);
    return this.#exports[what](title.length) === 1;
  }

  /** Gives a network's file; asked for by its name from then on. */
  hold(name, bytes) {
    this.#kept = this.#kept.filter(([what, other]) => what !== "hold" || other !== name);
    this.#kept.push(["hold", name, bytes]);
    return this.#give("hold", name, bytes);
  }

  /** Gives a calibration, in its packed form. */
  provide(name, bytes) {
    this.#kept.push(["provide", name, bytes]);
    return this.#give("provide", name, bytes);
  }

  /** The answer to a question. Throws an `Error` that says why there is none. */
  ask(question) {
    let answer;
    try {
      this.#write(text.encode(JSON.stringify(question)));
      const length = this.#exports.ask();
      answer = JSON.parse(read.decode(new Uint8Array(this.#exports.memory.buffer, this.#exports.answer(), length)));
    } catch (error) {
      // A trap leaves the module as it was in the middle of something: the next question gets a new one.
      this.#start();
      throw new Error(`the model failed on this question (${error.message}); please report it`);
    }
    if (answer.error) throw new Error(answer.error);
    return answer;
  }
}
