// A setup as the fields of the form and as a link.

const KEYS = ["net", "gpu", "batch", "precision", "mode", "framework", "sequence", "clock", "cap", "with"];

export const START = { net: "resnet50", gpu: "h200", batch: "64", precision: "fp16", mode: "inference", framework: "cudnn", sequence: "", clock: "", cap: "", with: "h100-sxm,a100-sxm4-80gb,l4,v100" };

/** The setup of a link, with what it does not say as at the start. */
export function fromLink(hash) {
  const said = new URLSearchParams(hash.replace(/^#/, ""));
  return Object.fromEntries(KEYS.map(key => [key, said.get(key) ?? START[key]]));
}

/** The part of a link that says a setup. */
export function toLink(state) {
  const said = new URLSearchParams();
  for (const key of KEYS) if (key === "with" || state[key] !== "") said.set(key, state[key]);
  return `#${said.toString().replaceAll("%2C", ",")}`;
}

/** The question about a setup on these GPUs. */
export function question(ask, state, gpus) {
  const asked = { ask, net: state.net, gpus, batch: Number(state.batch), precision: state.precision, mode: state.mode, framework: state.framework };
  if (state.sequence !== "") asked.sequence = Number(state.sequence);
  if (state.clock !== "") asked.clock_mhz = Number(state.clock);
  if (state.cap !== "") asked.power_cap_w = Number(state.cap);
  return asked;
}
